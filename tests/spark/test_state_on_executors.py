"""Digests and differences computed on executors are those that this process computes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from golden import golden_on_disk

NAMES = (
    "4.2/aggregate-changelog",
    "4.2/aggregate-memory",
    "4.2/join-format2",
    "4.2/keyed-format2",
    "4.2/session-rocksdb",
    "4.2/state-format2",
)


@pytest.mark.parametrize("name", NAMES)
def test_digests_and_differences_are_the_same(spark: SparkSession, tmp_path: Path, name: str) -> None:
    place = golden_on_disk(name, tmp_path / "checkpoint")
    alone, spread = (
        hf.savepoints.take(place, tmp_path / catalog, digest=False).uri for catalog in ("alone", "spread")
    )
    expected = hf.savepoints.digest(alone).as_dict() | {"savepoint": spread}
    assert hf.savepoints.digest(spread, master="local[2]").as_dict() == expected
    assert hf.savepoints.verify(spread, deep=True).content == "compared"
    one, other = f"{place}@9", spread
    expected = hf.savepoints.diff(one, other).as_dict()
    assert not expected["same"]
    assert hf.savepoints.diff(one, other, master="local[2]").as_dict() == expected
