"""Check that checkpoints are whole before a restart, and fall back to an older state where configured.

A damaged checkpoint is moved aside and kept. It is replaced with a restored savepoint: an existing one, or
one of the newest whole batch in the damaged checkpoint. A note next to the checkpoint records the fallback,
from before the first step until the lost batches have been run again; after a kill the next process finishes.

The note may be written by anyone who may write to the checkpoint, and a supervisor on a different machine has
to find it. So it names no paths, which follow from its location. Its savepoint has to be one of the job's.
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
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.catalog import listed, load, savepoint_uri
from holdfast.storage import open_storage
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

_NOTE: Final = ".holdfast.fallback.json"
_WHAT: Final = "the file of an unfinished fallback"
_STAMP: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_DELETE: Final = "delete this file if the checkpoint next to it is undamaged"
_CATALOG: Final = ".holdfast.fallback"
_VERB: Final = "run --on-damage"


class _OutOfTime(Exception):
    """Raised when the time limit for a check is over."""


@dataclass(frozen=True, slots=True)
class CheckpointDamage:
    """A checkpoint that a restart must not build on.

    Attributes:
        query: The query.
        checkpoint: The address of its checkpoint.
        problem: The first problem found.
        newest: The newest committed batch.
        whole: The newest earlier batch whose files are all whole, if any.
    """

    query: str
    checkpoint: str
    problem: Problem
    newest: int
    whole: int | None

    def error(self, target: str) -> Corrupt:
        """Return the error that asks for a decision."""
        ways = f"`holdfast run {target} --on-damage savepoint` resumes from the newest savepoint"
        if self.whole is not None:
            ways += f", `--on-damage batch` from batch {self.whole}"
        return Corrupt(
            f"the checkpoint of query {self.query!r} is damaged, so the query was not restarted",
            code="HF-E6033",
            where=f"{self.checkpoint}/{self.problem.file}",
            found=self.problem.what,
            hint=f"list all damage with `holdfast checkpoint verify {place_word(self.checkpoint)}`; {ways}",
        )


@dataclass(frozen=True, slots=True)
class Rollback(JsonShape):
    """A fallback from a damaged checkpoint to an older state.

    Attributes:
        query: The query.
        checkpoint: The checkpoint's address, where the older state is put.
        aside: The path that the damaged one is moved to.
        savepoint: The address of the savepoint from which the new one is restored.
        batch_id: The savepoint's batch.
        newest: The newest committed batch of the damaged one.
        own: True if the savepoint was taken for this fallback.
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
    """Check whether a restart can use checkpoints that are not in use at the moment.

    Damage that affects only older batches does not block a restart, but is reported.

    Cost: every file is read, up to the time limit.

    Args:
        checkpoints: Addresses, by query.
        home: The state home, for its integrity records.
        limit_ms: The time limit.

    Returns:
        The damaged checkpoints, and further messages, a line each.
    """
    deadline = time.monotonic() + limit_ms / 1000
    damage: list[CheckpointDamage] = []
    notes: list[str] = []
    for query, address in checkpoints.items():
        try:
            verification = _verified(address, home, deadline)
        except _OutOfTime:
            notes.append(f"query {query}: the check of its checkpoint was not finished within the time limit")
            continue
        except NotFound:
            continue  # it has not come to its first batch
        except HoldfastError as error:
            if error.found in EXTERNAL_PROVIDERS:
                continue  # its logs are whole; Spark's tasks look at a store in a database when they begin
            notes.append(f"query {query}: its checkpoint could not be checked: {error.fact}")
            continue
        blocks = _blocking(verification)
        if blocks is not None and verification.batch_id is not None:
            older = [batch_id for batch_id in verification.restorable if batch_id < verification.batch_id]
            damage.append(
                CheckpointDamage(query, address, blocks, verification.batch_id, max(older, default=None))
            )
        elif verification.problems:
            first = verification.problems[0]
            notes.append(f"query {query}: {first.file} is damaged; only older batches need it")
    return damage, notes


def _verified(address: str, home: Path, deadline: float) -> Verification:
    def tell(_done: int, _total: int, _note: str) -> None:
        if time.monotonic() > deadline:
            raise _OutOfTime

    storage = open_storage(address)
    record, _ = find_record(home, storage)
    return verify(storage, tell, unpack=False, record=record)


def _blocking(verification: Verification) -> Problem | None:
    """Return the first problem that affects a restart from the newest batch."""
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
    """Replace a damaged checkpoint with an older state; the damaged one is moved aside.

    The job's supervisor calls it while no driver runs. The replacement is verified before anything is moved.
    A write to the checkpoint meanwhile, for example by a plain query, stops the fallback.

    Cost: that of a savepoint and a restore, on the same disk mostly hard links.

    Args:
        damage: The damage.
        kind: The fallback.
        catalogs: The catalogs of the job's savepoints.
        now_ms: The time, which becomes part of the name of the damaged one.
        target: The job file, for the hint of an error.

    Raises:
        Corrupt: No whole state exists to fall back to, or the checkpoint is not on a local disk.
        Conflict: The checkpoint is in use.
    """
    place = local_path(damage.checkpoint)
    if place is None:
        raise _no_way(damage, target, "a checkpoint that is not on a local disk cannot be moved aside")
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
        " aside. If this one is damaged, the job ends; then create a new checkpoint from a savepoint with"
        " `holdfast restore`"
    )


def _way(place: Path, query: str, stamp: str, savepoint: str, batch_id: int, newest: int) -> Rollback:
    aside = place.with_name(f"{place.name}.damaged-{stamp}")
    own = _is_in(savepoint, _own_catalog(place).as_posix())
    return Rollback(query, f"file://{place}", str(aside), savepoint, batch_id, newest, own)


def _own_catalog(place: Path) -> Path:
    """Return the catalog of the savepoint that is taken of the damaged checkpoint."""
    return place.with_name(f".{place.name}{_CATALOG}")


def _is_in(savepoint: str, catalog: str) -> bool:
    address = StateAddress.parse(savepoint)
    return address.is_savepoint and address.catalog == open_storage(catalog).uri


def finish(way: Rollback, catalogs: Iterable[str]) -> None:
    """Finish a fallback that was begun.

    Args:
        way: The fallback.
        catalogs: The addresses of the job's catalogs.

    Raises:
        Corrupt: The note names a savepoint that is not one of the job's, or the checkpoint is a link.
        HoldfastError: The savepoint is missing or damaged, or the checkpoint cannot be moved.
    """
    if not _is_made(way):
        _require_own_savepoint(way, [*catalogs])
    with held_between_drivers(LocalStorage(_place_of(way)), _VERB):
        _move_aside(way)
        _make(way)


def _require_own_savepoint(way: Rollback, catalogs: list[str]) -> None:
    """Refuse a savepoint that `go_back` would not have chosen; the note may be forged."""
    if not way.own and not any(_is_in(way.savepoint, catalog) for catalog in catalogs):
        raise Corrupt(
            f"{_WHAT} names a savepoint outside the job's catalogs",
            code="HF-E6034",
            where=str(_note_of(way)),
            found=way.savepoint,
            expected=f"a savepoint in {' or '.join(catalogs) or 'a catalog of the job (none is set)'}",
            hint="if the savepoint is right, set savepoints= of the job to the catalog of the savepoint;"
            f" otherwise {_DELETE}",
        )
    checkpoint = load(*StateAddress.parse(way.savepoint).open_savepoint()).checkpoint
    if checkpoint != way.checkpoint:
        raise Corrupt(
            f"{_WHAT} names a savepoint of a different checkpoint",
            code="HF-E6035",
            where=str(_note_of(way)),
            found=f"{way.savepoint}, a savepoint of {checkpoint}",
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
            "the damaged checkpoint cannot be renamed",
            code="HF-E5029",
            where=str(place),
            found=error.strerror,
            hint=f"make {place.parent} writable, then run the job again",
        ) from error


def _require_left_alone(way: Rollback, guard: CheckpointGuard) -> None:
    """Raise if the damaged checkpoint was written to while it was moved aside; it is then moved back.

    Raises:
        Conflict: It was written to.
    """
    place, aside = _place_of(way), Path(way.aside)
    moves = moves_between(guard.marks, file_marks(LocalStorage(aside)))
    anew = sorted(file_marks(LocalStorage(place)))
    if not moves and not anew:
        return
    done = (
        f"the damaged checkpoint is in {aside}, the files written meanwhile are at its former path, and"
        " nothing was deleted"
    )
    if not anew:
        # A query that makes its directory again at this moment is told of, and nothing is lost.
        with suppress(OSError):
            if place.exists():
                place.rmdir()
            aside.rename(place)
            place.with_name(_note_name(place)).unlink(missing_ok=True)
            done = "the checkpoint was moved back to its path"
    raise written_meanwhile(way.checkpoint, [*moves, *(f"{path} is new" for path in anew)], done)


def _make(way: Rollback) -> None:
    if _is_made(way):
        return
    place = _place_of(way)
    if place.is_symlink():
        raise Corrupt(
            "the fallback cannot be put in place, because the checkpoint's path is a symbolic link",
            code="HF-E6036",
            where=str(place),
            hint="remove the link, then run the job again",
        )
    savepoints.restore_once(way.savepoint, way.checkpoint)


def _is_made(way: Rollback) -> bool:
    """Return True if the older state is in place; the query may have run on it since."""
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
    """Return the fallbacks that a job has begun.

    Raises:
        Corrupt: The note of a fallback is damaged.
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
    """Delete the note of a fallback whose lost batches were repeated; the damaged checkpoint is kept."""
    place = _place_of(way)
    place.with_name(_note_name(place)).unlink(missing_ok=True)
    if way.own:
        shutil.rmtree(_own_catalog(place), ignore_errors=True)


def _written(way: Rollback, stamp: str) -> bytes:
    """Return the content of a note, without paths."""
    fields = {"query": way.query, "stamp": stamp, "savepoint": way.savepoint}
    return json.dumps({**fields, "batch_id": way.batch_id, "newest": way.newest}).encode()


def _read(storage: Storage, place: Path) -> Rollback:
    """Read the note of a fallback of the checkpoint at a path.

    Raises:
        Corrupt: The note is damaged.
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
        raise _no_way(damage, target, "the checkpoint has no older whole batch")
    catalog = _own_catalog(place)
    shutil.rmtree(catalog, ignore_errors=True)  # a killed try's
    if catalog.is_symlink():
        catalog.unlink()
    taken = savepoints.take_savepoint(place, catalog, batch=damage.whole, label="fallback", digest=False)
    return taken.uri, damage.whole


def _of_savepoint(damage: CheckpointDamage, catalogs: Iterable[str], target: str) -> tuple[str, int]:
    """Return the newest whole savepoint of this checkpoint."""
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
    damaged = (
        f"the savepoints of the checkpoint are damaged as well: {', '.join(tried)}"
        if tried
        else "the checkpoint has no savepoint"
    )
    raise _no_way(damage, target, damaged)


def _no_way(damage: CheckpointDamage, target: str, why: str) -> Corrupt:
    error = damage.error(target)
    return Corrupt(error.fact, **(error.facts() | {"found": f"{error.found}; {why}"}))
