"""Kafka and Delta give two codes the same input from a savepoint on, and a restored query its own once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command import environment
from grid import WHOLE
from kafka_broker import connector

from holdfast.engine.session.jars import has_build

if TYPE_CHECKING:
    from kafka_broker import Broker

pytestmark = [pytest.mark.services, pytest.mark.spark]

SCRIPT = Path(__file__).parent / "jobs" / "read_twice.py"
BEFORE = [[("ann", 1), ("bob", 2)], [("ann", 3)]]
AFTER = [[("ann", 7), ("cid", 4)], [("bob", 5), ("bob", 6)], [("dora", 8)]]


def asked(home: Path, folder: Path, **more: Any) -> dict[str, Any]:
    """What the script tells of a source."""
    task = {"folder": str(folder), "before": BEFORE, "after": AFTER, "conf": {}, "extras": [], **more}
    said = subprocess.run(
        [sys.executable, str(SCRIPT), json.dumps(task)],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert said.returncode == 0, said.stderr[-6000:]
    found: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    return found


def check(found: dict[str, Any]) -> None:
    assert found["input_rows"] == sum(map(len, AFTER))
    assert len(found["batches"]) > 1
    same, other = found["verdicts"]["same"], found["verdicts"]["other"]
    assert same == {"ran": found["batches"], "outputs": True, "states": True}
    # The other code leaves out one row, of a customer who came before.
    assert other == {"ran": found["batches"], "outputs": False, "states": False}
    totals: Counter[str] = Counter()
    for rows in (*BEFORE, *AFTER):
        for who, amount in rows:
            totals[who] += amount
    assert found["restored"] == totals


def test_kafka_gives_the_same_input_to_both(home: Path, tmp_path: Path, kafka_broker: Broker) -> None:
    kafka = {"address": kafka_broker.address, "topic": kafka_broker.topic()}
    check(asked(home, tmp_path, kafka=kafka, conf={"spark.jars": connector()}))


@pytest.mark.skipif(not WHOLE, reason="a part of the long form: HOLDFAST_GRID=all")
@pytest.mark.skipif(not has_build("delta"), reason="no Delta build works with this Spark")
def test_delta_gives_the_same_input_to_both(home: Path, tmp_path: Path) -> None:
    check(asked(home, tmp_path, extras=["delta"]))
