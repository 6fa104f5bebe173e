"""Checkpoints whose keyed operators are not moved before a start: remote ones, and those of new queries."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.changes.reordering import find_by_name
from holdfast.stream.sinks.query_sink import FILES, Sink


def unplanned() -> Sink:
    """A query whose plan must not be requested, because Spark would have to analyze its code."""

    def writer() -> None:
        pytest.fail("the plan of the query was requested")

    return Sink(None, "visits", "parquet", FILES, writer=writer)  # type: ignore[arg-type]


@pytest.mark.parametrize("address", ["s3://bucket/visits", "hdfs://namenode:8020/visits", "memory://visits"])
def test_a_remote_checkpoint_is_left_to_the_start_of_the_query(address: str) -> None:
    assert list(find_by_name({"visits": unplanned()}, {"visits": address})) == []


def test_a_query_without_a_checkpoint_has_no_state_to_move(tmp_path: Path) -> None:
    address = (tmp_path / "visits").as_uri()
    assert list(find_by_name({"visits": unplanned()}, {"visits": address})) == []
    assert list(tmp_path.iterdir()) == []
