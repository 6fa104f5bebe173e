"""How far a real query is behind a real topic, counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import answer_of
from kafka_broker import connector

if TYPE_CHECKING:
    from kafka_broker import Broker

pytestmark = [pytest.mark.services, pytest.mark.spark]

SCRIPT = Path(__file__).parent / "jobs" / "behind_in_kafka.py"


def test_what_is_left_in_each_partition(home: Path, tmp_path: Path, kafka_broker: Broker) -> None:
    """Of 10 and 4 records the first batch may read 7, which Spark shares out as 5 and 2."""
    topic = kafka_broker.topic()
    asked = {
        "address": kafka_broker.address,
        "topic": topic,
        "records": {"0": 10, "1": 4},
        "folder": str(tmp_path),
        "conf": {"spark.jars": connector(), "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"},
    }
    found = answer_of(SCRIPT, asked, home)
    of_partition = f"holdfast_source_lag_records/0/{topic}"
    assert found["half"] == {"holdfast_lag_records": 7, f"{of_partition}/0": 5, f"{of_partition}/1": 2}
    assert found["half_waits"] > 0
    assert found["all"] == {"holdfast_lag_records": 0, f"{of_partition}/0": 0, f"{of_partition}/1": 0}
    assert found["all_waits"] == 0
