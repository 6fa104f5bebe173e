"""Topics and brokers that are gone, on a real broker: one clear error each, and whose it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import answer_of
from kafka_broker import Broker, connector
from required import require

pytestmark = [pytest.mark.services, pytest.mark.spark]

SCRIPT = Path(__file__).parent / "jobs" / "bad_topics.py"


@pytest.fixture
def mortal_broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A broker of this test's own, which it may kill."""
    require("kafka", "java")
    broker = Broker(tmp_path_factory.mktemp("mortal"))
    yield broker
    broker.stop()


def test_what_is_gone_is_told(home: Path, tmp_path: Path, mortal_broker: Broker) -> None:
    asked = {
        "address": mortal_broker.address,
        "pid": mortal_broker.pid,
        "topic": mortal_broker.topic(),
        "folder": str(tmp_path),
        "conf": {"spark.jars": connector(), "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"},
    }
    found = answer_of(SCRIPT, asked, home)
    said = {case: (each.get("cause"), each["line"]) for case, each in found.items()}
    words = {
        "no_topic_to_read": ("source", "create the topic"),
        "topic_recreated": ("source", "`holdfast offsets set`"),
        "record_too_large": ("sink", "Kafka rejected a record of the batch"),
        "broker_gone_in_a_batch": ("sink", "no Kafka broker answers"),
        "broker_gone_at_start": ("sink", "no Kafka broker answers"),
        "broker_gone_to_read": ("source", "check that the brokers run"),
    }
    wrong = {
        case: said[case]
        for case, (cause, word) in words.items()
        if said[case][0] != cause or word not in said[case][1]
    }
    assert wrong == {}
    assert all("\n" not in line for _, line in said.values())
