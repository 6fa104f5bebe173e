"""SIGKILL in the middle of a batch to a topic: its records are there twice, and readers take each once."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import answer_of
from kafka_broker import connector
from process_table import working_in
from running_job import PATIENCE_S, BatchLogs, kill_at, running, until

if TYPE_CHECKING:
    from kafka_broker import Broker

pytestmark = [pytest.mark.fault, pytest.mark.services, pytest.mark.spark]

SEED = 20260305
BATCHES, KILLED = 3, 1
ROWS = 30_000
READER = Path(__file__).parents[1] / "services" / "jobs" / "read_topic.py"
PROGRAM = """\
import holdfast as hf

SERVERS, TOPIC = {address!r}, {topic!r}


@hf.job(name="sent", checkpoint="checkpoint", trigger=hf.available_now(),
        restart=hf.exponential(initial="100ms", max="1s", same_failure=20))
def sent(spark):
    # The broker makes the topic.
    foreign = spark.createDataFrame([("foreign",)], "value string").write.format("kafka")
    foreign.option("kafka.bootstrap.servers", SERVERS).option("topic", TOPIC).save()
    orders = spark.readStream.schema("customer string, amount long")
    stream = orders.option("maxFilesPerTrigger", 1).json("orders")
    return hf.sink(stream).kafka(SERVERS, TOPIC, key="customer", ledger={ledger!r})
"""


@pytest.mark.parametrize("ledger", [None, "ledger.db"])
def test_a_driver_killed_while_it_sends_is_read_once(
    home: Path, tmp_path: Path, kafka_broker: Broker, ledger: str | None
) -> None:
    rng = random.Random(SEED)
    topic, logs = kafka_broker.topic(), BatchLogs(tmp_path / "checkpoint")
    (tmp_path / "orders").mkdir()
    expected: Counter[str] = Counter()
    for batch in range(BATCHES):
        # Few amounts: many rows of a batch are alike.
        rows = [{"customer": f"c{rng.randrange(50)}", "amount": rng.randrange(200)} for _ in range(ROWS)]
        lines = [json.dumps(row, separators=(",", ":")) for row in rows]
        (tmp_path / "orders" / f"{batch}.json").write_text("\n".join(lines))
        expected.update(lines)
    program = PROGRAM.format(address=kafka_broker.address, topic=topic, ledger=ledger)
    (tmp_path / "sent.py").write_text(program)
    conf = {"spark.jars": connector(), "spark.sql.shuffle.partitions": "4"}
    with running(tmp_path / "sent.py", tmp_path, conf=conf) as job:
        driver = job.driver()
        until(lambda: logs.newest >= KILLED, f"batch {KILLED} begins", PATIENCE_S)
        before = kafka_broker.size_of(topic)

        def sending() -> bool:
            return (
                logs.newest >= KILLED and logs.uncommitted and kafka_broker.size_of(topic) > before + 100_000
            )

        kill_at(driver, sending, "some of a batch is sent")
        until(lambda: len(logs.commits) == BATCHES, "the next driver ends its work", PATIENCE_S)
        ended = job.ended()
    assert (ended.code, ended.words) == (0, ""), f"seed {SEED}"
    asked = {
        "address": kafka_broker.address,
        "topic": topic,
        "folder": str(tmp_path),
        "conf": {**conf, "spark.ui.enabled": "false"},
    }
    found = answer_of(READER, asked, home)
    assert sum(found["raw"].values()) > BATCHES * ROWS
    assert found["batch"] == dict(sorted(expected.items()))
    assert found["consumer"] == found["batch"]
    assert working_in(tmp_path) == []
