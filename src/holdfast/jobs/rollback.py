"""Look whether checkpoints are whole before a restart, and go back where that was asked for.

A damaged checkpoint is moved aside and stays there as it is. What takes its place is made of a savepoint:
one that there was, or one of the newest batch in the damaged checkpoint that is whole. A note beside the
checkpoint says what is being done, from before the first step until the batches that were lost have been
run again; whoever finds it after a kill finishes that.

Whoever may write to the checkpoint may write such a note too, and a supervisor on a different machine has to
find it. So it names no paths: they follow from where the note is. Its savepoint has to be one of the job's.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.record import find_record
from holdfast.checkpoints.verification.file_checks import Problem, Verification
from holdfast.checkpoints.verification.verifying import verify
from holdfast.config.checks import local_path, place_word
from holdfast.config.policies import Fallback
from holdfast.config.spark_defaults import EXTERNAL_PROVIDERS
from holdfast.errors import Corrupt, HoldfastError, NotFound, Unavailable
from holdfast.formats.text import decoded, json_object, string, whole_number
from holdfast.json_shapes import JsonShape
from holdfast.ownership.checkpoint_guard import (
    CheckpointGuard,
    file_marks,
    held_between_drivers,
    moves_between,
    written_meanwhile,
)
from holdfast.savepoints import savepoint_api as savepoints
from holdfast.savepoints.catalog import is_savepoint, listed, load, savepoint_uri, split_address
from holdfast.storage import open_storage
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

_NOTE: Final = ".holdfast.fallback.json"
_WHAT: Final = "the note of a fallback"
_STAMP: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_DELETE: Final = "if the checkpoint beside it is whole, delete the note"
_CATALOG: Final = ".holdfast.fallback"
_VERB: Final = "run --fall-back-to"


class _OutOfTime(Exception):
    """Looking has taken as long as it may."""


@dataclass(frozen=True, slots=True)
class CheckpointDamage:
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
        """Return the error for a person, who decides."""
        ways = f"`holdfast run {target} --fall-back-to savepoint` goes on from the newest savepoint"
        if self.whole is not None:
            ways += f", `--fall-back-to batch` from batch {self.whole}"
        return Corrupt(
            f"the checkpoint of query {self.query!r} is damaged, so it was not started again",
            code="HF-E6033",
            where=f"{self.checkpoint}/{self.problem.file}",
            found=self.problem.what,
            hint=f"see all of it with `holdfast checkpoint verify {place_word(self.checkpoint)}`; {ways}",
        )


@dataclass(frozen=True, slots=True)
class Rollback(JsonShape):
    """A fallback from a damaged checkpoint to an older state.

    Attributes:
        query: The query.
        checkpoint: The checkpoint's address, where the older state takes its place.
        aside: The path that the damaged one is moved to.
        savepoint: The address of the savepoint that the new one is made of.
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


def look(
    checkpoints: Mapping[str, str], home: Path, limit_ms: int
) -> tuple[list[CheckpointDamage], list[str]]:
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
    damage: list[CheckpointDamage] = []
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
            damage.append(
                CheckpointDamage(query, address, blocks, verification.batch_id, max(older, default=None))
            )
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
        (
            problem
            for problem in verification.problems
            if not isinstance(layout.parse_covered(problem.file), batches)
        ),
        None,
    )


def go_back(
    damage: CheckpointDamage, kind: Fallback, catalogs: Iterable[str], now_ms: int, target: str
) -> Rollback:
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
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_ms / 1000))
        way = _way(place, damage.query, stamp, savepoint, batch_id, damage.newest)
        guard.require_unmoved()
        LocalStorage(place.parent).write(_note_name(place), _written(way, stamp), replace=True)
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


def _way(place: Path, query: str, stamp: str, savepoint: str, batch_id: int, newest: int) -> Rollback:
    aside = place.with_name(f"{place.name}.damaged-{stamp}")
    own = _is_in(savepoint, _own_catalog(place).as_posix())
    return Rollback(query, f"file://{place}", str(aside), savepoint, batch_id, newest, own)


def _own_catalog(place: Path) -> Path:
    """The catalog of the savepoint that is made of the damaged checkpoint itself."""
    return place.with_name(f".{place.name}{_CATALOG}")


def _is_in(savepoint: str, catalog: str) -> bool:
    return is_savepoint(savepoint) and split_address(savepoint)[0] == open_storage(catalog).uri


def finish(way: Rollback, catalogs: Iterable[str]) -> None:
    """Finish a fallback that was begun.

    Args:
        way: The fallback.
        catalogs: The addresses of the job's catalogs.

    Raises:
        Corrupt: The note names a savepoint that is not one of the job's, or a link is where the checkpoint
            should be.
        HoldfastError: The savepoint has gone or is damaged by now, or the checkpoint cannot be moved.
    """
    if not _is_made(way):
        _require_own_savepoint(way, [*catalogs])
    with held_between_drivers(LocalStorage(_place_of(way)), _VERB):
        _move_aside(way)
        _make(way)


def _require_own_savepoint(way: Rollback, catalogs: list[str]) -> None:
    """Refuse a savepoint that `go_back` would not have chosen: somebody else may have written the note."""
    if not way.own and not any(_is_in(way.savepoint, catalog) for catalog in catalogs):
        raise Corrupt(
            f"{_WHAT} names a savepoint that is in none of the job's catalogs",
            code="HF-E6034",
            where=str(_note_of(way)),
            found=way.savepoint,
            expected=f"a savepoint in {' or '.join(catalogs) or 'a catalog of the job, which has none'}",
            hint=f"if it is the right one, give the job its catalog with savepoints=; otherwise: {_DELETE}",
        )
    catalog, savepoint_id = split_address(way.savepoint)
    checkpoint = load(open_storage(catalog), savepoint_id).checkpoint
    if checkpoint != way.checkpoint:
        raise Corrupt(
            f"{_WHAT} names a savepoint of a different checkpoint",
            code="HF-E6035",
            where=str(_note_of(way)),
            found=f"{way.savepoint}, which was taken of {checkpoint}",
            expected=f"a savepoint of {way.checkpoint}",
            hint=_DELETE,
        )


def _move_aside(way: Rollback) -> None:
    place, aside = _place_of(way), Path(way.aside)
    try:
        if not aside.exists():
            place.rename(aside)
    except OSError as error:
        raise Unavailable(
            "the damaged checkpoint cannot be moved aside",
            code="HF-E5029",
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
    if _is_made(way):
        return
    place = _place_of(way)
    if place.is_symlink():
        raise Corrupt(
            "a symbolic link is where a checkpoint should be",
            code="HF-E6036",
            where=str(place),
            expected="a directory, or nothing",
            hint="remove the link, and run the job again",
        )
    savepoints.restore_once(way.savepoint, way.checkpoint)


def _is_made(way: Rollback) -> bool:
    """Return whether the older state is in place; the query may have run on it since."""
    place = LocalStorage(_place_of(way))
    return Path(way.aside).exists() and bool(Logs(place).offered) and place.size(layout.METADATA) is not None


def _note_of(way: Rollback) -> Path:
    place = _place_of(way)
    return place.with_name(_note_name(place))


def _place_of(way: Rollback) -> Path:
    return Path(way.checkpoint.removeprefix("file://"))


def _note_name(place: Path) -> str:
    return f".{place.name}{_NOTE}"


def under_way(checkpoint: str) -> list[Rollback]:
    """Return the fallbacks that a job has begun: of its only query, or of several below its checkpoint.

    Raises:
        Corrupt: The note of one is damaged.
    """
    base = local_path(checkpoint)
    if base is None:
        return []
    found = []
    own = LocalStorage(base.parent)
    if own.size(_note_name(base)) is not None:
        found.append(_read(own, base))
    below = LocalStorage(base)
    for name in sorted(below.list().names):
        query = name.removeprefix(".").removesuffix(_NOTE)
        if query and name == _note_name(base / query) and below.size(name) is not None:
            way = _read(below, base / query)
            if way.query != query:
                raise _damaged(base / name, f"query {way.query!r}", f"query {query!r}")
            found.append(way)
    return found


def done(way: Rollback) -> None:
    """Forget a fallback: the lost batches have been run again. The damaged checkpoint stays."""
    place = _place_of(way)
    place.with_name(_note_name(place)).unlink(missing_ok=True)
    if way.own:
        shutil.rmtree(_own_catalog(place), ignore_errors=True)


def _written(way: Rollback, stamp: str) -> bytes:
    """Return the content of a note; paths are left out on purpose."""
    fields = {"query": way.query, "stamp": stamp, "savepoint": way.savepoint}
    return json.dumps({**fields, "batch_id": way.batch_id, "newest": way.newest}).encode()


def _read(storage: Storage, place: Path) -> Rollback:
    """Read the note of a fallback of the checkpoint at a path.

    Raises:
        Corrupt: It is damaged.
    """
    name = _note_name(place)
    note = str(place.with_name(name))
    try:
        fields = json_object(decoded(storage.read(name), _WHAT, note), _WHAT, note)
        query, stamp, savepoint = (
            string(fields, key, _WHAT, note) for key in ("query", "stamp", "savepoint")
        )
        batch_id, newest = (whole_number(fields, key, _WHAT, note) for key in ("batch_id", "newest"))
    except Corrupt as error:
        raise _damaged(note, error.found or error.fact, error.expected) from error
    if not _STAMP.fullmatch(stamp):
        raise _damaged(note, f"the time {stamp!r}", "a time such as 20260305T080000Z")
    return _way(place, query, stamp, savepoint, batch_id, newest)


def _damaged(note: str | Path, found: str, expected: str | None) -> Corrupt:
    return Corrupt(
        f"{_WHAT} is damaged", code="HF-E6037", where=str(note), found=found, expected=expected, hint=_DELETE
    )


def _of_batch(damage: CheckpointDamage, place: Path, target: str) -> tuple[str, int]:
    if damage.whole is None:
        raise _no_way(damage, target, "no older batch of it is whole")
    catalog = _own_catalog(place)
    shutil.rmtree(catalog, ignore_errors=True)  # a killed try's
    if catalog.is_symlink():
        catalog.unlink()
    taken = savepoints.take(place, catalog, batch=damage.whole, label="fallback", digest=False)
    return taken.uri, damage.whole


def _of_savepoint(damage: CheckpointDamage, catalogs: Iterable[str], target: str) -> tuple[str, int]:
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


def _no_way(damage: CheckpointDamage, target: str, why: str) -> Corrupt:
    error = damage.error(target)
    return Corrupt(error.fact, **(error.facts() | {"found": f"{error.found}; {why}"}))
