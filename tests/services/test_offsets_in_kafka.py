"""A real query goes on from a checkpoint whose offsets in Kafka were moved: counted record by record."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import answer_of
from kafka_broker import connector

if TYPE_CHECKING:
    from kafka_broker import Broker

pytestmark = [pytest.mark.services, pytest.mark.spark]

SCRIPT = Path(__file__).parent / "jobs" / "moved_in_kafka.py"
# By partition, in the order of their offsets.
BEFORE = {"0": ["ann", "bob", "bob"], "1": ["cid"]}
AFTER = {"0": ["poison", "ann"], "1": ["dora"]}
# A topic that has what the first one has, and goes on otherwise.
ELSEWHERE = {"0": [*BEFORE["0"], "eve"], "1": [*BEFORE["1"], "fay"]}
# Another cluster: older records are gone there, and partitions have other numbers.
CLUSTER = {"0": ["cid", "gus"], "1": ["bob", "bob", "hal"]}
# Partition, offset, partition there, offset there: the second `bob` of 0 is behind the newest known record.
POINTS = [[0, 1, 1, 0], [1, 1, 0, 1]]


def test_a_query_goes_on_where_it_was_told_to(home: Path, tmp_path: Path, kafka_broker: Broker) -> None:
    asked = {
        "address": kafka_broker.address,
        "topics": [kafka_broker.topic() for _ in range(3)],
        "folder": str(tmp_path),
        "before": BEFORE,
        "after": AFTER,
        "elsewhere": ELSEWHERE,
        "cluster": CLUSTER,
        "points": POINTS,
        "conf": {"spark.jars": connector(), "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"},
    }
    found = answer_of(SCRIPT, asked, home)
    first = Counter(BEFORE["0"] + BEFORE["1"])
    assert found["first"] == first
    assert found["offsets"] == {"0": 3, "1": 1}
    # From record 1 of partition 0 on once more: both bobs.
    assert found["again"] == first + Counter(["bob", "bob"])
    # Without an offset partition 0 is read from its first record on.
    assert found["less"] == 3
    assert found["anew"] == first + Counter(BEFORE["0"])
    # All but the record that comes next there.
    assert found["past"] == first + Counter(["ann", "dora"])
    assert found["renamed"] == first + Counter(["eve", "fay"])
    # Partition 0 goes on behind the record that both clusters have: two bobs again, and what is new.
    assert found["translated"] == first + Counter(["bob", "bob", "hal", "gus"])
