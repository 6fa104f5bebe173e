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


def cells(*sinks: str) -> list[tuple[str, str]]:
    if not WHOLE:
        return [(sink, FEW[sink]) for sink in sinks if sink in FEW]
    return [(sink, move) for sink in sinks for move in MOVES if fits(sink, move)]


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
def test_a_moved_query_goes_on_into_delta(home: Path, tmp_path: Path) -> None:
    asked = cells(*(name for name in SINKS if "delta" in name))
    conf = {**CONF, "spark.databricks.delta.snapshotPartitions": "1"}
    given = {"folder": str(tmp_path), "cells": asked, "conf": conf, "extras": ["delta"]}
    check(answer_of(SCRIPT, given, home), asked)


@pytest.mark.spark
@pytest.mark.services
def test_a_moved_query_goes_on_into_kafka(
    home: Path, tmp_path: Path, kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = cells(*(name for name in SINKS if "kafka" in name))
    monkeypatch.setenv("GRID_KAFKA", kafka_broker.address)
    conf = {**CONF, "spark.jars": connector()}
    given = {"folder": str(tmp_path), "cells": asked, "conf": conf, "extras": []}
    check(answer_of(SCRIPT, given, home), asked)
