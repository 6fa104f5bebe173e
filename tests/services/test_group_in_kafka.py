"""What Kafka's own client says of a consumer group to which queries commit, on a real broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import answer_of
from kafka_broker import connector

if TYPE_CHECKING:
    from kafka_broker import Broker

pytestmark = [pytest.mark.services, pytest.mark.spark]

SCRIPT = Path(__file__).parent / "jobs" / "group_in_kafka.py"


def test_a_group_has_what_was_read(home: Path, tmp_path: Path, kafka_broker: Broker) -> None:
    """Of 10 and 4 records the first batch may read 7, which Spark shares out as 5 and 2."""
    topics = [kafka_broker.topic() for _ in range(2)]
    asked = {
        "address": kafka_broker.address,
        "topics": topics,
        "records": {"0": 10, "1": 4},
        "folder": str(tmp_path),
        "conf": {"spark.jars": connector(), "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"},
    }
    found = answer_of(SCRIPT, asked, home)
    first = topics[0]
    assert found["half"] == {f"{first}/0": 5, f"{first}/1": 2}, found["watched"]
    assert found["all"] == {f"{first}/0": 10, f"{first}/1": 4}, found["watched"]
    assert found["job"] == {
        **{f"{topic}/{partition}": count for topic in topics for partition, count in (("0", 10), ("1", 4))}
    }, found["said"]
    assert found["guarded_code"] == 0
    assert found["guarded"] == found["all"]
    # A group that has a consumer of its own is left alone, and the query goes on.
    assert found["rows"] == 14
    assert found["taken"] == {}
    assert "cannot commit offsets to the consumer group" in found["told"]
    assert "check that the group has no consumers" in found["told"]
