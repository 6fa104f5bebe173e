"""Fall back from a damaged checkpoint to an older state.

A damaged checkpoint, or one of new code that an upgrade takes back, is kept. It is replaced with a restored
savepoint: an existing one, or one of the newest whole batch in the damaged checkpoint. On a local disk the
damaged checkpoint is moved aside. On S3 and HDFS it stays, and the restored one becomes its successor. A note
next to the checkpoint records the fallback, from before the first step until the lost batches have been run
again; after a kill the next process finishes.

The note may be written by anyone who may write to the checkpoint, and a supervisor on a different machine has
to find it. So it names no paths, which follow from its location. Its savepoint has to be one of the job's.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.checkpoints.logs import Logs
from holdfast.config.checks import local_path, place_word
from holdfast.config.policies import Fallback
from holdfast.errors import Conflict, Corrupt, Unavailable
from holdfast.jobs.checkpoint_damage import CheckpointDamage
from holdfast.jobs.fallback_note import (
    DAMAGED,
    DELETE,
    NOTE,
    UPGRADED,
    WHAT,
    FallbackNote,
    damaged_note,
    read_note,
)
from holdfast.json_shapes import JsonShape
from holdfast.ownership.checkpoint_guard import (
    CheckpointGuard,
    file_marks,
    held_between_drivers,
    moves_between,
    written_meanwhile,
)
from holdfast.ownership.checkpoint_lease import can_have_successors
from holdfast.savepoints import savepoint_api as savepoints
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.catalog import listed, load, savepoint_uri
from holdfast.savepoints.restoring import withdraw
from holdfast.storage import open_storage
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage, files_below
from holdfast.storage.successors import (
    beside_checkpoint,
    first_address,
    former_address,
    list_successors,
    parse_successor,
    publish_successor,
    require_beside,
    retire,
    successor_address,
    unused_number,
)

_CATALOG: Final = ".holdfast.fallback"
_VERB: Final = "run --on-damage"
# Checks that this process still owns the checkpoint.
Require = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Rollback(JsonShape):
    """A fallback from a damaged checkpoint to an older state.

    Attributes:
        query: The query.
        checkpoint: The checkpoint's address, where the older state is put; on S3 and HDFS a new address.
        aside: The path that the damaged one is moved to; on S3 and HDFS its address, which it keeps.
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


def ignore_lease() -> None:
    """Check nothing: on a local disk a lock is enough."""


def go_back(
    damage: CheckpointDamage,
    kind: Fallback,
    catalogs: Iterable[str],
    now_ms: int,
    target: str,
    require: Require = ignore_lease,
) -> Rollback:
    """Replace a damaged checkpoint with an older state; the damaged one is kept.

    The job's supervisor calls it while no driver runs. The replacement is verified before anything is moved.
    A write to the checkpoint meanwhile, for example by a plain query, stops the fallback.

    Cost: that of a savepoint and a restore, on the same disk mostly hard links.

    Args:
        damage: The damage.
        kind: The fallback.
        catalogs: The catalogs of the job's savepoints.
        now_ms: The time, which becomes part of the name of the damaged one.
        target: The job file, for the hint of an error.
        require: Checks that this process still owns the checkpoint, before it is replaced.

    Raises:
        Corrupt: No whole state exists to fall back to, or a checkpoint on this storage cannot be replaced.
        Conflict: The checkpoint is in use.
    """
    place = local_path(damage.checkpoint)
    if place is None and not can_have_successors(damage.checkpoint):
        raise _no_way(damage, target, "a checkpoint on this storage can be neither moved aside nor replaced")
    with held_between_drivers(open_storage(damage.checkpoint), _VERB) as guard:
        if kind == "batch":
            savepoint, batch_id = _of_batch(damage, target)
        else:
            savepoint, batch_id = _of_savepoint(damage, catalogs, target)
        guard.require_unmoved()
        if place is None:
            way = _begin_successor(damage, now_ms, savepoint, batch_id)
            _succeed(way, guard, require)
            return way
        way = _begin(place, damage.query, DAMAGED, now_ms, savepoint, batch_id, damage.newest)
        _move_aside(way)
        _require_left_alone(way, guard)
        _make(way)
    return way


def _begin_successor(damage: CheckpointDamage, now_ms: int, savepoint: str, batch_id: int) -> Rollback:
    """Write the note of a fallback to a successor, before its first step."""
    first = first_address(damage.checkpoint)
    number = unused_number(first)
    way = _way_beside(first, number, damage.query, savepoint, batch_id, damage.newest)
    _write_note(way, DAMAGED, _stamp(now_ms), number)
    return way


def _write_note(way: Rollback, why: str, stamp: str, number: int | None = None) -> None:
    storage, name = _note_at(way)
    note = FallbackNote(way.query, why, stamp, way.savepoint, way.batch_id, way.newest, number)
    storage.write(name, note.render(), replace=True)


def _way_beside(first: str, number: int, query: str, savepoint: str, batch_id: int, newest: int) -> Rollback:
    own = _is_in(savepoint, _own_catalog(first))
    made, aside = successor_address(first, number), former_address(first, number)
    return Rollback(query, made, aside, savepoint, batch_id, newest, own)


def _succeed(way: Rollback, guard: CheckpointGuard, require: Require) -> None:
    """Create the successor, publish it, and retire the damaged checkpoint.

    Raises:
        Conflict: The damaged checkpoint was written to; the successor is then deleted.
    """
    savepoints.restore_once(way.savepoint, way.checkpoint)
    try:
        guard.require_unmoved()
    except Conflict:
        withdraw(open_storage(way.checkpoint))
        done(way)
        raise
    require()
    publish_successor(*parse_successor(way.checkpoint), DAMAGED)
    retire(open_storage(way.aside), way.checkpoint)


def _is_published(way: Rollback) -> bool:
    first, number = parse_successor(way.checkpoint)
    return number in list_successors(first)


def _finish_successor(way: Rollback, catalogs: list[str], require: Require) -> None:
    """Finish a fallback to a successor that was begun.

    Raises:
        Conflict: A query has continued the damaged checkpoint since.
    """
    damaged = open_storage(way.aside)
    if _is_published(way):
        retire(damaged, way.checkpoint)
        return
    _require_own_savepoint(way, catalogs)
    with held_between_drivers(damaged, _VERB) as guard:
        newest = Logs(damaged).newest
        if newest != way.newest:
            raise Conflict(
                "a query has continued the damaged checkpoint after the fallback had begun",
                code="HF-E4091",
                where=way.aside,
                found=f"batch {newest}",
                expected=f"batch {way.newest}",
                hint=f"stop the query; to keep its batches, delete {_full_note(way)}, then run the job again",
            )
        _succeed(way, guard, require)


def unusable_fallback(kind: Fallback | None, checkpoints: Iterable[str]) -> str | None:
    """Return a warning if a fallback is set and cannot replace one of a job's checkpoints; else None.

    Args:
        kind: The fallback that the job has.
        checkpoints: The addresses of its checkpoints.
    """
    elsewhere = next(
        (each for each in checkpoints if local_path(each) is None and not can_have_successors(each)), None
    )
    if kind is None or elsewhere is None:
        return None
    return (
        f"fallback={kind!r} has no effect on {elsewhere}: a checkpoint on this storage can be neither moved"
        " aside nor replaced. If this one is damaged, the job ends; then create a new checkpoint from a"
        " savepoint with `holdfast restore`"
    )


def put_back(query: str, checkpoint: str, savepoint: str, newest: int, now_ms: int) -> Rollback:
    """Replace a checkpoint, which new code has used, with the savepoint from before; it is moved aside.

    The job's next start runs the batches that the new code has planned again, with the same input. A call
    after a kill finishes the work.

    Args:
        query: The query.
        checkpoint: The checkpoint's address.
        savepoint: The savepoint.
        newest: The newest committed batch of the checkpoint.
        now_ms: The time, which becomes part of the name of the checkpoint that is moved aside.

    Raises:
        Corrupt: The savepoint is damaged, or the checkpoint is not on a local disk.
        Conflict: The checkpoint is in use.
    """
    place = local_path(checkpoint)
    if place is None:
        raise Corrupt(
            "a checkpoint that is not on a local disk cannot be moved aside",
            code="HF-E6061",
            where=checkpoint,
            hint=f"create a new checkpoint with `holdfast restore {place_word(savepoint)} CHECKPOINT`",
        )
    beside = LocalStorage(place.parent)
    with held_between_drivers(LocalStorage(place), "upgrade"):
        if beside.size(_note_name(place.name)) is not None:
            way = _read(beside, f"file://{place}")
        else:
            batch_id = load(*StateAddress.parse(savepoint).open_savepoint()).batch_id
            way = _begin(place, query, UPGRADED, now_ms, savepoint, batch_id, newest)
        _move_aside(way)
        _make(way)
    return way


def _begin(
    place: Path, query: str, why: str, now_ms: int, savepoint: str, batch_id: int, newest: int
) -> Rollback:
    """Write the note of a fallback, before its first step."""
    stamp = _stamp(now_ms)
    way = _way(place, query, why, stamp, savepoint, batch_id, newest)
    _write_note(way, why, stamp)
    return way


def _stamp(now_ms: int) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_ms / 1000))


def _way(
    place: Path, query: str, why: str, stamp: str, savepoint: str, batch_id: int, newest: int
) -> Rollback:
    aside = place.with_name(f"{place.name}.{why}-{stamp}")
    own = _is_in(savepoint, _own_catalog(f"file://{place}"))
    return Rollback(query, f"file://{place}", str(aside), savepoint, batch_id, newest, own)


def _own_catalog(first: str) -> str:
    """Return the address of the catalog of the savepoint that is taken of the damaged checkpoint."""
    above, _, name = first.rpartition("/")
    return f"{above}/.{name}{_CATALOG}"


def _delete_catalog(address: str) -> None:
    place = local_path(address)
    if place is None:
        catalog = open_storage(address)
        for path in [*files_below(catalog)]:
            catalog.delete(path)
        return
    shutil.rmtree(place, ignore_errors=True)
    if place.is_symlink():
        place.unlink()


def _is_in(savepoint: str, catalog: str) -> bool:
    address = StateAddress.parse(savepoint)
    return address.is_savepoint and address.catalog == open_storage(catalog).uri


def finish(way: Rollback, catalogs: Iterable[str], require: Require = ignore_lease) -> None:
    """Finish a fallback that was begun.

    Args:
        way: The fallback.
        catalogs: The addresses of the job's catalogs.
        require: Checks that this process still owns the checkpoint, before it is replaced.

    Raises:
        Corrupt: The note names a savepoint that is not one of the job's, or the checkpoint is a link.
        HoldfastError: The savepoint is missing or damaged, or the checkpoint cannot be moved.
    """
    if local_path(way.checkpoint) is None:
        _finish_successor(way, [*catalogs], require)
        return
    if not _is_made(way):
        _require_own_savepoint(way, [*catalogs])
    with held_between_drivers(LocalStorage(_place_of(way)), _VERB):
        _move_aside(way)
        _make(way)


def _require_own_savepoint(way: Rollback, catalogs: list[str]) -> None:
    """Refuse a savepoint that `go_back` would not have chosen; the note may be forged."""
    if not way.own and not any(_is_in(way.savepoint, catalog) for catalog in catalogs):
        raise Corrupt(
            f"{WHAT} names a savepoint outside the job's catalogs",
            code="HF-E6034",
            where=_full_note(way),
            found=way.savepoint,
            expected=f"a savepoint in {' or '.join(catalogs) or 'a catalog of the job (none is set)'}",
            hint="if the savepoint is right, set savepoints= of the job to the catalog of the savepoint;"
            f" otherwise {DELETE}",
        )
    checkpoint = load(*StateAddress.parse(way.savepoint).open_savepoint()).checkpoint
    if checkpoint not in _former_addresses(way.checkpoint):
        raise Corrupt(
            f"{WHAT} names a savepoint of a different checkpoint",
            code="HF-E6035",
            where=_full_note(way),
            found=f"{way.savepoint}, a savepoint of {checkpoint}",
            expected=f"a savepoint of {way.checkpoint}",
            hint=DELETE,
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
            place.with_name(_note_name(place.name)).unlink(missing_ok=True)
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


def _former_addresses(checkpoint: str) -> set[str]:
    """Return the addresses that a checkpoint has had, and has; savepoints name the one of their time."""
    first, number = parse_successor(checkpoint)
    numbers = [*list_successors(first), number]
    return {checkpoint, first, *(successor_address(first, each) for each in numbers)}


def _note_at(way: Rollback) -> tuple[Storage, str]:
    """Return the directory of a fallback's note, and the note's name."""
    place = local_path(way.checkpoint)
    if place is not None:
        return LocalStorage(place.parent), _note_name(place.name)
    storage, name = require_beside(parse_successor(way.checkpoint)[0])
    return storage, _note_name(name)


def _full_note(way: Rollback) -> str:
    return _address_of(*_note_at(way))


def _address_of(storage: Storage, name: str) -> str:
    return f"{storage.uri.removeprefix('file://').rstrip('/')}/{name}"


def _place_of(way: Rollback) -> Path:
    return Path(way.checkpoint.removeprefix("file://"))


def _note_name(checkpoint: str) -> str:
    """Return the name of the note next to a checkpoint of this name."""
    return f".{checkpoint}{NOTE}"


def under_way(checkpoint: str) -> list[Rollback]:
    """Return the fallbacks that a job has begun.

    Raises:
        Corrupt: The note of a fallback is damaged.
    """
    if local_path(checkpoint) is None and not can_have_successors(checkpoint):
        return []
    found = []
    beside, below = beside_checkpoint(checkpoint), open_storage(checkpoint)
    if beside is not None and beside[0].size(_note_name(beside[1])) is not None:
        found.append(_read(beside[0], checkpoint))
    for name in sorted(below.list().names):
        query = name.removeprefix(".").removesuffix(NOTE)
        if query and name == _note_name(query) and below.size(name) is not None:
            way = _read(below, f"{checkpoint}/{query}")
            if way.query != query:
                raise damaged_note(_address_of(below, name), f"query {way.query!r}", f"query {query!r}")
            found.append(way)
    return found


def done(way: Rollback) -> None:
    """Delete the note of a fallback whose lost batches were repeated; the damaged checkpoint is kept."""
    storage, name = _note_at(way)
    storage.delete(name)
    if way.own:
        _delete_catalog(_own_catalog(parse_successor(way.checkpoint)[0]))


def _read(storage: Storage, checkpoint: str) -> Rollback:
    """Read the note of a fallback of the checkpoint that has, or at first had, this address.

    Raises:
        Corrupt: The note is damaged, or an older successor is meant.
    """
    name = _note_name(checkpoint.rpartition("/")[2])
    note = _address_of(storage, name)
    fields = read_note(storage, name, note)
    found = (fields.savepoint, fields.batch_id, fields.newest)
    place = local_path(checkpoint)
    if place is not None:
        return _way(place, fields.query, fields.why, fields.stamp, *found)
    least = max(list_successors(checkpoint), default=1)
    if fields.number is None or fields.number < least:
        raise damaged_note(note, f"number {fields.number}", f"a number of at least {least}")
    return _way_beside(checkpoint, fields.number, fields.query, *found)


def _of_batch(damage: CheckpointDamage, target: str) -> tuple[str, int]:
    if damage.whole is None:
        raise _no_way(damage, target, "the checkpoint has no older whole batch")
    catalog = _own_catalog(first_address(damage.checkpoint))
    _delete_catalog(catalog)  # a killed try's
    taken = savepoints.take_savepoint(
        damage.checkpoint, catalog, batch=damage.whole, label="fallback", digest=False
    )
    return taken.uri, damage.whole


def _of_savepoint(damage: CheckpointDamage, catalogs: Iterable[str], target: str) -> tuple[str, int]:
    """Return the newest whole savepoint of this checkpoint."""
    tried = []
    addresses = _former_addresses(damage.checkpoint)
    for address in catalogs:
        catalog = open_storage(address, "savepoints")
        for savepoint in reversed(list(listed(catalog))):
            if savepoint.manifest is None or savepoint.manifest.checkpoint not in addresses:
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
