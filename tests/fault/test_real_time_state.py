"""Real-time mode with state, which Spark has since 4.3: every verb on a query that runs, and a stop in order.

What the state must be is counted in plain Python.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command import environment
from kafka_broker import connector
from other_sparks import python_of
from running_job import QueryLogs, until

import holdfast as hf
from holdfast import checkpoints, savepoints
from holdfast.config.spark_versions import installed, minor
from holdfast.formats.logs.batch_logs import parse_offsets

if TYPE_CHECKING:
    from kafka_broker import Broker

pytestmark = [pytest.mark.fault, pytest.mark.spark]

SCRIPT = Path(__file__).parent / "jobs" / "real_time_state.py"
SOURCES = Path(__file__).parents[2] / "src"
RECORDS = (
    [("ann", "1"), ("bob", "1"), ("ann", "1"), ("cyd", "2")],
    [("ann", "2"), ("bob", "1"), ("dan", "1")],
    [("cyd", "2"), ("cyd", "3"), ("ann", "1")],
)


def python_with_state_in_real_time() -> Path:
    return Path(sys.executable) if minor(installed("pyspark") or "0.0") >= (4, 3) else python_of("4.3")


class Live:
    """A program with one query, started again and again on one topic."""

    def __init__(self, folder: Path, broker: Broker, operator: str) -> None:
        self.folder, self.operator = folder, operator
        self.checkpoint = folder / "ck"
        self.brought = 0
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            self.port = int(server.getsockname()[1])
        (folder / "in").mkdir()
        self.asked = {
            "address": broker.address,
            "topic": broker.topic(),
            "output": broker.topic(),
            "folder": str(folder),
            "operator": operator,
            "port": self.port,
            "conf": {
                "spark.jars": connector(),
                "spark.sql.shuffle.partitions": "2",
                "spark.ui.enabled": "false",
            },
        }

    def start(self) -> subprocess.Popen[bytes]:
        python = python_with_state_in_real_time()
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(python), str(SCRIPT), json.dumps({**self.asked, "checkpoint": str(self.checkpoint)})],
                env={
                    **environment(self.folder / "home"),
                    "PYTHONPATH": str(SOURCES),
                    "PYSPARK_PYTHON": str(python),
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def bring(self) -> None:
        hidden = self.folder / "in" / f".{self.brought}"
        hidden.write_text(json.dumps(RECORDS[self.brought]))
        hidden.rename(self.folder / "in" / f"{self.brought}.json")
        self.brought += 1

    def read(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until a committed batch ends behind all records that were brought."""
        total = sum(map(len, RECORDS[: self.brought]))

        def is_read() -> bool:
            assert process.poll() is None, self.said()
            newest = max(QueryLogs(self.checkpoint).commits, default=None)
            if newest is None:
                return False
            path = self.checkpoint / "offsets" / str(newest)
            (end,) = parse_offsets(path.read_bytes(), str(path)).offsets.values()
            return bool(sum(json.loads(end or "{}").get(self.asked["topic"], {}).values()) == total)

        until(is_read, f"{total} records are read", 300)

    def said(self) -> str:
        return (self.folder / "log").read_text()[-6000:]

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
        totals: dict[str, float] = {}
        for line in lines:
            name = line.partition("{")[0]
            totals[name] = totals.get(name, 0) + float(line.rpartition(" ")[2])
        return totals

    def expected(self) -> Counter[tuple[Any, ...]]:
        records = [record for part in RECORDS[: self.brought] for record in part]
        if self.operator == "aggregate":
            return Counter(Counter(who for who, _ in records).items())
        return Counter(set(records))

    def rows(self, at: Path | str) -> Counter[tuple[Any, ...]]:
        return Counter(
            (*entry.key.values(), *entry.value.values()) for entry in hf.state(at).scan(self.operator)
        )


@pytest.mark.parametrize("operator", ["aggregate", "dedupe"])
def test_every_verb_on_a_query_with_state_in_real_time_mode(
    operator: str, tmp_path: Path, kafka_broker: Broker
) -> None:
    live = Live(tmp_path, kafka_broker, operator)
    live.bring()
    process = live.start()
    try:
        live.read(process)
        assert live.rows(live.checkpoint) == live.expected()
        # While it runs: nothing is damaged, and a savepoint has the state of its batch.
        assert checkpoints.verify(live.checkpoint).problems == ()
        saved = savepoints.take(live.checkpoint, tmp_path / "sp", home=tmp_path / "takes")
        at_savepoint = live.expected()
        assert savepoints.verify(saved.uri, deep=True).ok
        assert live.rows(saved.uri) == at_savepoint
        live.bring()
        live.read(process)
        assert live.rows(live.checkpoint) == live.expected()
        assert checkpoints.verify(live.checkpoint).problems == ()

        def has_caught_up() -> bool:
            metrics = live.metrics()
            return metrics["holdfast_lag_records"] == 0 and metrics["holdfast_batches_total"] >= 2

        until(has_caught_up, "nothing is left to read", 120)
        until((tmp_path / "alerts").exists, "an alert", 120)
        # The state is larger than its limit. A batch of the whole interval is no slow one.
        assert {line.split()[0] for line in (tmp_path / "alerts").read_text().splitlines()} == {"state_size"}

        # Killed in a batch, it goes on: records of the batch are read again, and counted once.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        live.bring()
        process = live.start()
        live.read(process)
        assert live.rows(live.checkpoint) == live.expected()

        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0, live.said()
        logs = QueryLogs(live.checkpoint)
        assert logs.offsets == logs.commits
        assert checkpoints.verify(live.checkpoint).problems == ()

        # From the savepoint it reads on behind the first records.
        live.checkpoint = tmp_path / "restored"
        savepoints.restore(saved.uri, live.checkpoint)
        assert live.rows(live.checkpoint) == at_savepoint
        process = live.start()
        live.read(process)
        assert live.rows(live.checkpoint) == live.expected()
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0, live.said()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
