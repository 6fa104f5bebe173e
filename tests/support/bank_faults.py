"""The faults that hit a running bank, each by its name, and the seeded plan of their order.

A fault returns when it has passed, with what the log should say about it. The job may still have to recover.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import httpx
from bank_audit import Books, audit_state, newest_commit
from bank_run import QUERIES, BankRun
from damages import DAMAGES
from killing import forked
from process_table import in_group
from running_job import freeze, until
from small_disk import fill

import holdfast as hf
from holdfast.checkpoints.checkpoint import read
from holdfast.storage.local import LocalStorage

LEASE_S: Final = 3
_EXTRA: Final = "    sent = hf.value("
_PASS_ON: Final = "        state.sent += event.amount\n"

Args = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Attributes:
        title: What a report calls it.
        bring_about: Hits a run with it.
        draw: Draws its arguments.
    """

    title: str
    bring_about: Callable[..., object]
    draw: Callable[[random.Random], Args] = lambda _: {}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the plan: its number, after how long it comes, and with what."""

    number: int
    name: str
    wait_s: float
    args: Args

    def bring_about(self, run: BankRun) -> object:
        """Hit a run, and return when the fault has passed."""
        return FAULTS[self.name].bring_about(run, **self.args)


def plan(seed: int) -> Iterator[Fault]:
    """Yield the faults of a seed; each name comes once in every round."""
    number = 0
    while True:
        names = sorted(FAULTS)
        random.Random(f"{seed}/{number}").shuffle(names)
        for name in names:
            chance = random.Random(f"{seed}/{number}/{name}")
            yield Fault(number, name, round(chance.uniform(0, 4), 2), FAULTS[name].draw(chance))
            number += 1


def chosen(faults: Iterator[Fault], words: str) -> Iterator[Fault]:
    """Return those of a plan that have one of these numbers, or one of these names; all without either.

    Raises:
        ValueError: A word is neither a number nor the name of a fault.
    """
    wanted = {word.strip() for word in words.split(",")} - {""}
    numbers = {int(word) for word in wanted if word.isdigit()}
    names = wanted & FAULTS.keys()
    unknown = [word for word in sorted(wanted - names) if not word.isdigit()]
    if unknown or (names and numbers):
        raise ValueError(
            f"unknown faults {unknown}" if unknown else "numbers and names of faults cannot be combined"
        )
    if numbers:
        return (each for each in islice(faults, max(numbers) + 1) if each.number in numbers)
    return (each for each in faults if not names or each.name in names)


def damage_file(file: Path, name: str, chance: random.Random) -> Path | None:
    """Put damaged bytes in place of a file, whose other links stay as they are; None if they are the same."""
    before = file.read_bytes()
    after = DAMAGES[name](before, chance) if before else b"x"
    file.unlink()
    file.write_bytes(after)
    return None if after == before else file


# Signals.


def _kill_driver(run: BankRun, wait_s: float) -> None:
    time.sleep(wait_s)
    with suppress(ProcessLookupError):
        os.killpg(run.driver(), signal.SIGKILL)


def _kill_workers(run: BankRun) -> int:
    workers = list(forked(run.folder))
    for pid in workers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(workers)


def _kill_supervisor(run: BankRun, standby: bool) -> None:
    job = run.running()
    job.kill()
    run.start(*(["--standby"] if standby else []))
    run.running().await_event("running")
    job.close()


def _freeze_driver(run: BankRun, seconds: float) -> None:
    driver = run.driver()
    try:
        with suppress(ProcessLookupError):
            freeze(driver)
        time.sleep(seconds)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver, signal.SIGCONT)


def _standby_takes_over(run: BankRun) -> None:
    run.stop()
    run.start("--standby")
    job = run.running()
    ready = job.await_event("standby-ready")["pid"]
    # A driver that has committed nothing is restarted, and its standby driver stays one.
    run.go_on()
    os.killpg(run.driver(), signal.SIGKILL)
    run.until(lambda: run.driver() == ready, "the standby driver takes over")
    run.go_on()
    run.stop()
    run.start()


def _leader_is_frozen(run: BankRun) -> None:
    """Another supervisor is elected while the first is frozen with its driver; then the first one thaws."""
    run.stop()
    elections = {"HOLDFAST_HA": str(run.folder / "elections"), "HOLDFAST_LEASE": f"{LEASE_S}s"}
    leader = run.make(home="home-a", **elections)
    with ExitStack() as stack:
        stack.callback(leader.close)
        leader.await_event("batch")
        run.job = successor = run.make(home="home-b", **elections)
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
        run.stop()
    shutil.rmtree(run.folder / "elections")
    run.start()


# The disk.


def _fill_disk(run: BankRun, seconds: float) -> None:
    rest = fill(run.disk)
    time.sleep(seconds)
    rest.unlink()


def _damage(run: BankRun, name: str, query: str, seed: int) -> str:
    """Damage a file that the next start needs, and kill the driver: the job goes back by itself."""
    chance = random.Random(seed)
    checkpoint, driver = run.checkpoint(query), run.driver()
    run.running().await_event("batch")
    with run.auditor.away():
        freeze(driver)
        newest = {each: newest_commit(run.checkpoint(each)) for each in QUERIES}
        stores = [each for one in read(LocalStorage(checkpoint)).operators for each in one.stores]
        file = checkpoint / chance.choice(stores).files[-1].render()
        damage_file(file, name, chance)
        os.killpg(driver, signal.SIGKILL)
        run.until(
            lambda: (
                run.driver() != driver
                and all(newest_commit(run.checkpoint(each)) >= newest[each] for each in QUERIES)
            ),
            f"the job has gone back, and has run its batches again up to {newest}",
        )
    run.go_on()
    aside = [*run.disk.glob("checkpoint/*.damaged-*")]
    for each in aside:
        shutil.rmtree(each)
    return f"{name}: {file.relative_to(checkpoint)}; moved aside: {[each.name for each in aside]}"


def _damaged_copy(run: BankRun, name: str, query: str, seed: int) -> str:
    """Damage a file of a copy: `verify` must name it, in the checkpoint and in the catalog."""
    chance = random.Random(seed)
    taken = hf.savepoints.take(run.checkpoint(query), run.catalog, label="copied")
    fork, catalog = run.disk / "copy", run.disk / "copied-catalog"
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
    shutil.copytree(run.catalog, catalog)
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


# Operations of a running job.


def _rescale(run: BankRun, partitions: int) -> str:
    job = run.running()
    (had, *_) = [one.partitions for one in hf.state(run.accounts).operators()]
    partitions = partitions if partitions != had else partitions % 4 + 1
    before = len([each for each in job.events if each.get("event") == "rescaled"])
    with httpx.Client(base_url=f"http://127.0.0.1:{run.port}", timeout=60) as client:
        (found,) = client.get("/jobs").json()["jobs"]
        requirements = f"/jobs/{found['id']}/resource-requirements"
        asked = {
            name: {"parallelism": {"upperBound": partitions}} for name in client.get(requirements).json()
        }
        answer = client.put(requirements, json=asked)
    assert answer.is_success, answer.text
    event = job.await_event("rescaled", before + 1)
    run.go_on()
    for replaced in run.disk.glob("checkpoint/*.before-*"):
        shutil.rmtree(replaced)
    for query in QUERIES:
        for operator in hf.state(run.checkpoint(query)).operators():
            assert operator.partitions == partitions, (query, operator.partitions, event)
    return f"{had} to {partitions}: {event['text']}"


def _restart(run: BankRun) -> float:
    run.running().await_event("batch")
    return float(run.verb("restart", "bank")["took_ms"])


def _savepoints(run: BankRun) -> list[int]:
    """Take savepoints of both queries; verify and read them, and forks of them."""
    found = []
    for query in QUERIES:
        taken = hf.savepoints.take(run.checkpoint(query), run.catalog, label="soak")
        proof = hf.savepoints.verify(taken.uri, deep=True)
        assert proof.ok, proof.problems
        fork = run.disk / f"fork-{query}"
        hf.savepoints.fork(taken.uri, fork)
        assert hf.checkpoints.verify(fork).ok
        if query == "accounts":
            files = audit_state(run.town, fork)
            Books.of(hf.state(taken.uri)).check(run.town.worth(files))
            found.append(files)
        shutil.rmtree(fork)
    for old in hf.savepoints.list(run.catalog)[:-4]:
        hf.savepoints.delete(old.uri)
    for query in QUERIES:
        verdict = hf.checkpoints.verify(run.checkpoint(query), home=run.home)
        assert verdict.ok, verdict.problems
    return found


def _restore(run: BankRun) -> None:
    """Stop the job, and let it go on from a savepoint in place of its checkpoint."""
    run.stop()
    for query in QUERIES:
        checkpoint = run.checkpoint(query)
        taken = hf.savepoints.take(checkpoint, run.catalog, label="restore")
        with run.auditor.away():
            shutil.rmtree(checkpoint)
            hf.savepoints.restore(taken.uri, checkpoint)
    run.start()


def _upgrade(run: BankRun, fails: bool) -> str:
    """Upgrade to code with one more state, or to code that fails and gives way to the old one."""
    code = run.program.read_text()
    if fails:
        new = code.replace(_PASS_ON, _PASS_ON + '        raise ValueError("poison")\n')
    else:
        run.version += 1
        new = code.replace(_EXTRA, f'    extra_{run.version} = hf.value("long", default=0)\n{_EXTRA}')
        new = new.replace(_PASS_ON, f"{_PASS_ON}        state.extra_{run.version} += 1\n")
    assert new != code
    beside = run.folder / "new" / "bank.py"
    beside.parent.mkdir(exist_ok=True)
    beside.write_text(new)
    job = run.running()
    job.await_event("batch")
    report = run.verb("upgrade", "bank", str(beside), "--batches", "1", code=1 if fails else 0)
    assert report["outcome"] == ("went back" if fails else "upgraded"), report
    assert job.ended().code == 0
    run.verb("stop", "bank")
    if not fails:
        run.program.write_text(new)
    for aside in [*run.disk.glob("checkpoint/*.upgraded-*"), *run.disk.glob("checkpoint/*.before-*")]:
        shutil.rmtree(aside)
    for saved in report["savepoints"].values():
        hf.savepoints.delete(saved)
    run.job = None
    run.start()
    return str(report["outcome"])


def _draw_damage(chance: random.Random) -> Args:
    name, query = chance.choice(sorted(DAMAGES)), chance.choice(QUERIES)
    return {"name": name, "query": query, "seed": chance.randrange(1 << 30)}


FAULTS: Final[dict[str, Kind]] = {
    "kill_driver": Kind(
        "SIGKILL to driver and JVM",
        _kill_driver,
        lambda chance: {"wait_s": round(chance.uniform(0, 3), 2)},
    ),
    "kill_workers": Kind("SIGKILL to the Python workers", _kill_workers),
    "kill_supervisor": Kind(
        "SIGKILL to the supervisor, another starts at once",
        _kill_supervisor,
        lambda chance: {"standby": chance.random() < 0.3},
    ),
    "freeze_driver": Kind(
        "SIGSTOP to driver and JVM",
        _freeze_driver,
        lambda chance: {"seconds": round(chance.uniform(1, 6), 1)},
    ),
    "standby_takes_over": Kind("SIGKILL with a standby driver ready", _standby_takes_over),
    "leader_is_frozen": Kind("SIGSTOP to leader and driver for longer than the lease", _leader_is_frozen),
    "fill_disk": Kind("a full disk", _fill_disk, lambda chance: {"seconds": round(chance.uniform(1, 8), 1)}),
    "rescale": Kind(
        "rescale of the running job", _rescale, lambda chance: {"partitions": chance.randrange(1, 5)}
    ),
    "restart": Kind("`holdfast restart`", _restart),
    "savepoints": Kind("savepoints and forks, verified and read", _savepoints),
    "restore": Kind("stop, savepoint, restore in place of the checkpoint", _restore),
    "damage": Kind("a damaged state file and a kill: fallback to a whole batch", _damage, _draw_damage),
    "damaged_copy": Kind("a damaged copy, which `verify` must name", _damaged_copy, _draw_damage),
    "upgrade": Kind(
        "`holdfast upgrade`, to good code or to code that fails",
        _upgrade,
        lambda chance: {"fails": chance.random() < 0.3},
    ),
}
