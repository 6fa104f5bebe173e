"""The guide from Kafka to Delta as a newcomer follows it: a broker, a kill, new code while orders come in."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command import Holdfast, answer_of
from delta_rows import rows
from kafka_broker import connector
from required import missing_service
from running_job import BatchLogs, RunningJob, kill_at, running, until

from holdfast import savepoints
from holdfast.engine.session.jars import has_build

if TYPE_CHECKING:
    from kafka_broker import Broker

pytestmark = [
    pytest.mark.fault,
    pytest.mark.services,
    pytest.mark.spark,
    pytest.mark.skipif(not has_build("delta"), reason="no Delta build works with this Spark"),
]

SEED = 20260305
# Two queries start, each with a join and keyed state, beside a producer.
PATIENCE_S = 200.0
TESTS = Path(__file__).parents[1]
GUIDE = TESTS.parent / "docs" / "guides" / "kafka-to-delta.md"
PRODUCER = TESTS / "services" / "jobs" / "orders_producer.py"
READER = TESTS / "services" / "jobs" / "read_topic.py"
BLOCK = re.compile(r"^<!-- (job|edit) spending\.py -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = 'output="customer string, orders long, paid long'


def codes(address: str) -> tuple[str, str]:
    """The job of the guide, and what it becomes."""
    blocks = dict(BLOCK.findall(GUIDE.read_text(encoding="utf-8")))
    before = blocks["job"].replace("broker:9092", address)
    begins, ends = before.index("class Spending("), before.index("\n\ndef topic(")
    after = before[:begins] + blocks["edit"] + before[ends:]
    assert after.count(OUTPUT) == 1
    return before, after.replace(OUTPUT, f"{OUTPUT}, mean long")


@contextmanager
def producing(folder: Path, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody who orders and pays until the file `enough` is there."""
    asked = {"address": address, "seed": SEED, "folder": str(folder), "jars": connector()}
    process = subprocess.Popen([sys.executable, str(PRODUCER), json.dumps(asked)], cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def orders(folder: Path) -> list[dict[str, Any]]:
    """The orders that were paid."""
    sent = folder / "sent.jsonl"
    whole = sent.read_text().rpartition("\n")[0] if sent.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


def totals(paid: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    count: Counter[str] = Counter()
    amount: Counter[str] = Counter()
    for order in paid:
        count[order["customer"]] += 1
        amount[order["customer"]] += order["amount"]
    return Counter((customer, count[customer], amount[customer]) for customer in count)


def begun(job: RunningJob, folder: Path) -> int:
    """The driver, once the table has rows."""
    driver = job.driver()
    logs = list((folder / "home").glob("jobs/spending/driver-*.log"))
    try:
        job.until((folder / "tables" / "spending" / "_delta_log").exists, "a table", PATIENCE_S)
    except AssertionError:
        if any("unresolved dependency" in log.read_text() for log in logs):
            missing_service("the jars of Delta and Kafka cannot be fetched from here")
        raise
    return driver


def test_orders_go_to_delta_over_a_kill_and_an_upgrade(
    holdfast: Holdfast, home: Path, tmp_path: Path, kafka_broker: Broker
) -> None:
    address, table = kafka_broker.address, tmp_path / "tables" / "spending"
    before, after = codes(address)
    job_file = tmp_path / "spending.py"
    job_file.write_text(before)
    logs = {name: BatchLogs(tmp_path / "checkpoints" / "spending" / name) for name in ("table", "feed")}

    with producing(tmp_path, address) as producer:
        until(lambda: len(orders(tmp_path)) > 40, "the first orders", PATIENCE_S)
        with running(job_file, tmp_path) as job:
            driver = begun(job, tmp_path)
            job.until(lambda: len(logs["table"].commits) > 1, "the table gets batches", PATIENCE_S)
            kill_at(driver, lambda: logs["table"].uncommitted, "a batch is under way")
            done = max(logs["table"].commits)
            job.until(lambda: max(logs["table"].commits) > done + 1, "another driver goes on", PATIENCE_S)
            job.until(lambda: len(logs["feed"].commits) > 1, "so does the feed", PATIENCE_S)
            stopped = holdfast(
                "stop",
                "spending",
                "--savepoint",
                "savepoints",
                "--home",
                "home",
                "--json",
                timeout=PATIENCE_S,
            )
            assert stopped.returncode == 0, stopped.stderr
            assert job.ended().code == 0
        taken = {each["query"]: each["savepoint"] for each in json.loads(stopped.stdout)["savepoints"]}
        assert set(taken) == {"table", "feed"}
        for uri in taken.values():
            assert savepoints.verify(uri, deep=True).ok

        job_file.write_text(after)
        checked = holdfast("check", "spending.py", "--query", "table", "--against", taken["table"], "--json")
        assert checked.returncode == 0, checked.stderr
        verdicts = {state["state"]: state["verdict"] for state in json.loads(checked.stdout)["states"]}
        assert set(verdicts.values()) == {"MAP", "NEW"}, verdicts

        at_restart = len(orders(tmp_path))
        new = {"checkpoint.storage": "checkpoints/next"}
        with running(job_file, tmp_path, settings=new, savepoints=taken) as job:
            job.driver()
            job.until(lambda: len(orders(tmp_path)) > at_restart + 40, "orders after the upgrade", PATIENCE_S)
            (tmp_path / "enough").touch()
            assert producer.wait(PATIENCE_S) == 0
            paid = orders(tmp_path)
            expected = totals(paid)
            job.until(lambda: rows(table, "customer", "orders", "paid") == expected, "all orders", PATIENCE_S)
            job.until(lambda: read(kafka_broker, home, tmp_path) == feed(paid), "all of the feed", PATIENCE_S)
            assert holdfast("stop", "spending", "--home", "home", timeout=PATIENCE_S).returncode == 0
            assert job.ended().code == 0
    # The kill came before the column, the last batch after it.
    assert rows(table, "customer", "orders", "paid") == expected, f"seed {SEED}"
    means = {row[0]: row[1] for row in rows(table, "customer", "mean")}
    late = {order["customer"] for order in paid[at_restart:]}
    wanted = {customer: amount // count for customer, count, amount in expected}
    assert {customer: means[customer] for customer in late} == {each: wanted[each] for each in late}


def feed(paid: list[dict[str, Any]]) -> dict[str, int]:
    lines = (
        json.dumps(
            {"order_id": order["order_id"], "customer": order["customer"], "paid": order["amount"]},
            separators=(",", ":"),
        )
        for order in paid
    )
    return dict(sorted(Counter(lines).items()))


def read(broker: Broker, home: Path, folder: Path) -> dict[str, int]:
    """What a reader that drops repeats makes of the feed."""
    conf = {"spark.jars": connector(), "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    asked = {"address": broker.address, "topic": "paid", "folder": str(folder), "conf": conf}
    found = answer_of(READER, asked, home)
    assert found["batch"] == found["consumer"]
    return dict(found["consumer"])
