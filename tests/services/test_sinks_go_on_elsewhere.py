"""Delta tables and topics of Kafka behind every verb that makes a checkpoint: see tests/spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command import answer_of
from grid import WHOLE
from kafka_broker import connector
from sink_grid import MOVES, SINKS, fits

from holdfast.engine.session.jars import has_build

if TYPE_CHECKING:
    from kafka_broker import Broker

SCRIPT = Path(__file__).parent / "jobs" / "moved_into_sinks.py"
SUPPORT = Path(__file__).parents[1] / "support"
CONF = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
# Sinks of Delta that are ours are tried in tests/spark; their cells take minutes.
FEW = {"delta": "restore_older", "kafka": "rescale", "own_kafka": "edit"}


# How many cells share a session in the long form, and the time that its process has.
_TOGETHER = 4
PATIENCE_S = 3600


def cells(kind: str) -> list[list[tuple[str, str]]]:
    """The cells of a kind of sink, by the process that runs them."""
    sinks = [name for name in SINKS if kind in name]
    if not WHOLE:
        return [[(sink, FEW[sink]) for sink in sinks if sink in FEW]]
    found = [(sink, move) for sink in sinks for move in MOVES if fits(sink, move)]
    return [found[start : start + _TOGETHER] for start in range(0, len(found), _TOGETHER)]


@pytest.fixture(autouse=True)
def support(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script uses what the tests share."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))


def check(found: dict[str, Any], asked: list[tuple[str, str]]) -> None:
    assert len(found) == len(asked)
    for cell, each in found.items():
        assert (each["lost"], each["too many"]) == ([], []), cell
        assert each["rows"] > 0, cell


@pytest.mark.spark
@pytest.mark.skipif(not has_build("delta"), reason="no Delta build works with this Spark")
@pytest.mark.parametrize("asked", cells("delta"), ids=lambda cells: "+".join(map("-".join, cells)))
def test_a_moved_query_goes_on_into_delta(home: Path, tmp_path: Path, asked: list[tuple[str, str]]) -> None:
    conf = {**CONF, "spark.databricks.delta.snapshotPartitions": "1"}
    given = {"folder": str(tmp_path), "cells": asked, "conf": conf, "extras": ["delta"]}
    check(answer_of(SCRIPT, given, home, PATIENCE_S), asked)


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.parametrize("asked", cells("kafka"), ids=lambda cells: "+".join(map("-".join, cells)))
def test_a_moved_query_goes_on_into_kafka(
    home: Path,
    tmp_path: Path,
    kafka_broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[tuple[str, str]],
) -> None:
    monkeypatch.setenv("GRID_KAFKA", kafka_broker.address)
    conf = {**CONF, "spark.jars": connector()}
    given = {"folder": str(tmp_path), "cells": asked, "conf": conf, "extras": []}
    check(answer_of(SCRIPT, given, home, PATIENCE_S), asked)
