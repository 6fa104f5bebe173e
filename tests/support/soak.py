"""Hours of the bank under seeded faults: `make soak HOURS=… SEED=…` runs this and writes a report.

One job with two queries and two sinks runs as `holdfast run`, on a small disk where root can mount one. The
main thread brings about one fault after another; a thread feeds transfers, and another one audits at random
instants, also in the middle of a fault. After each fault the job must commit new batches. At the end every
transfer is in the journal once, and every window in the Delta table is right.

The faults follow from the seed: the same seed gives the same faults, arguments and waits in the same order,
and `--faults 17,18` brings about these numbers only. A fault hits whatever the job does at that moment, which
no seed decides. All that happens is a line of `soak.jsonl` in the directory of the run.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import httpx
from bank_audit import (
    ACCOUNTS,
    OPENING,
    Books,
    Town,
    audit_journal,
    audit_state,
    audit_volume,
    files_read,
    newest_commit,
)
from command import PROGRAM
from damages import DAMAGES
from killing import forked
from loopback import free_ports
from proof_report import _commit, _machine, kept_by_hand
from running_job import JOBS, RunningJob, freeze, in_group, processes, until
from small_disk import fill, small_disk

import holdfast as hf
from holdfast.errors import HoldfastError

ROOT: Final = Path(__file__).parents[2]
REPORT: Final = ROOT / "docs" / "proof" / "soak.md"
QUERIES: Final = ("accounts", "volume")
DISK_MB: Final = 512
LEASE_S: Final = 3
AHEAD: Final = 5
CONF: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "5",
}
_EXTRA: Final = "    sent = hf.value("
_PASS_ON: Final = "        state.sent += event.amount\n"

# A checkpoint that is being exchanged is missing for an instant, on a busy machine for longer.
_LOOKS: Final = 40

Args = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the plan: its number, after how long it comes, and with what."""

    number: int
    name: str
    wait_s: float
    args: Args


def plan(seed: int) -> Iterator[Fault]:
    """Yield the faults of a seed; each name comes once in every round."""
    number = 0
    while True:
        names = sorted(FAULTS)
        random.Random(f"{seed}/{number}").shuffle(names)
        for name in names:
            chance = random.Random(f"{seed}/{number}/{name}")
            yield Fault(number, name, round(chance.uniform(0, 4), 2), FAULTS[name][1](chance))
            number += 1


class Log:
    """What happens, as lines of JSON."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()
        self.begun = time.monotonic()

    def line(self, **facts: Any) -> None:
        """Write a line."""
        with self._lock:
            at = round(time.monotonic() - self.begun, 2)
            self._file.write(json.dumps({"at": at, **facts}, default=str) + "\n")


class Auditor:
    """Looks at the bank at random instants, on a thread of its own.

    Args:
        run: The run that it looks at.
    """

    def __init__(self, run: Soak) -> None:
        self._run = run
        self._chance = random.Random(f"{run.seed}/auditor")
        self._over = threading.Event()
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.failure: BaseException | None = None
        self.done: Counter[str] = Counter()
        self.again: Counter[str] = Counter()
        self.looks: dict[str, Callable[[], object]] = {
            "state of the newest batch": lambda: audit_state(run.town, run.accounts),
            "state of an older batch": self._older,
            "one account": self._one,
            "sum by SQL": self._sql,
            "journal": lambda: audit_journal(run.town, run.out / "journal.db"),
            "journal by batch": lambda: audit_journal(run.town, run.out / "journal.db", run.accounts),
            "windows": lambda: audit_volume(run.town, run.out / "volume", run.written),
        }

    def __enter__(self) -> Auditor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Do not look while this lasts."""
        with self._looking:
            yield

    def check(self) -> None:
        """Raise what it has found."""
        if self.failure is not None:
            raise self.failure

    def _work(self) -> None:
        while not self._over.wait(self._chance.uniform(0.2, 3)):
            name = self._chance.choice(sorted(self.looks))
            with self._looking:
                try:
                    self._look(name)
                except BaseException as error:
                    self._run.log.line(failure=name, error="".join(traceback.format_exception(error)))
                    self._run.keep_evidence()
                    self.failure = error
                    return

    def _look(self, name: str) -> None:
        """Look; a checkpoint that is being exchanged or cleaned up is looked at again."""
        for attempt in range(_LOOKS):
            if newest_commit(self._run.accounts) < 2:
                return
            try:
                found = self.looks[name]()
            except (FileNotFoundError, hf.NotFound) as error:
                if attempt == _LOOKS - 1:
                    raise
                self.again[f"{name}: {type(error).__name__}"] += 1
                self._run.log.line(again=name, error=str(error))
                if self._over.wait(0.5):
                    return
            else:
                self.done[name] += 1
                self._run.log.line(audit=name, found=found)
                return

    def _older(self) -> int:
        newest = newest_commit(self._run.accounts)
        return audit_state(
            self._run.town, self._run.accounts, newest - self._chance.randrange(min(newest, 8))
        )

    def _one(self) -> str:
        """One account by its key: what it has, as the model says."""
        account = f"a{self._chance.randrange(ACCOUNTS)}"
        states = hf.state(self._run.accounts)
        balance = states.get("accounts.balance", account)
        pending = states.get("accounts.pending", account)
        have = sum(entry.value["balance"] for entry in balance.entries) if balance.entries else OPENING
        have += sum(entry.value["pending"] for entry in pending.entries)
        files = files_read(self._run.accounts, states.batch)
        wanted = OPENING + self._run.town.worth(files)[account]
        assert have == wanted, f"{account} has {have} after {files} files, not {wanted}"
        return account

    def _sql(self) -> int:
        query = (
            f"select (select sum(balance - {OPENING}) from accounts.balance)"
            " + coalesce((select sum(pending) from accounts.pending), 0) as total"
        )
        ((total,),) = [tuple(row.values()) for row in hf.state(self._run.accounts).sql(query).to_pylist()]
        assert total == 0, f"{total} too much by SQL"
        return int(total)


class Soak:
    """A run: the job, what it reads and writes, and what is done to it.

    Args:
        folder: A new directory.
        seed: The seed of the input and of the faults.
        log: What happens.
    """

    def __init__(self, folder: Path, seed: int, log: Log, disk: Path) -> None:
        self.folder, self.seed, self.log, self.disk = folder, seed, log, disk
        self.town = Town(seed)
        self.written = 0
        self.out, self.home = disk / "out", folder / "home"
        self.catalog = disk / "savepoints"
        self.program = folder / "bank.py"
        self.program.write_text((JOBS / "bank.py").read_text())
        self.out.mkdir()
        self.version = 1
        self.port = 0
        self.job: RunningJob | None = None
        self.faults: Counter[str] = Counter()
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self.samples: list[dict[str, float]] = []
        self.auditor = Auditor(self)
        self._feeding, self._pause = threading.Event(), threading.Event()
        self._feeder = threading.Thread(target=self._feed, daemon=True)

    @property
    def accounts(self) -> Path:
        """The checkpoint with the money."""
        return self.checkpoint("accounts")

    def checkpoint(self, query: str) -> Path:
        """The checkpoint of a query."""
        return self.disk / "checkpoint" / query

    def running(self) -> RunningJob:
        """The job, which runs."""
        assert self.job is not None
        return self.job

    def make(self, *options: str, home: str = "home", **environ: str) -> RunningJob:
        """Start a supervisor."""
        (self.port,) = free_ports(1)
        settings = {"checkpoint.storage": str(self.disk / "checkpoint"), "given": str(self.folder / "in")}
        before = {name: os.environ.get(name) for name in environ}
        os.environ.update(environ)
        try:
            return RunningJob(
                self.program,
                self.folder,
                home=self.folder / home,
                settings={**settings, "out": str(self.out)},
                conf=CONF,
                port=self.port,
                options=["--on-damage", "batch", "--savepoint-dir", str(self.catalog), *options],
            )
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def start(self, *options: str) -> None:
        """Start the job."""
        self.job = self.make(*options)

    def stop(self) -> None:
        """Stop the job between two batches."""
        job = self.running()
        os.kill(job.pid, signal.SIGTERM)
        ended = job.ended()
        self.job = None
        assert ended.code == 0, f"the job ended with {ended.code}: {ended.words[-3000:]}"

    def driver(self) -> int:
        """The newest driver that runs the queries."""
        return int([each for each in self.running().events if each.get("event") == "starting"][-1]["pid"])

    def read(self, query: str = "accounts") -> int:
        """How many files the committed batches have read."""
        checkpoint = self.checkpoint(query)
        with suppress(FileNotFoundError, IndexError, json.JSONDecodeError):
            newest = newest_commit(checkpoint)
            return files_read(checkpoint, newest) if newest >= 0 else 0
        return 0

    def go_on(self, files: int = 1) -> None:
        """Wait until both queries have committed new files."""
        wanted = {query: self.read(query) + files for query in QUERIES}
        self.until(
            lambda: all(self.read(query) >= wanted[query] for query in QUERIES),
            f"batches are committed up to {wanted}",
        )

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something holds while the job runs and the auditor has found nothing."""

        def reached() -> bool:
            # Each look reads logs of Spark, on cores that the job needs.
            self._pause.wait(0.2)
            self.auditor.check()
            return condition()

        self.running().until(reached, what)

    def verb(self, *words: str, code: int = 0) -> dict[str, Any]:
        """Run a command of Holdfast; what it printed as JSON."""
        said = subprocess.run(
            [PROGRAM, *words, "--json", "--home", str(self.home)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == code, f"{words} ended with {said.returncode}: {said.stdout}{said.stderr}"
        return dict(json.loads(said.stdout)) if said.stdout else {}

    def feed(self, feeding: bool) -> None:
        """Let transfers come, or no more of them."""
        if feeding:
            self._feeder.start()
        else:
            self._feeding.set()
            self._feeder.join()

    def _feed(self) -> None:
        while not self._feeding.wait(0.3):
            if self.written - min(self.read(query) for query in QUERIES) < AHEAD:
                self.town.write(self.folder / "in", self.written)
                self.written += 1

    def keep_evidence(self) -> None:
        """Copy the checkpoints and sinks as they are."""
        kept = self.folder / f"failed-{int(time.monotonic() - self.log.begun)}"
        for name in ("checkpoint", "out"):
            with suppress(shutil.Error):
                shutil.copytree(self.disk / name, kept / name, dirs_exist_ok=True)

    def sample(self) -> None:
        """Measure memory, descriptors, files and bytes."""
        supervisor = self.running().pid
        group = [each.pid for each in in_group(self.driver())]
        found: dict[str, float] = {"at": round(time.monotonic() - self.log.begun, 1)}
        found["supervisor MB"], found["supervisor descriptors"] = measured([supervisor])
        found["driver MB"], found["driver descriptors"] = measured(group)
        for name, place in (
            ("accounts", self.accounts),
            ("volume", self.checkpoint("volume")),
            ("home", self.home),
            ("catalog", self.catalog),
        ):
            sizes = list(sizes_below(place))
            found[f"{name} files"], found[f"{name} MB"] = len(sizes), round(sum(sizes) / 1e6, 2)
        used = shutil.disk_usage(self.disk)
        found["disk MB"] = round(used.used / 1e6, 1)
        found["files read"] = self.read()
        self.samples.append(found)
        self.log.line(sample=found)

    # The faults. Each returns when it has passed, and what it has seen.

    def kill_driver(self, wait_s: float) -> None:
        """SIGKILL to the driver with its JVM."""
        time.sleep(wait_s)
        with suppress(ProcessLookupError):
            os.killpg(self.driver(), signal.SIGKILL)

    def kill_workers(self) -> int:
        """SIGKILL to Spark's Python workers."""
        workers = list(forked(self.folder))
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(workers)

    def kill_supervisor(self, standby: bool) -> None:
        """SIGKILL to the supervisor; another one starts at once."""
        job = self.running()
        job.kill()
        self.start(*(["--standby"] if standby else []))
        self.running().await_event("running")
        job.close()

    def freeze_driver(self, seconds: float) -> None:
        """SIGSTOP to the driver and its JVM for longer than a lease."""
        driver = self.driver()
        try:
            freeze(driver)
            time.sleep(seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(driver, signal.SIGCONT)

    def standby_takes_over(self) -> None:
        """A killed driver whose standby driver is ready."""
        self.stop()
        self.start("--standby")
        job = self.running()
        ready = job.await_event("standby-ready")["pid"]
        os.killpg(self.driver(), signal.SIGKILL)
        job.until(lambda: self.driver() == ready, "the standby driver takes over")
        self.go_on()
        self.stop()
        self.start()

    def leader_is_frozen(self) -> None:
        """A supervisor frozen with its driver: another one is elected; then the first thaws."""
        self.stop()
        elections = {"HOLDFAST_HA": str(self.folder / "elections"), "HOLDFAST_LEASE": f"{LEASE_S}s"}
        leader = self.make(home="home-a", **elections)
        with ExitStack() as stack:
            stack.callback(leader.close)
            leader.await_event("batch")
            self.job = successor = self.make(home="home-b", **elections)
            successor.await_event("standby")
            driver = leader.driver()
            with suppress(ProcessLookupError):
                freeze(driver)
            os.kill(leader.pid, signal.SIGSTOP)
            successor.await_event("batch")
            until(lambda: not in_group(driver), "the frozen driver is ended")
            os.kill(leader.pid, signal.SIGCONT)
            leader.await_event("deposed")
            os.kill(leader.pid, signal.SIGTERM)
            assert leader.ended().code == 0
            self.stop()
        shutil.rmtree(self.folder / "elections")
        self.start()

    def fill_disk(self, seconds: float) -> None:
        """A full disk below checkpoints and sinks; then there is room again."""
        rest = fill(self.disk)
        time.sleep(seconds)
        rest.unlink()

    def rescale(self, partitions: int) -> str:
        """Rescale the running job."""
        job = self.running()
        (had, *_) = [one.partitions for one in hf.state(self.accounts).operators()]
        partitions = partitions if partitions != had else partitions % 4 + 1
        before = len([each for each in job.events if each.get("event") == "rescaled"])
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60) as client:
            (found,) = client.get("/jobs").json()["jobs"]
            requirements = f"/jobs/{found['id']}/resource-requirements"
            asked = {
                name: {"parallelism": {"upperBound": partitions}} for name in client.get(requirements).json()
            }
            answer = client.put(requirements, json=asked)
        if answer.status_code == 409:
            return answer.text[:200]
        assert answer.is_success, answer.text
        event = job.await_event("rescaled", before + 1)
        self.go_on()
        for replaced in self.disk.glob("checkpoint/*.before-*"):
            shutil.rmtree(replaced)
        for query in QUERIES:
            for operator in hf.state(self.checkpoint(query)).operators():
                assert operator.partitions == partitions, (query, operator.partitions, event)
        return str(event["text"])

    def restart(self) -> float:
        """A new driver in place of the old one, which is warm before it."""
        self.running().await_event("batch")
        return float(self.verb("restart", "bank").get("pause_ms", -1))

    def savepoints(self) -> list[int]:
        """Take savepoints of both queries; verify and read them, and forks of them."""
        found = []
        for query in QUERIES:
            taken = hf.savepoints.take(self.checkpoint(query), self.catalog, label="soak")
            proof = hf.savepoints.verify(taken.uri, deep=True)
            assert proof.ok, proof.problems
            fork = self.disk / f"fork-{query}"
            hf.savepoints.fork(taken.uri, fork)
            assert hf.checkpoints.verify(fork).ok
            if query == "accounts":
                files = audit_state(self.town, fork)
                Books.of(hf.state(taken.uri)).check(self.town.worth(files))
                found.append(files)
            shutil.rmtree(fork)
        for old in hf.savepoints.list(self.catalog)[:-4]:
            hf.savepoints.delete(old.uri)
        for query in QUERIES:
            verdict = hf.checkpoints.verify(self.checkpoint(query), home=self.home)
            assert verdict.ok, verdict.problems
        return found

    def restore(self) -> None:
        """Stop the job, and let it go on from a savepoint in place of its checkpoint."""
        self.stop()
        for query in QUERIES:
            checkpoint = self.checkpoint(query)
            taken = hf.savepoints.take(checkpoint, self.catalog, label="restore")
            with self.auditor.away():
                shutil.rmtree(checkpoint)
                hf.savepoints.restore(taken.uri, checkpoint)
        self.start()

    def damage(self, name: str, query: str, seed: int) -> str:
        """Damage a file that the next start needs, and kill the driver: the job goes back by itself."""
        from holdfast.checkpoints.checkpoint import read
        from holdfast.storage.local import LocalStorage

        chance = random.Random(seed)
        checkpoint, driver = self.checkpoint(query), self.driver()
        self.running().await_event("batch")
        with self.auditor.away():
            freeze(driver)
            newest = {each: newest_commit(self.checkpoint(each)) for each in QUERIES}
            store = chance.choice(
                [each for one in read(LocalStorage(checkpoint)).operators for each in one.stores]
            )
            file = checkpoint / store.files[-1].render()
            changed = DAMAGES[name](file.read_bytes(), chance)
            file.write_bytes(changed)
            os.killpg(driver, signal.SIGKILL)
            self.until(
                lambda: (
                    self.driver() != driver
                    and all(newest_commit(self.checkpoint(each)) >= newest[each] for each in QUERIES)
                ),
                f"the job has gone back, and has run its batches again up to {newest}",
            )
        self.go_on()
        for aside in self.disk.glob("checkpoint/*.damaged-*"):
            shutil.rmtree(aside)
        return str(file.relative_to(checkpoint))

    def damaged_copy(self, name: str, query: str, seed: int) -> str:
        """Damage a file of a copy: `verify` must name it, in the checkpoint and in the catalog."""
        chance = random.Random(seed)
        taken = hf.savepoints.take(self.checkpoint(query), self.catalog, label="copied")
        fork, catalog = self.disk / "copy", self.disk / "copied-catalog"
        hf.savepoints.fork(taken.uri, fork)
        files = sorted(
            path
            for path in fork.rglob("*")
            if path.is_file() and not path.name.startswith(".") and "_holdfast" not in path.parts
        )
        damaged = damage_file(chance.choice(files), name, chance)
        verdict = hf.checkpoints.verify(fork)
        named = [str(each) for each in verdict.problems]
        assert damaged is None or any(damaged.name in each for each in named), (damaged, name, named)
        shutil.copytree(self.catalog, catalog)
        objects = sorted(path for path in (catalog / "objects").rglob("*") if path.is_file())
        broken = damage_file(chance.choice(objects), name, chance)
        problems = [
            str(problem)
            for each in hf.savepoints.list(catalog)
            for problem in hf.savepoints.verify(each.uri).problems
        ]
        used = broken is None or problems
        shutil.rmtree(fork)
        shutil.rmtree(catalog)
        assert used, f"no savepoint names {broken}, which is damaged: {name}"
        return f"{name}: {damaged}, {broken}"

    def upgrade(self, fails: bool) -> str:
        """Upgrade to code with one more state, or to code that fails and gives way to the old one."""
        code = self.program.read_text()
        if fails:
            new = code.replace(_PASS_ON, _PASS_ON + '        raise ValueError("poison")\n')
        else:
            self.version += 1
            new = code.replace(_EXTRA, f'    extra_{self.version} = hf.value("long", default=0)\n{_EXTRA}')
            new = new.replace(_PASS_ON, f"{_PASS_ON}        state.extra_{self.version} += 1\n")
        assert new != code
        (self.folder / "new").mkdir(exist_ok=True)
        beside = self.folder / "new" / "bank.py"
        beside.write_text(new)
        job = self.running()
        job.await_event("batch")
        report = self.verb("upgrade", "bank", str(beside), "--batches", "1", code=1 if fails else 0)
        assert report["outcome"] == ("went back" if fails else "upgraded"), report
        assert job.ended().code == 0
        self.verb("stop", "bank")
        if not fails:
            self.program.write_text(new)
        for aside in self.disk.glob("checkpoint*/*.upgraded-*"):
            shutil.rmtree(aside)
        self.job = None
        self.start()
        return str(report["outcome"])

    # The run.

    def bring_about(self, fault: Fault) -> None:
        """Bring about a fault, and wait until the job goes on."""
        time.sleep(fault.wait_s)
        self.log.line(fault=fault.number, name=fault.name, args=fault.args)
        begun = time.monotonic()
        found = getattr(self, fault.name)(**fault.args)
        self.go_on()
        self.faults[fault.name] += 1
        took = round(time.monotonic() - begun, 2)
        self.seconds[fault.name].append(took)
        self.log.line(passed=fault.number, name=fault.name, seconds=took, found=found)
        self.auditor.check()
        self.sample()

    def run(self, faults: Iterator[Fault], deadline: float) -> None:
        """Run until the deadline, then settle."""
        self.feed(True)
        self.start()
        try:
            self.go_on(2)
            with self.auditor:
                for fault in faults:
                    if time.monotonic() > deadline:
                        break
                    self.bring_about(fault)
                self.feed(False)
                self.until(lambda: all(self.read(query) == self.written for query in QUERIES), "all is read")
                self.stop()
            self.auditor.check()
            self.settled()
        except BaseException as error:
            self.log.line(failure="run", error="".join(traceback.format_exception(error)))
            self.keep_evidence()
            raise
        finally:
            self._feeding.set()
            if self.job is not None:
                self.log.line(events=self.job.events[-40:])
                self.job.close()
            for each in processes():
                with suppress(OSError):
                    if (Path("/proc") / str(each.pid) / "cwd").readlink().is_relative_to(self.folder):
                        os.kill(each.pid, signal.SIGKILL)

    def settled(self) -> None:
        """Everything is there once, and nothing is left behind."""
        import sqlite3
        from contextlib import closing

        assert audit_state(self.town, self.accounts) == self.written
        audit_journal(self.town, self.out / "journal.db", self.accounts)
        windows = audit_volume(self.town, self.out / "volume", self.written)
        assert windows >= len(self.town.windows(self.written)) - 3, f"{windows} windows"
        with closing(sqlite3.connect(self.out / "journal.db")) as database:
            rows = database.execute("SELECT id, entry FROM journal").fetchall()
        entries = {
            (each.id, entry)
            for n in range(self.written)
            for each in self.town.transfers(n)
            for entry in ("debit", "hold")
        }
        assert {row for row in map(tuple, rows) if row[1] != "clear"} == entries
        cleared = {name for name, entry in rows if entry == "clear"}
        early = {each.id for n in range(self.written - 8) for each in self.town.transfers(n)}
        assert early <= cleared, f"transfers that never cleared: {sorted(early - cleared)[:5]}"
        for query in QUERIES:
            verdict = hf.checkpoints.verify(self.checkpoint(query), home=self.home)
            assert verdict.ok, verdict.problems
        left = [path.name for path in (self.disk / "checkpoint").iterdir() if path.name not in QUERIES]
        self.log.line(left=left)


def damage_file(file: Path, name: str, chance: random.Random) -> Path | None:
    """Put damaged bytes in place of a file, whose other links stay as they are; None if they are the same."""
    before = file.read_bytes()
    after = DAMAGES[name](before, chance) if before else b"x"
    file.unlink()
    file.write_bytes(after)
    return None if after == before else file


def measured(pids: list[int]) -> tuple[float, int]:
    """Memory in MB and open descriptors of some processes."""
    pages, descriptors = 0, 0
    for pid in pids:
        with suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            descriptors += len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1), descriptors


def sizes_below(place: Path) -> Iterator[int]:
    """The sizes of the files below a directory in use."""
    for folder, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                yield (Path(folder) / name).stat().st_size


def _wait(chance: random.Random) -> Args:
    return {"wait_s": round(chance.uniform(0, 3), 2)}


def _damage(chance: random.Random) -> Args:
    name, query = chance.choice(sorted(DAMAGES)), chance.choice(QUERIES)
    return {"name": name, "query": query, "seed": chance.randrange(1 << 30)}


FAULTS: Final[dict[str, tuple[str, Callable[[random.Random], Args]]]] = {
    "kill_driver": ("SIGKILL to driver and JVM", _wait),
    "kill_workers": ("SIGKILL to the Python workers", lambda chance: {}),
    "kill_supervisor": (
        "SIGKILL to the supervisor, another starts at once",
        lambda chance: {"standby": chance.random() < 0.3},
    ),
    "freeze_driver": (
        "SIGSTOP to driver and JVM",
        lambda chance: {"seconds": round(chance.uniform(1, 6), 1)},
    ),
    "standby_takes_over": ("SIGKILL with a standby driver ready", lambda chance: {}),
    "leader_is_frozen": ("SIGSTOP to leader and driver for longer than the lease", lambda chance: {}),
    "fill_disk": ("a full disk", lambda chance: {"seconds": round(chance.uniform(1, 8), 1)}),
    "rescale": ("rescale of the running job", lambda chance: {"partitions": chance.randrange(1, 5)}),
    "restart": ("`holdfast restart`", lambda chance: {}),
    "savepoints": ("savepoints and forks, verified and read", lambda chance: {}),
    "restore": ("stop, savepoint, restore in place of the checkpoint", lambda chance: {}),
    "damage": ("a damaged state file and a kill: fallback to a whole batch", _damage),
    "damaged_copy": ("a damaged copy, which `verify` must name", _damage),
    "upgrade": (
        "`holdfast upgrade`, to good code or to code that fails",
        lambda chance: {"fails": chance.random() < 0.3},
    ),
}


def report(run: Soak, options: argparse.Namespace, seconds: float, error: BaseException | None) -> str:
    """The page about a run."""
    lines = [
        "# Soak",
        "",
        f"`make soak HOURS={options.hours} SEED={run.seed}` wrote this page. A job with two queries",
        "(two keyed operators; a join and a window) and two sinks (SQLite with a ledger, Delta) runs under",
        "faults that follow from the seed. An auditor looks at it at random instants.",
        "",
    ]
    return "\n".join(lines + tables(run, seconds, error)) + "\n" + kept_by_hand(REPORT, "Looked at")


def tables(run: Soak, seconds: float, error: BaseException | None) -> list[str]:
    """The figures of a run."""
    auditor = run.auditor
    lines = ["| | |", "|---|---|"]
    begun = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=seconds)
    lines += [
        f"| begun | {begun:%Y-%m-%d %H:%M} UTC |",
        f"| commit | {_commit()} |",
        f"| machine | {_machine()} |",
    ]
    lines += [
        f"| time | {seconds / 60:.0f} min |",
        f"| files, transfers | {run.written}, {run.written * 20} |",
    ]
    lines += [f"| faults | {sum(run.faults.values())} |"]
    lines += [
        f"| result | {'every invariant held' if error is None else 'failed: ' + str(error)[:300]} |",
        "",
    ]
    lines += ["| Fault | Times | Seconds until the job goes on, median and longest |", "|---|---|---|"]
    for name, (what, _) in FAULTS.items():
        took = run.seconds.get(name, [])
        range_ = f"{statistics.median(took):.0f}, {max(took):.0f}" if took else ""
        lines.append(f"| {what} | {run.faults[name]} | {range_} |")
    lines += ["", "| Audit | Times |", "|---|---|"]
    lines += [f"| {name} | {auditor.done[name]} |" for name in sorted(auditor.looks)]
    if auditor.again:
        again = ", ".join(f"{name} {times}" for name, times in sorted(auditor.again.items()))
        lines += ["", f"Looks that were repeated because a file had been removed meanwhile: {again}."]
    if len(run.samples) >= 3:
        third = len(run.samples) // 3
        lines += ["", "| Growth | first third, largest | last third, largest |", "|---|---|---|"]
        for name in run.samples[0]:
            if name != "at":
                first = max(each[name] for each in run.samples[:third])
                last = max(each[name] for each in run.samples[-third:])
                lines.append(f"| {name} | {first:g} | {last:g} |")
    return lines


def chosen(faults: Iterator[Fault], words: str) -> Iterator[Fault]:
    """Yield those of a plan that have one of these numbers, or one of these names; all without either."""
    names = set(filter(None, words.split(",")))
    numbers = {int(name) for name in names if name.isdigit()}
    if numbers:
        faults = (each for each in islice(faults, max(numbers) + 1) if each.number in numbers)
    return (each for each in faults if numbers or not names or each.name in names)


def main() -> None:
    """Run as long as is asked for; the exit code tells whether every invariant held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=0.5)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--faults", default="", help="numbers or names, separated by commas")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--no-report", action="store_true")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="soak-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    # Whoever ends it wants nothing left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.stderr.write(f"seed {seed}, log {folder}/soak.jsonl\n")
    begun, log = time.monotonic(), Log(folder / "soak.jsonl")
    log.line(seed=seed, hours=options.hours, commit=_commit())
    faults = chosen(plan(seed), options.faults)
    error: BaseException | None = None
    with ExitStack() as stack:
        place = folder / "disk"
        if os.geteuid() == 0:
            place = stack.enter_context(small_disk(place, f"size={DISK_MB}m"))
        else:
            place.mkdir()
            faults = (each for each in faults if each.name != "fill_disk")
        run = Soak(folder, seed, log, place)
        try:
            run.run(faults, begun + options.hours * 3600)
        except (AssertionError, HoldfastError, OSError, subprocess.SubprocessError) as caught:
            error = caught
            traceback.print_exception(caught)
        page = report(run, options, time.monotonic() - begun, error)
    if options.no_report:
        sys.stdout.write(page)
    else:
        REPORT.write_text(page, encoding="utf-8")
    raise SystemExit(error is not None)


if __name__ == "__main__":
    main()
