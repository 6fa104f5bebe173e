"""The functions of `hf.savepoints` that can leave out expired rows: takes, restore and fork."""

from __future__ import annotations

import os

from holdfast.checkpoints import record_of
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.config.checks import whole
from holdfast.config.units import parse_duration
from holdfast.external.view import open_checkpoint
from holdfast.extras import require_package
from holdfast.savepoints import periodic
from holdfast.savepoints.address import Address, StateAddress
from holdfast.savepoints.periodic import PeriodicTake
from holdfast.savepoints.restoring import Restored, RestoreKind
from holdfast.savepoints.savepoint_api import create_checkpoint, take_savepoint
from holdfast.savepoints.taking import Taken
from holdfast.savepoints.whole_take import TakeWithoutExpired
from holdfast.storage import open_storage


def take(
    checkpoint: Address,
    catalog: Address,
    *,
    batch: int | None = None,
    label: str | None = None,
    deep: bool = False,
    digest: bool = True,
    gentle: bool | None = None,
    home: Address | None = None,
    drop_expired: bool = False,
    id_of: Address | None = None,
    tell: ProgressCallback | None = None,
) -> Taken:
    """Take a savepoint of a query's checkpoint, while the query runs or not.

    The query is not paused and its checkpoint is not changed. Files that the catalog already holds are not
    stored again. On the checkpoint's own disk files are linked and not copied, so a savepoint there is lost
    with that disk.

    Args:
        checkpoint: The checkpoint's path or URI.
        catalog: The savepoint catalog, a directory; created if missing.
        batch: A committed batch whose state still exists; the newest by default.
        label: A label for display, by which the savepoint can be addressed.
        deep: Read the rows of the state before the savepoint is published: check that each key is in the
            partition that Spark's hash gives it, and write the row count and a digest of each state into
            the manifest. Takes about four seconds per million rows; state of up to 2 MB is always read.
        digest: Compute the digests after the savepoint is published, as `digest` does, unless the manifest
            has them. If that fails, or with False, the digests stay pending.
        gentle: Use only a few percent of this machine's processors, so that a running query keeps its pace:
            for at most ten seconds of the take, and for all of the digests. By default True if the query
            began a batch in the last minute.
        home: The state home, which may have an integrity record of the checkpoint; by default the one
            in the settings.
        drop_expired: Leave out rows of Holdfast's keyed state that have expired by the batch's own time or
            watermark; see `hf.drop_expired`. State with a TTL is read, and stores that lose rows are
            rewritten.
        id_of: For a checkpoint that has lost the file with its query id: a savepoint of the same query, from
            which the new one takes the id. The checkpoint must still have the offsets of one of its batches.
        tell: Called with the number of finished files, the number of all files, and the current step.

    Returns:
        The savepoint, with its address in `uri`.

    Raises:
        NotFound: The checkpoint does not exist, or the batch is not committed or no longer kept.
        Corrupt: The checkpoint is damaged, or lacks state that its integrity record or plan note names; no
            savepoint was taken.
        Conflict: A removal is running in the catalog, or `id_of` may belong to a different query.
        Invalid: An argument is not valid.
        Unsupported: The rows were requested but cannot be read.
        Unavailable: A storage does not answer, or the query deletes files faster than they can be copied.

    Example:
        saved = hf.savepoints.take("checkpoints/visits", "savepoints", label="before-upgrade")
        print(saved.uri)
        assert saved.manifest.batch_id == 11
    """
    return take_savepoint(
        checkpoint,
        catalog,
        batch=batch,
        label=label,
        deep=deep,
        digest=digest,
        gentle=gentle,
        home=home,
        without_expired=without_expired() if drop_expired else None,
        id_of=id_of,
        tell=tell,
    )


def take_and_retain(
    checkpoint: Address,
    catalog: Address,
    *,
    retain: int | str | None = None,
    label: str = periodic.LABEL,
    deep: bool = False,
    drop_expired: bool = False,
    home: Address | None = None,
    tell: ProgressCallback | None = None,
) -> PeriodicTake:
    """Take a savepoint unless the newest one is of the same batch, and delete the surplus ones.

    Only savepoints of the same query and checkpoint with the same label count and are deleted; relabelled
    savepoints and savepoints with edited state are kept. The digests stay pending.

    Args:
        checkpoint: The checkpoint's path or URI.
        catalog: The savepoint catalog, a directory; created if missing.
        retain: The number of savepoints to keep, at least one, or their maximum age, such as "7d"; None keeps
            all. By age, all of the last hour are kept, then one for each hour of a day and one for each day.
        label: The label of the savepoints that count.
        deep: As in `take`.
        drop_expired: As in `take`.
        home: As in `take`.
        tell: As in `take`.

    Raises:
        HoldfastError: As `take`.

    Example:
        result = hf.savepoints.take_and_retain("checkpoints/visits", "hourly", retain=24)
        assert result.taken is not None
        again = hf.savepoints.take_and_retain("checkpoints/visits", "hourly", retain=24)
        assert again.taken is None and again.existing == result.taken.manifest.savepoint_id
    """
    retained_ms = parse_duration(retain, "retain") if isinstance(retain, str) else None
    retained = None if retain is None or isinstance(retain, str) else whole(retain, "retain", least=1)
    origin = open_checkpoint(checkpoint)
    return periodic.take_and_retain(
        origin,
        open_storage(os.fspath(catalog), "catalog"),
        retained=retained,
        retained_ms=retained_ms,
        label=label,
        deep=deep,
        record=record_of(origin, home),
        without_expired=without_expired() if drop_expired else None,
        tell=tell,
    )


def restore(
    savepoint: Address,
    checkpoint: Address,
    *,
    claim: bool = False,
    drop_expired: bool = False,
    database: str | None = None,
    table: Address | None = None,
    accept_loss: bool = False,
    tell: ProgressCallback | None = None,
) -> Restored:
    """Create a checkpoint from which the query continues after the savepoint's batch, exactly once.

    Args:
        savepoint: The savepoint's address.
        checkpoint: A directory that does not exist.
        claim: Delete the savepoint afterwards. By default it is kept and can be restored again.
        drop_expired: Leave out rows of Holdfast's keyed state that had expired at the savepoint's batch; see
            `hf.drop_expired`. By default every file is restored unchanged, so the query continues exactly as
            it would have.
        database: For state that was in a database: the target database of the same type, such as
            `redis://redis.example:6379/0` or `cassandra://cassandra.example:9042/holdfast`. By default the
            original database, with new stores.
        table: A new directory for a query that writes Parquet, JSON or other files. The log of the table is
            prepared; without it the query fails up to ten batches later, because Spark expects the entries
            of earlier batches. By default no table is changed.
        accept_loss: Restore a flow of a declarative pipeline at an older batch. Its sink skips the batches
            that the table already has, so their rows and those of later input may be lost.
        tell: Called with the number of finished files, the number of all files, and the current step.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: The savepoint is damaged; nothing was created.
        Conflict: The target or the table exists; the target is a version of a flow whose table may have
            later batches; or, with `claim`, savepoints are being taken or deleted.
        Unsupported: Expired rows cannot be dropped.
        Unavailable: The database of the state does not answer.

    Example:
        restored = hf.savepoints.restore("savepoints@daily", "checkpoints/visits-restored")
        assert restored.batch_id == 11  # the query continues with batch 12
        assert hf.checkpoints.verify(restored.checkpoint).problems == ()
    """
    return create_checkpoint(
        StateAddress.resolve(savepoint),
        checkpoint,
        RestoreKind.RESTORE,
        claim=claim,
        without_expired=without_expired() if drop_expired else None,
        database=database,
        table=table,
        accept_loss=accept_loss,
        tell=tell,
    )


def fork(
    savepoint: Address,
    checkpoint: Address,
    *,
    drop_expired: bool = False,
    database: str | None = None,
    table: Address | None = None,
    tell: ProgressCallback | None = None,
) -> Restored:
    """Create a checkpoint with the same state for a new query, with an id of its own.

    Sinks such as Delta identify batches by the query id, so the batches of the fork are new to them.

    Args:
        savepoint: The savepoint's address.
        checkpoint: A directory that does not exist.
        drop_expired: Leave out rows that had expired at the savepoint's batch, as in `restore`.
        database: As of `restore`.
        table: As of `restore`; a fork must not write to the table of the original query.
        tell: Called with the number of finished files, the number of all files, and the current step.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: The savepoint is damaged; nothing was created.
        Conflict: The target or the table exists.
        Unsupported: Expired rows cannot be dropped.

    Example:
        fork = hf.savepoints.fork("savepoints@daily", "checkpoints/visits-test")
        assert fork.query_id != hf.checkpoints.read("checkpoints/visits").query_id
    """
    return create_checkpoint(
        StateAddress.resolve(savepoint),
        checkpoint,
        RestoreKind.FORK,
        without_expired=without_expired() if drop_expired else None,
        database=database,
        table=table,
        tell=tell,
    )


def without_expired() -> TakeWithoutExpired:
    """Return the function that drops expired rows; it needs Arrow, which taking and restoring do not.

    Raises:
        Unsupported: Arrow is not installed.
    """
    require_package("pyarrow")
    from holdfast.changes.expiry import copy_without_expired

    return copy_without_expired
