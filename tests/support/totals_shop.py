"""A running job whose totals are known, and code that takes its place."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from command import PROGRAM
from process_table import working_in
from running_job import until
from small_session import small_session

import holdfast as hf
from holdfast.jobs.registry.client import JobStatus

POISON = 1_000_000
OLD = """
import holdfast as hf
from pyspark.sql import functions as F
from pyspark.sql.types import LongType


@F.udf(LongType())
def checked(amount):
    return amount


@hf.job(name="totals", checkpoint="checkpoint", trigger="100 ms", restart=hf.fixed_delay(3, "1 s"))
def totals(spark, folder="in"):
    rows = spark.readStream.schema("account string, amount long").option("maxFilesPerTrigger", 1)
    rows = rows.json(folder).withColumn("amount", checked("amount"))
    sums = rows.groupBy("account").agg(F.count("*").alias("orders"), F.sum("amount").alias("total"))
    return hf.sink(sums).upsert("totals", keys=["account"], ledger="sqlite:///totals.db")
"""
KEEPS = OLD.replace("100 ms", "150 ms")
# Its state has one more column, and its output the same ones.
CONVERTS = OLD.replace('alias("total"))', 'alias("total"), F.max("amount").alias("largest"))').replace(
    "    return hf",
    '    sums = sums.withColumn("total", F.greatest("total", "largest")).drop("largest")\n    return hf',
)
REFUSED = OLD.replace('groupBy("account")', 'groupBy("account", F.col("amount") % 2)')
# Spark compares no code of Python functions.
FAILS = OLD.replace(
    "    return amount\n",
    f"    if amount >= {POISON}:\n        raise ValueError('poison')\n    return amount\n",
)


class Shop:
    """The job `totals` in a directory: the files that it reads, and what its table must have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = 0
        self.expected: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        (folder / "in").mkdir()

    def feed(self, least: int = 1) -> None:
        """Write one more file, with amounts of at least this much."""
        rows = [(f"a{number % 3}", least + self.files + number) for number in range(5)]
        for account, amount in rows:
            self.expected[account][0] += 1
            self.expected[account][1] += amount
        text = "".join(json.dumps({"account": account, "amount": amount}) + "\n" for account, amount in rows)
        new = self.folder / f".{self.files}"
        new.write_text(text)
        new.rename(self.folder / "in" / f"{self.files:04}.json")
        self.files += 1

    def start(self) -> JobStatus:
        (self.folder / "old.py").write_text(OLD)
        return hf.jobs.start("old.py", conf=small_session("1g"), master="local[2]")

    def table(self) -> dict[str, list[int]]:
        with closing(sqlite3.connect(self.folder / "totals.db")) as database:
            rows = database.execute("SELECT account, orders, total FROM totals").fetchall()
        return {account: [orders, total] for account, orders, total in rows}

    def check(self) -> None:
        """Feed one more file, and compare the table with what was fed once that is read."""
        self.feed()
        wanted = sum(orders for orders, _ in self.expected.values())
        until(lambda: sum(orders for orders, _ in self.table().values()) >= wanted, "all is read")
        assert self.table() == dict(self.expected)

    def upgrade(self, *words: str) -> subprocess.CompletedProcess[str]:
        with self.upgrading(*words) as process:
            out, err = process.communicate()
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def upgrading(self, *words: str) -> subprocess.Popen[str]:
        command = [PROGRAM, "upgrade", "totals", *words, "--json"]
        return subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @property
    def record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.folder / "home/jobs/totals/upgrade.json").read_text())
        return record

    def did(self, step: str) -> bool:
        with suppress(FileNotFoundError):
            return any(done["step"] == step for done in self.record["steps"])
        return False


def shop_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Yield a shop; at the end no process works in its directory any more."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    yield Shop(tmp_path)
    for pid in working_in(tmp_path):
        if pid != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    until(lambda: not [pid for pid in working_in(tmp_path) if pid != os.getpid()], "all has ended")


class Feeding:
    """Feeds the shop on a thread while an upgrade runs."""

    def __init__(self, shop: Shop, seconds: float = 3.0) -> None:
        self._shop, self._seconds = shop, seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            self._shop.feed()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
