"""Records of a real topic: those of a batch that ran again come once to readers that drop repeats."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import answer_of
from kafka_broker import connector

if TYPE_CHECKING:
    from kafka_broker import Broker

pytestmark = [pytest.mark.services, pytest.mark.spark]

SCRIPT = Path(__file__).parent / "jobs" / "written_to_kafka.py"
# The second batch has rows that are alike, and rows without a customer.
FIRST: list[list[object]] = [["ann", 1], ["bob", 2]]
SECOND: list[list[object]] = [["ann", 3], ["ann", 3], [None, 5], [None, 5], [None, 6], ["cid", 7]]
THIRD: list[list[object]] = [["bob", 8]]


def records(*batches: list[list[object]]) -> dict[str, int]:
    """What is expected of rows that are written so often, with the record of somebody else."""
    counts = Counter({"None foreign": 1})
    for customer, amount in (row for batch in batches for row in batch):
        # Spark's JSON leaves out what is null.
        fields = {"customer": customer, "amount": amount} if customer else {"amount": amount}
        counts[f"{customer} {json.dumps(fields, separators=(',', ':'))}"] += 1
    return dict(sorted(counts.items()))


def test_a_batch_that_ran_again_is_read_once(home: Path, tmp_path: Path, kafka_broker: Broker) -> None:
    asked = {
        "address": kafka_broker.address,
        "topic": kafka_broker.topic(),
        "folder": str(tmp_path),
        "batches": [FIRST, SECOND, THIRD],
        "conf": {"spark.jars": connector(), "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"},
    }
    found = answer_of(SCRIPT, asked, home)
    once = records(FIRST, SECOND, THIRD)
    assert found["no_topic"] == f"not-found: the topic {asked['topic']!r} does not exist"
    assert found["raw"] == records(FIRST, SECOND, SECOND, THIRD)
    assert found["batch"] == once
    assert found["stream"] == once
    assert found["consumer"] == once
    assert found["put_back"] == "conflict: the topic has batches that the checkpoint does not have"
    assert found["warned"] == [f"{asked['topic']} has rows of a different query, and this query adds its own"]
    assert found["forked"] == records(FIRST, SECOND, THIRD, FIRST, SECOND, THIRD)
