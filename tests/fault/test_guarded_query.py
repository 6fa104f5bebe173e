"""A query that a platform starts and ends, guarded: real processes, signals and kills.

What comes out is held against counts of the words in plain Python.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from command import environment
from hdfs_cluster import Cluster
from other_sparks import OLDER, python_of
from running_job import JOBS, QueryLogs, until
from s3_gateway import CLOUD_JARS, S3A_JARS, Gateway

import holdfast as hf
from holdfast import savepoints
from holdfast.engine.session.java import find_java, java_home_for_spark
from holdfast.errors import Conflict
from holdfast.ownership.checkpoint_lease import lease_note
from holdfast.storage import open_storage
from holdfast.storage.successors import current_address

pytestmark = [pytest.mark.fault, pytest.mark.spark]

SOURCES = Path(__file__).parents[2] / "src"
SMALL = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
# The words of each file, which is a batch.
FILES = ("a a b", "b c", "a c c", "d a", "b b")


class Platform:
    """Starts the program again and again in one place, and ends it."""

    def __init__(
        self,
        place: Path,
        checkpoint: str = "",
        conf: Mapping[str, str] | None = None,
        python: Path = Path(sys.executable),
    ) -> None:
        self.place, self.checkpoint = place, checkpoint or str(place / "ck")
        self.python = python
        self.logs = QueryLogs(self.checkpoint)
        self.stack = ExitStack()
        self.files = 0
        (place / "in").mkdir()
        java = java_home_for_spark(find_java(os.environ), place / "java")
        (place / "spark-defaults.conf").write_text(
            "".join(f"{key} {value}\n" for key, value in {**SMALL, **(conf or {})}.items())
        )
        self.environ = {
            **environment(place / "home"),
            "JAVA_HOME": str(java),
            "PYSPARK_PYTHON": str(python),
            "SPARK_CONF_DIR": str(place),
            # An environment of an older Spark has Holdfast's base dependencies alone.
            "PYTHONPATH": str(SOURCES),
        }

    def start(self, *before: str, **settings: Any) -> subprocess.Popen[str]:
        """A program with these words before it, and these settings of the guard."""
        log = self.stack.enter_context((self.place / "log").open("a+"))
        program = [*(before or (str(self.python),)), str(JOBS / "guarded_query.py")]
        given = {"wait": "10m", "grace": "10m", **settings}
        started = subprocess.Popen(
            [*program, str(self.place), self.checkpoint, json.dumps(given)],
            env=self.environ,
            stdout=subprocess.DEVNULL,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        self.stack.callback(self.end, started)
        return started

    def end(self, process: subprocess.Popen[str]) -> None:
        """Whatever is left of a program."""
        for number in (process.pid, self.java_of(process.pid)):
            if number is not None and _is_there(number):
                os.kill(number, signal.SIGKILL)
        process.wait()

    def java_of(self, pid: int) -> int | None:
        noted = self.place / f"java-{pid}"
        return int(noted.read_text() or 0) or None if noted.exists() else None

    def bring(self, count: int = 1) -> None:
        """The next files."""
        for words in FILES[self.files : self.files + count]:
            hidden = self.place / "in" / f".{self.files}"
            hidden.write_text("".join(f'{{"word": "{word}"}}\n' for word in words.split()))
            # Spark takes files in the order of their times.
            os.utime(hidden, (1_000_000_000 + self.files,) * 2)
            hidden.rename(self.place / "in" / f"{self.files}.json")
            self.files += 1

    def open_gate(self) -> None:
        (self.place / "gate").touch()

    def close_gate(self) -> None:
        (self.place / "gate").unlink()

    def begun(self, batch: int, process: subprocess.Popen[str] | None = None) -> None:
        """Wait until a batch waits at the gate."""

        def waits() -> bool:
            assert process is None or process.poll() is None, self.said()
            return any((self.place / "begun").glob(f"{batch}-*"))

        until(waits, f"batch {batch} is under way", 300)

    def committed(self, batch: int, process: subprocess.Popen[str] | None = None) -> None:
        """Wait until a batch is committed."""

        def is_committed() -> bool:
            assert process is None or process.poll() is None, self.said()
            return batch in self.logs.commits

        until(is_committed, f"batch {batch} is committed", 300)

    def said(self) -> str:
        return (self.place / "log").read_text()

    def output(self) -> list[Mapping[str, Any]]:
        """What each batch has put out, by whom."""
        folder = self.place / "out"
        numbers = sorted(int(file.name) for file in folder.iterdir() if file.name.isdecimal())
        assert numbers == list(range(len(numbers)))
        return [json.loads((folder / str(number)).read_text()) for number in numbers]

    def check(self) -> None:
        """Each batch has put out the counts so far of the words in it."""
        counts: Counter[str] = Counter()
        expected = []
        for words in FILES[: self.files]:
            counts.update(words.split())
            expected.append({word: counts[word] for word in set(words.split())})
        assert [batch["rows"] for batch in self.output()] == expected
        assert self.logs.commits == set(range(self.files))


@pytest.fixture
def platform_at_s3(tmp_path: Path, s3_gateway: Gateway) -> Iterator[Platform]:
    """One whose checkpoint is in a bucket."""
    conf = s3_gateway.spark_conf(S3A_JARS, CLOUD_JARS)
    made = Platform(tmp_path, f"{s3_gateway.bucket().replace('s3:', 's3a:')}/jobs/words", conf)
    with made.stack:
        yield made


@pytest.fixture
def platform_on_hdfs(tmp_path: Path, hdfs_cluster: Cluster) -> Iterator[Platform]:
    """One whose checkpoint is on HDFS."""
    made = Platform(tmp_path, f"{hdfs_cluster.root()}/jobs/words")
    with made.stack:
        yield made


@pytest.fixture(params=("installed", *OLDER))
def platform(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Platform]:
    """One with the installed Spark, and with each older one in an environment of its own."""
    python = Path(sys.executable) if request.param == "installed" else python_of(request.param)
    made = Platform(tmp_path, python=python)
    with made.stack:
        yield made


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_owner_a_kill_and_an_orderly_stop(platform: Platform) -> None:
    first = platform.start()
    platform.bring()
    platform.begun(0, first)
    second = platform.start()
    until(lambda: "waiting for process" in platform.said(), "the second one waits", 300)
    first.kill()
    # The second one begins, and does the batch again that was broken off.
    until(lambda: any((platform.place / "begun").glob(f"0-{second.pid}")), "the second one has it", 300)
    second.send_signal(signal.SIGTERM)
    platform.open_gate()
    assert second.wait(300) == 0, platform.said()
    platform.check()
    assert [batch["process"] for batch in platform.output()] == [second.pid]


def test_what_takes_longer_than_its_grace_is_broken_off_and_done_again(platform: Platform) -> None:
    first = platform.start(grace="1s")
    platform.bring(2)
    platform.begun(0, first)
    first.send_signal(signal.SIGTERM)
    assert first.wait(300) == 143, platform.said()
    assert "exceeded the grace period and is interrupted" in platform.said()
    assert platform.logs.commits == set()
    platform.open_gate()
    second = platform.start()
    platform.committed(1)
    second.send_signal(signal.SIGINT)
    assert second.wait(300) == 0, platform.said()
    platform.check()


def test_sigterm_to_the_jvm_of_spark_submit_is_orderly(platform: Platform) -> None:
    submit = str(platform.python.parent / "spark-submit")
    started = platform.start(submit, "--master", "local[2]")
    platform.bring()
    platform.begun(0, started)
    os.kill(started.pid, signal.SIGTERM)  # the script has become the JVM, whose child Python is
    platform.open_gate()
    assert started.wait(300) == 0, platform.said()
    platform.check()


def test_a_frozen_owner_has_no_jvm_left_when_its_lease_is_over(platform: Platform) -> None:
    """Only Python stands still: its JVM would go on with batches."""
    platform.open_gate()
    leases = {"lease": "5s", "lease_at": str(platform.place / "leases")}
    first = platform.start(**leases)
    platform.bring(2)
    platform.committed(1)
    java = platform.java_of(first.pid)
    assert java is not None
    os.kill(first.pid, signal.SIGSTOP)
    second = platform.start(**leases)
    assert first.wait(300) == -signal.SIGKILL
    platform.bring(2)
    platform.committed(3)
    assert not _is_there(java)
    second.send_signal(signal.SIGTERM)
    assert second.wait(300) == 0, platform.said()
    platform.check()
    assert [batch["process"] for batch in platform.output()] == [first.pid] * 2 + [second.pid] * 2


def test_a_damaged_checkpoint_is_not_built_on(platform: Platform) -> None:
    platform.open_gate()
    first = platform.start()
    platform.bring(2)
    platform.committed(1)
    first.send_signal(signal.SIGTERM)
    assert first.wait(300) == 0
    damaged = next((platform.place / "ck" / "state" / "0" / "0").glob("2.delta"))
    damaged.write_bytes(damaged.read_bytes()[:-5])
    platform.bring()
    second = platform.start()
    assert second.wait(300) == 6, platform.said()
    assert damaged.name in platform.said()
    assert platform.logs.offsets == {0, 1}


@pytest.mark.services
def test_in_a_bucket_the_lease_beside_the_checkpoint_says_whose_it_is(platform_at_s3: Platform) -> None:
    check_lease_beside_the_checkpoint(platform_at_s3, lease="15s")


@pytest.mark.services
def test_on_hdfs_the_lease_beside_the_checkpoint_says_whose_it_is(platform_on_hdfs: Platform) -> None:
    # NameNode and DataNode start their code on the same cores: under load a renewal took longer than 15 s.
    check_lease_beside_the_checkpoint(platform_on_hdfs, lease="60s")


def check_lease_beside_the_checkpoint(platform: Platform, lease: str) -> None:
    """Kill an owner within a batch, and replace the checkpoint after the next one has ended in order."""
    catalog = platform.checkpoint.replace("jobs/words", "savepoints")
    settings = {"lease": lease, "savepoints": catalog, "savepoint_every": "1s"}
    platform.open_gate()
    first = platform.start(**settings)
    platform.bring()
    platform.committed(0, first)
    with pytest.raises(Conflict, match="a different process owns the checkpoint"):
        savepoints.rescale(platform.checkpoint, f"{platform.checkpoint}-wider", partitions=3, stopped=True)
    platform.close_gate()
    platform.bring()
    platform.begun(1, first)
    first.kill()
    second = platform.start(**settings)
    until(lambda: any((platform.place / "begun").glob(f"1-{second.pid}")), "the second one has it", 300)
    platform.open_gate()
    platform.committed(1)
    until(lambda: savepoints.list(catalog) != (), "a savepoint is taken", 300)
    platform.bring()
    platform.committed(2)
    second.send_signal(signal.SIGTERM)
    assert second.wait(300) == 0, platform.said()
    platform.check()
    assert [batch["process"] for batch in platform.output()] == [first.pid, second.pid, second.pid]
    assert savepoints.verify(savepoints.list(catalog)[0].uri, deep=True).ok
    # Who leaves in order is not waited for.
    assert lease_note(open_storage(platform.checkpoint)) is None
    # The first owner may have been killed within a take.
    savepoints.gc(catalog, older_than="0s")
    # The program keeps its address, and continues from the successor that has no `a`.
    hf.erase("a", everywhere=catalog, checkpoint=platform.checkpoint, stopped=True)
    third = platform.start(**settings)
    platform.bring()
    until((platform.place / "out" / "3").exists, "the successor is in use", 300)
    third.send_signal(signal.SIGTERM)
    assert third.wait(300) == 0, platform.said()
    assert platform.output()[3]["rows"] == {"d": 1, "a": 1}
    assert current_address(platform.checkpoint) == f"{platform.checkpoint}.r1"
