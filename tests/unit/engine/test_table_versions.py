"""Where a Delta table is, by which versions its log has."""

from __future__ import annotations

import threading
from math import log2
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.queries import batch_facts
from holdfast.engine.queries.batch_facts import TableVersions, newest_version, table_of, version_of
from holdfast.engine.queries.watch import sources_in
from holdfast.model import VERSIONS, PartitionPosition

TABLE: dict[str, Any] = {
    "description": "DeltaSource[s3://lake/orders]",
    "endOffset": {"sourceVersion": 1, "reservoirId": "a", "reservoirVersion": 7, "index": -1},
    "latestOffset": None,
    "numInputRows": 3,
}


@given(newest=st.integers(-1, 5_000), left=st.integers(0, 5_000))
def test_the_newest_version_is_found_with_few_questions(newest: int, left: int) -> None:
    read, asked = max(newest + 1 - left, 0), []

    def has(version: int) -> bool:
        asked.append(version)
        return version <= newest

    assert newest_version(has, read) == newest
    assert len(asked) <= 1 + 2 * (log2(max(newest + 1 - read, 1)) + 1)


def test_a_progress_report_says_where_the_table_is(monkeypatch: pytest.MonkeyPatch) -> None:
    query: Any = SimpleNamespace(_jsq=None)
    kafka = {"description": "KafkaV2[Subscribe[orders]]", "endOffset": {}, "latestOffset": {}}
    monkeypatch.setattr(batch_facts, "_versions_of", lambda table, _: lambda version: version <= 9)
    progress = {"batchId": 3, "sources": [kafka, TABLE]}
    found = TableVersions().added(progress, query)
    assert progress["sources"] == [kafka, TABLE]
    assert [source.positions for source in sources_in(found)] == [
        (),
        (PartitionPosition("s3://lake/orders", None, 7, 10, VERSIONS),),
    ]
    assert sources_in(progress)[1].positions == ()


def test_a_table_whose_log_cannot_be_looked_at_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fails(table: str, _query: object) -> Any:
        asked.append(table)
        if len(asked) == 2:
            return lambda version: version <= 9
        raise OSError("no such bucket")

    monkeypatch.setattr(batch_facts, "_versions_of", fails)
    tables, query = TableVersions(), cast(Any, SimpleNamespace(_jsq=None))
    found = [sources_in(tables.added({"sources": [TABLE]}, query))[0].positions for _ in range(8)]
    assert [len(positions) for positions in found] == [0, 1, 0, 0, 0, 0, 0, 0]
    assert asked == ["s3://lake/orders"] * 5


def test_a_storage_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = threading.Event()

    def hangs(_table: str, _query: object) -> Any:
        hanging.wait()

    monkeypatch.setattr(batch_facts, "_versions_of", hangs)
    tables, query = TableVersions(patience_s=0.01), cast(Any, SimpleNamespace(_jsq=None))
    try:
        for _ in range(3):
            assert sources_in(tables.added({"sources": [TABLE]}, query))[0].positions == ()
    finally:
        hanging.set()


def test_offsets_and_names() -> None:
    assert version_of('{"reservoirVersion": 7}') == 7
    assert [version_of(other) for other in (None, "no JSON", "7", {"orders": {"0": 1}}, 3)] == [None] * 5
    assert table_of({"description": "DeltaSource[file:/lake/a[1]]"}) == "file:/lake/a[1]"
    assert table_of({"description": "FileStreamSource[file:/in]"}) is None
