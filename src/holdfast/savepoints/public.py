"""Savepoints by address: what `hf.savepoints` offers. Without Spark; the query may run or not."""

from __future__ import annotations

import builtins
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.check import whole
from holdfast.config.storage import local_path
from holdfast.config.units import Duration, parse_duration
from holdfast.formats.manifest import Manifest
from holdfast.savepoints import catalog as catalogs
from holdfast.savepoints import removal, restoring, taking
from holdfast.savepoints.catalog import Listed
from holdfast.savepoints.copying import Tell
from holdfast.savepoints.difference import Difference, compare
from holdfast.savepoints.pace import Pace, seems_to_run
from holdfast.savepoints.places import place_of
from holdfast.savepoints.planning import plan_take
from holdfast.savepoints.proof import Proof, prove
from holdfast.savepoints.removal import Removal
from holdfast.savepoints.restoring import Operation, Restored, plan_restore
from holdfast.savepoints.taking import Taken
from holdfast.storage import open_storage
from holdfast.storage.port import Storage
from holdfast.storage.sandbox import sandbox

if TYPE_CHECKING:
    from holdfast.savepoints.rescaling import Rescaled, RescalePlan, Source
    from holdfast.savepoints.state_difference import State, StatesDifference

Address = str | os.PathLike[str]


def take(
    checkpoint: Address,
    catalog: Address,
    *,
    batch: int | None = None,
    label: str | None = None,
    deep: bool = False,
    gentle: bool | None = None,
    tell: Tell | None = None,
) -> Taken:
    """Take a savepoint of a query's checkpoint, while the query runs or not.

    The query is not paused and its checkpoint is not touched. What the catalog holds already is not stored
    again; on the checkpoint's own disk nothing is copied at all, which also means that a savepoint there
    does not outlive that disk.

    Args:
        checkpoint: The checkpoint's path or URI.
        catalog: The directory of savepoints; made if need be.
        batch: A committed batch whose state is still kept; the newest by default.
        label: A name for people.
        deep: Read the rows of the state, so that the manifest has their exact number and a digest of each
            state, which `verify(deep=True)` compares. It takes about two seconds a million rows; state of up
            to 2 MB is read in any case.
        gentle: Use a few hundredths of this machine's processors only, for ten seconds at the most, so that
            a running query keeps its pace. By default that is done where a batch was begun in the last
            minute.
        tell: Called with files done, files in all, and what is being done.

    Returns:
        The savepoint: its address is `uri`.

    Raises:
        NotFound: There is no checkpoint, or the batch is not committed or no longer kept.
        Corrupt: The checkpoint is damaged; there is no savepoint.
        Conflict: Savepoints are being removed from the catalog.
        Invalid: An argument cannot be right.
        Unsupported: The rows were asked for, and are of a kind that cannot be read.
        Unavailable: A storage does not answer, or the query deletes files faster than they can be copied.
    """
    if batch is not None:
        whole(batch, "batch", least=0)
    taking.check_label(label)
    origin, into = open_storage(os.fspath(checkpoint)), open_storage(os.fspath(catalog), "catalog")
    plan = plan_take(origin, into, batch)
    pace = Pace() if (seems_to_run(origin, now_ms()) if gentle is None else gentle) else None
    return taking.take(
        origin, into, plan, clock=now_ms, chance=os.urandom, label=label, deep=deep, pace=pace, tell=tell
    )


def list(catalog: Address) -> tuple[Listed, ...]:  # noqa: A001 - the word that people know
    """Every savepoint in a catalog, oldest first; one whose manifest is damaged says so.

    Raises:
        Unavailable: The catalog does not answer.
    """
    return tuple(catalogs.listed(open_storage(os.fspath(catalog), "catalog")))


def show(savepoint: Address) -> Manifest:
    """What a savepoint says of itself.

    Raises:
        NotFound: There is no such savepoint.
        Corrupt: Its manifest is damaged.
    """
    return catalogs.load(*opened(savepoint))


def verify(savepoint: Address, *, deep: bool = False, tell: Tell | None = None) -> Proof:
    """Prove that a savepoint is, bit for bit, what was taken, and that it fits together.

    Args:
        savepoint: The savepoint's address.
        deep: Read every row of the state too, and compare their number and digest with the manifest's, as
            far as it has them.
        tell: Called with what is done, what there is in all, and what is being done.

    Returns:
        The proof: `ok`, or the `problems`, each with its file.

    Raises:
        NotFound: There is no such savepoint.
    """
    return prove(*opened(savepoint), deep=deep, tell=tell)


def diff(first: Address, second: Address, *, samples: int = 5, tell: Tell | None = None) -> StatesDifference:
    """What differs between two states key by key: keys added, removed and changed, with some of them.

    Partitions, files and providers may be different, and the two may be of different queries. Holdfast's own
    keyed operators are compared by the keys of their users.

    Args:
        first: A savepoint's address, or a checkpoint's, with `@BATCH` behind it for another batch than the
            newest.
        second: Another one.
        samples: How many keys of each kind of difference to show, of each state.
        tell: Called with what is done, what there is in all, and what is being done.

    Raises:
        NotFound: There is no such savepoint or checkpoint, or the batch is not committed or no longer kept.
        Corrupt: A file that had to be read is damaged.
        Unsupported: A state is of a kind that cannot be read.
        Invalid: An argument cannot be right.
    """
    from holdfast.savepoints.state_difference import compare_states  # noqa: PLC0415 - only what is asked for

    whole(samples, "samples", least=0)
    return compare_states(_state(first), _state(second), samples=samples, tell=tell)


def diff_files(first: Address, second: Address) -> Difference:
    """What differs between two savepoints, by their manifests: position, settings, operators, state files.

    Nothing of the state is read. Other files may hold the same state; `diff` tells.

    Raises:
        NotFound: There is no such savepoint.
        Corrupt: A manifest is damaged.
    """
    return compare(show(first), show(second))


def _state(address: Address) -> State:
    """The state at an address: a savepoint's, or a checkpoint's at a batch."""
    from holdfast.savepoints.state_difference import State  # noqa: PLC0415 - as above

    place = place_of(address)
    return State(place.storage, place.batch_id, place.name)


def restore(
    savepoint: Address, checkpoint: Address, *, claim: bool = False, tell: Tell | None = None
) -> Restored:
    """Make a new checkpoint from which the query goes on after the savepoint's batch, exactly once.

    Args:
        savepoint: The savepoint's address.
        checkpoint: A directory that does not exist.
        claim: Delete the savepoint afterwards. By default it stays, and can be restored again.
        tell: Called with files done, files in all, and what is being done.

    Raises:
        NotFound: There is no such savepoint.
        Corrupt: The savepoint is damaged; nothing was done.
        Conflict: The target exists.
    """
    made = _make(savepoint, checkpoint, Operation.RESTORE, tell)
    if claim:
        delete(savepoint)
    return made


def fork(savepoint: Address, checkpoint: Address, *, tell: Tell | None = None) -> Restored:
    """Make a new checkpoint with the same state for another query, with an id of its own.

    Sinks such as Delta tell by the query's id which batches they have; the fork's are new to them.

    Args:
        savepoint: The savepoint's address.
        checkpoint: A directory that does not exist.
        tell: Called with files done, files in all, and what is being done.

    Raises:
        NotFound: There is no such savepoint.
        Corrupt: The savepoint is damaged; nothing was done.
        Conflict: The target exists.
    """
    return _make(savepoint, checkpoint, Operation.FORK, tell)


def rescale(
    source: Address,
    checkpoint: Address | None = None,
    *,
    partitions: int,
    master: str | None = None,
    tell: Tell | None = None,
) -> Rescaled:
    """Make a new checkpoint with the same state in another number of partitions.

    The rows of every state are counted and hashed before and after, and are the same, or nothing is made.
    What is rescaled stays as it is. The state is moved in a batch of its own, which reads nothing; the query
    goes on with the batch after that one. Let no other query run on the old checkpoint afterwards.

    Spark itself moves what is in RocksDB; a session is started for it, or the running one used.

    Args:
        source: A checkpoint that no query uses, or a savepoint.
        checkpoint: A directory that does not exist; by default beside the checkpoint, with `-pN` behind its
            name.
        partitions: How many partitions the state is to have.
        master: Where Spark runs.
        tell: Called with what is done, what there is in all, and what is being done.

    Raises:
        NotFound: There is no such checkpoint or savepoint.
        Conflict: The target exists, or a batch is under way in the checkpoint.
        Corrupt: The source is damaged.
        Invalid: The query has no state, or an argument cannot be right.
        Unsupported: Its state cannot be moved.
    """
    from holdfast.engine.repartition import repartitioning  # noqa: PLC0415 - only this one needs Spark
    from holdfast.savepoints import rescaling  # noqa: PLC0415 - reads state, which others do not

    given, target, plan = _rescale(source, checkpoint, partitions)
    beside = local_path(target.uri)
    folder = Path(tempfile.gettempdir()) if beside is None else beside.parent
    with sandbox(folder, "rescale", token()) as work:
        return rescaling.rescale(
            given, target, plan, work, repartitioning(master), clock=now_ms, chance=os.urandom, tell=tell
        )


def plan_rescale(source: Address, checkpoint: Address | None = None, *, partitions: int) -> RescalePlan:
    """What `rescale` would do; changes nothing, and starts no Spark.

    Raises:
        As `rescale`.
    """
    return _rescale(source, checkpoint, partitions)[2]


def delete(savepoint: Address, *, tell: Tell | None = None) -> Removal:
    """Delete a savepoint, and the bytes that no other savepoint of its catalog needs.

    Raises:
        NotFound: There is no such savepoint.
        Conflict: A savepoint is being taken into this catalog, or another removal is under way.
    """
    return removal.delete(*opened(savepoint), clock=now_ms, token=token(), tell=tell)


def gc(catalog: Address, *, older_than: Duration = "1h", tell: Tell | None = None) -> Removal:
    """Clear up what no savepoint needs: what killed takes and deletes have left.

    Args:
        catalog: The catalog.
        older_than: How long a take may have been silent before it is taken for dead. Running ones show
            themselves every minute.
        tell: Called with files done, files in all, and what is being done.

    Raises:
        Conflict: A savepoint is being taken into this catalog, or another removal is under way.
        Corrupt: A manifest is damaged, so that nobody knows what its savepoint needs.
    """
    dead_after_ms = parse_duration(older_than, "older_than", allow_zero=True)
    storage = open_storage(os.fspath(catalog), "catalog")
    return removal.sweep(storage, clock=now_ms, token=token(), dead_after_ms=dead_after_ms, tell=tell)


def opened(savepoint: Address) -> tuple[Storage, str]:
    """The catalog of a savepoint's address, and the id.

    Raises:
        Invalid: It is no address of a savepoint.
    """
    address, savepoint_id = catalogs.split_address(os.fspath(savepoint))
    return open_storage(address, "savepoint"), savepoint_id


def token() -> str:
    """A name that no other process has."""
    return os.urandom(8).hex()


def now_ms() -> int:
    """The wall clock in epoch milliseconds."""
    return int(time.time() * 1000)


def _rescale(
    source: Address, checkpoint: Address | None, partitions: int
) -> tuple[Source, Storage, RescalePlan]:
    from holdfast.savepoints import rescaling  # noqa: PLC0415 - as above

    whole(partitions, "partitions", least=1)
    address = os.fspath(source)
    if catalogs.is_savepoint(address):
        given = rescaling.Source(*opened(address))
    else:
        given = rescaling.Source(open_storage(address))
    if checkpoint is None:
        checkpoint = f"{given.view()[1].rstrip('/')}-p{partitions}"
    target = open_storage(os.fspath(checkpoint))
    return given, target, rescaling.plan_rescale(given, target, partitions)


def _make(savepoint: Address, checkpoint: Address, operation: Operation, tell: Tell | None) -> Restored:
    catalog, savepoint_id = opened(savepoint)
    target = open_storage(os.fspath(checkpoint))
    plan = plan_restore(catalog, savepoint_id, target, operation, chance=os.urandom, tell=tell)
    return restoring.restore(catalog, target, plan, clock=now_ms, tell=tell)


__all__: builtins.list[str] = [
    "delete",
    "diff",
    "diff_files",
    "fork",
    "gc",
    "list",
    "plan_rescale",
    "rescale",
    "restore",
    "show",
    "take",
    "verify",
]
