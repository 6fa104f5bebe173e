"""Rescale a job that runs: between two of its drivers its checkpoints change places with rescaled ones.

The new checkpoints are made beside the old ones, by a process of their own. Each then changes places with
the old one at one stroke, so that whoever starts the query at any moment finds a whole checkpoint. The old
ones are kept. What a killed supervisor has left is undone up to the first change of places, and finished
from there on.
"""

from __future__ import annotations

import os
import selectors
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, cast

from holdfast import layout
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.guard.terms import Leader
from holdfast.checkpoints.tree import Tree
from holdfast.checkpoints.verification.verifying import verify
from holdfast.config.private_files import make_directory
from holdfast.errors import Conflict, Corrupt, HoldfastError, Internal, Unavailable, Unsupported
from holdfast.formats.logs.operator_metadata import parse_operator
from holdfast.jobs.events import Say
from holdfast.jobs.operations.operation_context import undone
from holdfast.jobs.operations.rescale_spec import Move, RescaleSpec, life_of, moves_from, moves_of, place_of
from holdfast.jobs.processes.checkpoint_claim import CheckpointClaim
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.processes.protocol import Message, Refused, RescaleDone, RescaleProgress, not_for
from holdfast.jobs.registry.operation_arguments import Rescale, decode
from holdfast.jobs.registry.operation_log import Operation, Operations
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.storage import open_storage
from holdfast.storage.atomic_swap import exchange
from holdfast.storage.hadoop_address import hadoop_address

VERB: Final = "rescale"
COMMAND: Final = (sys.executable, "-m", "holdfast.jobs.operations.rescale_child")
_LOOK_S: Final = 0.2
_TELL_S: Final = 0.5
_ORPHAN_S: Final = 30.0
_OWNER: Final = "supervisor "
_AGAIN: Final = "ask again; if it happens again, stop the job and use `holdfast rescale --stopped`"

Attend = Callable[[], bool]


def owner_of(job: str) -> str:
    """The name under which a job's supervisor runs operations; it lives as long as the job's lock is held."""
    return f"{_OWNER}{job}"


def supervised_by(owner: str) -> str | None:
    """The job whose supervisor an owner is."""
    return owner.removeprefix(_OWNER) if owner.startswith(_OWNER) else None


class Rescaler:
    """The rescales of one job, by its supervisor, which holds the job's lock.

    Args:
        home: The state home.
        job: The job's name.
        spec: The job file, and where Spark runs.
        clock: The time in epoch milliseconds.
    """

    def __init__(self, home: StateHome, job: str, spec: DriverSpec, clock: Callable[[], int]) -> None:
        self._home = home
        self._job = job
        self._spec = spec
        self._clock = clock
        self._operations = Operations(home)

    def recover(self) -> None:
        """Finish or undo what a former supervisor has left. Before the checkpoints are used."""
        for left in self._operations.running():
            if left.owner == owner_of(self._job):
                _recover(self._home, self._operations, left, self._clock)

    def refuse_what_waits(self) -> None:
        """Answer what was asked of a former supervisor and never begun. The job is this one's by now."""
        for asked in self._operations.waiting(VERB, self._job):
            error = Conflict(
                "the supervisor that was asked to rescale has ended before it began, and nothing was changed",
                where=asked.operation_id,
                found=f"job {self._job!r} under another supervisor",
                hint="ask again",
            )
            refuse(self._operations, asked, owner_of(self._job), error, self._clock())

    def carry_out(self, attend: Attend, say: Say) -> None:
        """Do all that was asked for. No driver runs, and nobody starts one meanwhile.

        Args:
            attend: Called again and again; False gives up, and everything is as it was.
            say: Told what is begun, and what became of it.
        """
        say("rescaling", "bringing its state into other partitions")
        for asked in self._operations.waiting(VERB, self._job):
            mine = self._operations.begin(asked.operation_id, owner_of(self._job), self._clock())
            if mine is None:
                continue
            try:
                done = self._operations.complete(mine, self._do(mine, attend), self._clock())
                say("rescaled", "rescaled", **done.as_dict())
            except HoldfastError as error:
                done = self._operations.fail(mine, error.as_dict(), self._clock())
                say("rescaled", f"not rescaled: {error.fact}", **done.as_dict())

    def _do(self, operation: Operation, attend: Attend) -> Mapping[str, Any]:
        queries = {query.name: query for query in Registry(self._home.registry).queries(self._job)}
        wanted = cast("Rescale", decode(VERB, operation.arguments))
        moves = moves_of(operation.operation_id, wanted.partitions, queries)
        operation = self._operations.note(operation, moves=[asdict(move) for move in moves])
        try:
            self._make(operation, moves, attend)
            for move in moves:
                _lead_home(move)
        except BaseException:
            _undo(moves)
            raise
        return _swap(self._operations, operation, moves)

    def _make(self, operation: Operation, moves: tuple[Move, ...], attend: Attend) -> None:
        log = self._home.job(self._job) / f"rescale-{operation.operation_id[:12]}.log"
        make_directory(log.parent)
        spec = RescaleSpec(
            self._spec.target, str(self._home.path), self._job, moves, str(log), self._spec.master
        )
        try:
            process = DriverProcess.start(spec, COMMAND, quiet=True)
        except OSError as error:
            raise Unavailable(
                "the process that rescales cannot be started",
                where=sys.executable,
                found=error.strerror or str(error),
                hint=_AGAIN,
            ) from error
        last: Message | None = None
        try:
            last = self._follow(process, operation, attend)
        finally:
            process.kill()
            process.reap()
        if last is None:
            raise Internal("the process that rescales has ended without a word", where=str(log))
        if isinstance(last, Refused):
            raise last.error

    def _follow(self, process: DriverProcess, operation: Operation, attend: Attend) -> Message | None:
        """Listen until it is done; its last word, or None."""
        told = 0.0
        with selectors.DefaultSelector() as selector:
            selector.register(process.channel, selectors.EVENT_READ)
            while True:
                if not attend():
                    raise Conflict("the job was told to end, and is as it was", hint="run it, and ask again")
                if not selector.select(_LOOK_S):
                    continue
                messages = process.channel.receive()
                if messages is None:
                    return None
                for message in messages:
                    if isinstance(message, (RescaleDone, Refused)):
                        return message
                    if not isinstance(message, RescaleProgress):
                        raise not_for("a rescale", message)
                    if time.monotonic() - told > _TELL_S:
                        told = time.monotonic()
                        self._operations.tell(operation, message.done, message.total, message.what)


def led_by(leader: Leader, job: str) -> Unsupported:
    """The error for a rescale of a job that has several supervisors."""
    return Unsupported(
        f"job {job!r} has several supervisors, and none of them rescales it while it runs",
        where=job,
        found=f"{leader.holder}, elected at {leader.address}",
        hint="stop the job, rescale its checkpoint with `holdfast rescale --stopped`, and run it on that",
    )


def refuse(operations: Operations, asked: Operation, owner: str, error: HoldfastError, now_ms: int) -> None:
    """Answer a rescale that nobody has begun, unless somebody is quicker."""
    mine = operations.begin(asked.operation_id, owner, now_ms)
    if mine is not None:
        operations.fail(mine, error.as_dict(), now_ms)


def recover_left_behind(
    home: StateHome, operations: Operations, left: Operation, clock: Callable[[], int]
) -> None:
    """Finish or undo the rescale of a job whose supervisor died; a new supervisor does it by itself."""
    if left.job is None:
        return
    lock = SupervisorLock(home, left.job)
    if not lock.take():
        return
    try:
        checkpoint = Registry(home.registry).job(left.job).checkpoint
        if CheckpointClaim(checkpoint, left.job, home.path).until_free(0):
            _recover(home, operations, left, clock)
    finally:
        lock.release()


def _recover(home: StateHome, operations: Operations, left: Operation, clock: Callable[[], int]) -> None:
    """Under the job's lock: nobody else starts it, and nobody else recovers it."""
    life = life_of(home.path, left.job or "")
    deadline = time.monotonic() + _ORPHAN_S
    while life.taken():  # it ends as soon as it finds its supervisor gone
        if time.monotonic() > deadline:
            return
        time.sleep(_LOOK_S)
    moves = moves_from(left.steps)
    try:
        if "swapping" in left.steps:
            operations.complete(left, _swap(operations, left, moves), clock())
        else:
            _undo(moves)
            operations.fail(left, undone(left, "no checkpoint had been replaced yet").as_dict(), clock())
    except HoldfastError as error:
        with suppress(HoldfastError):
            operations.fail(left, error.as_dict(), clock())


def _lead_home(move: Move) -> None:
    """Lead the paths in a new checkpoint to where it is going to be."""
    storage = open_storage(move.made)
    root = hadoop_address(move.checkpoint)
    for path, place in Tree(storage).places():
        if isinstance(place, layout.OperatorMetadataFile):
            storage.delete(layout.HadoopChecksum(path).render())
            moved = parse_operator(storage.read(path), path).moved_to(root)
            storage.write(path, moved.render(), replace=True)


def _swap(operations: Operations, operation: Operation, moves: tuple[Move, ...]) -> Mapping[str, Any]:
    """Let old and new change places; begun once, it is gone on with by whoever comes.

    Which of the two a directory is, its number on the file system tells: it goes with it.
    """
    noted = operation.steps.get("swapping")
    if noted is None:
        noted = {move.query: _number(place_of(move.made)) for move in moves}
        operation = operations.note(operation, swapping=noted)
    try:
        for move in moves:
            here, there = place_of(move.checkpoint), place_of(move.made)
            if _number(here) != noted[move.query]:
                exchange(here, there)
        for move in moves:
            _check(move)
    except HoldfastError:
        _take_back(moves, noted)
        raise
    for move in moves:
        if place_of(move.made).exists():
            place_of(move.made).rename(place_of(move.kept))
    return {
        "queries": {
            move.query: {
                "checkpoint": move.checkpoint,
                "partitions": move.partitions,
                "kept": move.kept,
                "batch": read(open_storage(move.checkpoint)).batch_id,
            }
            for move in moves
        }
    }


def _check(move: Move) -> None:
    """Make sure that what is in place now is whole, and what was wanted."""
    storage = open_storage(move.checkpoint)
    verification = verify(storage)
    if not verification.ok:
        raise Corrupt(
            "the rescaled checkpoint does not read as it should, and the old one is back in its place",
            where=f"{move.checkpoint}/{verification.problems[0].file}",
            found=verification.problems[0].what,
            hint=_AGAIN,
        )
    spread = {operator.partitions for operator in read(storage).operators if not operator.gathered}
    if spread - {move.partitions}:
        raise Corrupt(
            "the rescaled checkpoint has another number of partitions, and the old one is back in its place",
            where=move.checkpoint,
            found=", ".join(str(partitions) for partitions in sorted(spread)),
            expected=str(move.partitions),
            hint=_AGAIN,
        )


def _undo(moves: tuple[Move, ...]) -> None:
    """Take away what was made and never used."""
    for move in moves:
        shutil.rmtree(place_of(move.made), ignore_errors=True)


def _take_back(moves: tuple[Move, ...], noted: Mapping[str, int]) -> None:
    """Put the old ones back in their places; only what is known as new is taken away."""
    for move in moves:
        here, there = place_of(move.checkpoint), place_of(move.made)
        if there.exists() and _number(here) == noted[move.query]:
            exchange(here, there)
        if there.exists() and _number(there) == noted[move.query]:
            shutil.rmtree(there, ignore_errors=True)


def _number(place: Path) -> int:
    return os.stat(place).st_ino  # noqa: PTH116 - a path's own way says the same
