"""Look whether checkpoints are whole before a restart, and go back where that was asked for.

A damaged checkpoint is moved aside and stays there as it is. What takes its place is made of a savepoint:
one that there was, or one of the newest batch in the damaged checkpoint that is whole. A note beside the
checkpoint says what is being done, from before the first step until the batches that were lost have been
run again; whoever finds it after a kill finishes that.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.checkpoints.guard.checkpoint_guard import (
    CheckpointGuard,
    file_marks,
    held_between_drivers,
    moves_between,
    written_meanwhile,
)
from holdfast.checkpoints.logs.logs import Logs
from holdfast.checkpoints.record import find_record
from holdfast.checkpoints.verification.findings import Problem, Verification
from holdfast.checkpoints.verification.verifying import verify
from holdfast.config.job.recovery import Fallback
from holdfast.config.locations import local_path, place_word
from holdfast.config.spark_defaults import EXTERNAL_PROVIDERS
from holdfast.errors import Corrupt, HoldfastError, NotFound, Unavailable
from holdfast.json_shapes import JsonShape
from holdfast.savepoints import savepoint_api as savepoints
from holdfast.savepoints.catalog.catalog import listed, savepoint_uri
from holdfast.storage import open_storage
from holdfast.storage.local import LocalStorage

_NOTE: Final = ".holdfast.fallback.json"
_CATALOG: Final = ".holdfast.fallback"
_VERB: Final = "run --fall-back-to"


class _OutOfTime(Exception):
    """Looking has taken as long as it may."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A checkpoint that a restart must not build on.

    Attributes:
        query: The query.
        checkpoint: Its address.
        problem: What is wrong; the first of what was found.
        newest: The newest committed batch.
        whole: The newest batch before that whose files are all there and whole, if there is one.
    """

    query: str
    checkpoint: str
    problem: Problem
    newest: int
    whole: int | None

    def error(self, target: str) -> Corrupt:
        """What to tell a person, who decides."""
        ways = f"`holdfast run {target} --fall-back-to savepoint` goes on from the newest savepoint"
        if self.whole is not None:
            ways += f", `--fall-back-to batch` from batch {self.whole}"
        return Corrupt(
            f"the checkpoint of query {self.query!r} is damaged, so it was not started again",
            where=f"{self.checkpoint}/{self.problem.file}",
            found=self.problem.what,
            hint=f"see all of it with `holdfast checkpoint verify {place_word(self.checkpoint)}`; {ways}",
        )


@dataclass(frozen=True, slots=True)
class Rollback(JsonShape):
    """A way back from a damaged checkpoint, as it is noted beside it.

    Attributes:
        query: The query.
        checkpoint: The checkpoint's address, where the older state takes its place.
        aside: Where the damaged one is moved to.
        savepoint: What the new one is made of.
        batch_id: Its batch.
        newest: The newest batch that was committed in the damaged one.
        own: Whether the savepoint was made for this alone.
    """

    query: str
    checkpoint: str
    aside: str
    savepoint: str
    batch_id: int
    newest: int
    own: bool

    def __str__(self) -> str:
        source = f"batch {self.batch_id}" if self.own else f"batch {self.batch_id} of {self.savepoint}"
        return f"{source}, the damaged checkpoint is in {self.aside}"


def look(checkpoints: Mapping[str, str], home: Path, limit_ms: int) -> tuple[list[Damage], list[str]]:
    """Look whether a restart can build on checkpoints that nobody uses at the moment.

    Damage to what only older batches need does not count, but is told.

    Cost: every file of them is read, for as long as the limit allows.

    Args:
        checkpoints: Addresses, by query.
        home: The state home, for its record of good batches.
        limit_ms: How long it may take.

    Returns:
        The checkpoints that are damaged, and what else to tell, a line each.
    """
    deadline = time.monotonic() + limit_ms / 1000
    damage: list[Damage] = []
    notes: list[str] = []
    for query, address in checkpoints.items():
        try:
            verification = _verified(address, home, deadline)
        except _OutOfTime:
            notes.append(f"query {query}: the time for looking at its checkpoint was over")
            continue
        except NotFound:
            continue  # it has not come to its first batch
        except HoldfastError as error:
            if error.found in EXTERNAL_PROVIDERS:
                continue  # its logs are whole; Spark's tasks look at a store in a database when they begin
            notes.append(f"query {query}: its checkpoint could not be looked at: {error.fact}")
            continue
        blocks = _blocking(verification)
        if blocks is not None and verification.batch_id is not None:
            older = [batch_id for batch_id in verification.restorable if batch_id < verification.batch_id]
            damage.append(Damage(query, address, blocks, verification.batch_id, max(older, default=None)))
        elif verification.problems:
            first = verification.problems[0]
            notes.append(f"query {query}: {first.file} is damaged, which only older batches need")
    return damage, notes


def _verified(address: str, home: Path, deadline: float) -> Verification:
    def tell(_done: int, _total: int, _note: str) -> None:
        if time.monotonic() > deadline:
            raise _OutOfTime

    storage = open_storage(address)
    record, _ = find_record(home, storage)
    return verify(storage, tell, unpack=False, record=record)


def _blocking(verification: Verification) -> Problem | None:
    """The first problem that a restart from the newest batch would meet."""
    if verification.batch_id is None:
        return None
    if verification.batch_id not in verification.restorable and verification.problems:
        return verification.problems[0]
    batches = (layout.StoreFile, layout.LogFile)
    return next(
        (problem for problem in verification.problems if not isinstance(_place(problem.file), batches)), None
    )


def _place(file: str) -> object:
    """What a file is; a checksum is what it vouches for."""
    place = layout.parse(file)
    while isinstance(place, (layout.HadoopChecksum, layout.SparkChecksum)):
        place = layout.parse(place.of)
    return place


def go_back(damage: Damage, kind: Fallback, catalogs: Iterable[str], now_ms: int, target: str) -> Rollback:
    """Put an older state in the place of a damaged checkpoint, which is moved aside.

    The job's supervisor calls it while no driver runs. All of what takes its place has been proved before
    anything is moved. Whoever writes to the checkpoint meanwhile, a plain query for example, stops it.

    Cost: that of a savepoint and a restore, on the same disk mostly hard links.

    Args:
        damage: The damage.
        kind: Where to go back to.
        catalogs: Where the job's savepoints are.
        now_ms: The time, which names the place of the damaged one.
        target: The job file, for the hint of an error.

    Raises:
        Corrupt: There is nothing whole to go back to, or the checkpoint is not on this machine's disks.
        Conflict: Somebody uses the checkpoint.
    """
    place = local_path(damage.checkpoint)
    if place is None:
        raise _no_way(damage, target, "a checkpoint that is not on a disk cannot be moved aside")
    with held_between_drivers(LocalStorage(place), _VERB) as guard:
        if kind == "batch":
            savepoint, batch_id = _of_batch(damage, place, target)
        else:
            savepoint, batch_id = _of_savepoint(damage, catalogs, target)
        way = _way(damage, place, kind, savepoint, batch_id, now_ms)
        guard.require_unmoved()
        LocalStorage(place.parent).write(_note_name(place), json.dumps(way.as_dict()).encode(), replace=True)
        _move_aside(way)
        _require_left_alone(way, guard)
        _make(way)
    return way


def unusable_fallback(kind: Fallback | None, checkpoints: Iterable[str]) -> str | None:
    """Return a warning if a fallback is set and cannot replace one of a job's checkpoints; else None.

    Args:
        kind: The fallback that the job has.
        checkpoints: The addresses of its checkpoints.
    """
    elsewhere = next((address for address in checkpoints if local_path(address) is None), None)
    if kind is None or elsewhere is None:
        return None
    return (
        f"fallback={kind!r} has no effect on {elsewhere}: only a checkpoint on a local disk can be moved"
        " aside. If this one is damaged, the job ends; make a new checkpoint of a savepoint then, with"
        " `holdfast restore`"
    )


def _way(damage: Damage, place: Path, kind: Fallback, savepoint: str, batch_id: int, now_ms: int) -> Rollback:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_ms / 1000))
    aside = place.with_name(f"{place.name}.damaged-{stamp}")
    return Rollback(
        damage.query, damage.checkpoint, str(aside), savepoint, batch_id, damage.newest, kind == "batch"
    )


def finish(way: Rollback) -> None:
    """Do what of a way back has not been done.

    Raises:
        HoldfastError: The savepoint has gone or is damaged by now, or the checkpoint cannot be moved.
    """
    with held_between_drivers(LocalStorage(_place_of(way)), _VERB):
        _move_aside(way)
        _make(way)


def _move_aside(way: Rollback) -> None:
    place, aside = _place_of(way), Path(way.aside)
    try:
        if not aside.exists():
            place.rename(aside)
    except OSError as error:
        raise Unavailable(
            "the damaged checkpoint cannot be moved aside",
            where=str(place),
            found=error.strerror,
            hint=f"see that {place.parent} can be written to, and run the job again",
        ) from error


def _require_left_alone(way: Rollback, guard: CheckpointGuard) -> None:
    """See that nobody wrote to the damaged checkpoint while it was moved aside; else it goes back.

    Raises:
        Conflict: Somebody did.
    """
    place, aside = _place_of(way), Path(way.aside)
    moves = moves_between(guard.marks, file_marks(LocalStorage(aside)))
    anew = sorted(file_marks(LocalStorage(place)))
    if not moves and not anew:
        return
    done = f"it is in {aside}, and what was written meanwhile is in its place: nothing was deleted"
    if not anew:
        # A query that makes its directory again at this moment is told of, and nothing is lost.
        with suppress(OSError):
            if place.exists():
                place.rmdir()
            aside.rename(place)
            place.with_name(_note_name(place)).unlink(missing_ok=True)
            done = "it is back in its place"
    raise written_meanwhile(way.checkpoint, [*moves, *(f"{path} is new" for path in anew)], done)


def _make(way: Rollback) -> None:
    place = _place_of(way)
    if place.is_dir() and Logs(LocalStorage(place)).offered and (place / layout.METADATA).is_file():
        return  # it has been made, and may have gone on since
    savepoints.restore_once(way.savepoint, way.checkpoint)


def _place_of(way: Rollback) -> Path:
    return Path(way.checkpoint.removeprefix("file://"))


def _note_name(place: Path) -> str:
    return f".{place.name}{_NOTE}"


def under_way(checkpoint: str) -> list[Rollback]:
    """The ways back that a job is on: those of its only query, or of several below its checkpoint.

    Raises:
        Corrupt: What was noted of one cannot be read.
    """
    base = local_path(checkpoint)
    if base is None:
        return []
    notes = [base.with_name(f".{base.name}{_NOTE}"), *sorted(base.glob(f".*{_NOTE}"))]
    return [_read(note) for note in notes if note.is_file()]


def done(way: Rollback) -> None:
    """Forget a way back: the lost batches have been run again. The damaged checkpoint stays."""
    place = _place_of(way)
    place.with_name(_note_name(place)).unlink(missing_ok=True)
    if way.own:
        shutil.rmtree(place.with_name(f".{place.name}{_CATALOG}"), ignore_errors=True)


def _read(note: Path) -> Rollback:
    try:
        return Rollback(**json.loads(note.read_bytes()))
    except (ValueError, TypeError) as error:
        raise Corrupt(
            "the note of a way back from a damaged checkpoint cannot be read",
            where=str(note),
            found=str(error),
            hint="if the checkpoint beside it is whole, delete the note",
        ) from error


def _of_batch(damage: Damage, place: Path, target: str) -> tuple[str, int]:
    if damage.whole is None:
        raise _no_way(damage, target, "no older batch of it is whole")
    catalog = place.with_name(f".{place.name}{_CATALOG}")
    shutil.rmtree(catalog, ignore_errors=True)  # a killed try's
    taken = savepoints.take(place, catalog, batch=damage.whole, label="fallback", digest=False)
    return taken.uri, damage.whole


def _of_savepoint(damage: Damage, catalogs: Iterable[str], target: str) -> tuple[str, int]:
    """The newest savepoint of this checkpoint that proves whole."""
    tried = []
    for address in catalogs:
        catalog = open_storage(address, "savepoints")
        for savepoint in reversed(list(listed(catalog))):
            if savepoint.manifest is None or savepoint.manifest.checkpoint != damage.checkpoint:
                continue
            uri = savepoint_uri(catalog, savepoint.savepoint_id)
            if savepoints.verify(uri).ok:
                return uri, savepoint.manifest.batch_id
            tried.append(uri)
    damaged = f"damaged as well: {', '.join(tried)}" if tried else "there is no savepoint of it"
    raise _no_way(damage, target, damaged)


def _no_way(damage: Damage, target: str, why: str) -> Corrupt:
    error = damage.error(target)
    return Corrupt(error.fact, where=error.where, found=f"{error.found}; {why}", hint=error.hint)
