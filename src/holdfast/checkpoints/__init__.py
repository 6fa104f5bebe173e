"""Reading checkpoints of any Structured Streaming query from their files, without Spark or a JVM.

`read` describes a checkpoint, `history` lists its batches, `verify` checks every file for damage; `flows`
lists the checkpoints of a declarative pipeline, and `full_refresh` what a full refresh of it discards. They
work while the query runs, and change nothing. Each takes the address of a checkpoint: a path, or a URI
(`file:`, `hdfs:`, `s3:`, `s3a:`, `abfs:`, `gs:`).

To pass a `Storage` instead of an address, see the modules `checkpoint`, `verification.verifying` and `copy`;
the latter selects the files of a copy from which a query can continue.

Example:
    visits = hf.checkpoints.read("checkpoints/visits")
    assert visits.batch_id == 11
    assert hf.checkpoints.verify("checkpoints/visits").problems == ()
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Final

from holdfast.external.view import open_checkpoint

if TYPE_CHECKING:
    from holdfast.checkpoints.checkpoint import CheckpointReport, CommittedBatch, ProgressCallback
    from holdfast.checkpoints.discovery import Flow
    from holdfast.checkpoints.record import Record
    from holdfast.checkpoints.refreshing import FlowRefresh
    from holdfast.checkpoints.verification.file_checks import Verification
    from holdfast.storage.port import Storage

__all__ = [
    "CheckpointReport",
    "CommittedBatch",
    "Flow",
    "FlowRefresh",
    "Verification",
    "flows",
    "full_refresh",
    "history",
    "read",
    "verify",
]

_HOMES: Final = {
    "CheckpointReport": "holdfast.checkpoints.checkpoint",
    "CommittedBatch": "holdfast.checkpoints.checkpoint",
    "Flow": "holdfast.checkpoints.discovery",
    "FlowRefresh": "holdfast.checkpoints.refreshing",
    "Verification": "holdfast.checkpoints.verification.file_checks",
}


def __getattr__(name: str) -> object:
    """Load a class of a result from the module that defines it, so that a worker of this room loads none."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def read(address: str | os.PathLike[str]) -> CheckpointReport:
    """Return a description of a checkpoint at its newest committed batch: query, sources, operators, sizes.

    Cost: lists each store's directory; no rows of state are read.

    Args:
        address: The checkpoint: a path or a URI.

    Raises:
        Invalid: The address is not valid.
        NotFound: The checkpoint does not exist.
        Corrupt: A file that was read is damaged; `verify` lists all damaged files.
        Unavailable: The storage does not answer.
        Unsupported: The library for this kind of storage is not installed.

    Example:
        visits = hf.checkpoints.read("checkpoints/visits")
        [aggregate] = visits.operators
        assert (visits.batch_id, aggregate.partitions) == (11, 2)
    """
    from holdfast.checkpoints import checkpoint

    return checkpoint.read(open_checkpoint(address))


def history(
    address: str | os.PathLike[str], last: int | None = None, tell: ProgressCallback | None = None
) -> tuple[CommittedBatch, ...]:
    """Return the committed batches that the checkpoint still keeps, oldest first.

    Args:
        address: The checkpoint.
        last: The number of newest batches to return; all by default.
        tell: The progress callback, called with the number of finished partitions, the number of all
            partitions, and the current step.

    Raises:
        Invalid: The address is not valid.
        NotFound: The checkpoint does not exist.
        Corrupt: A file that was read is damaged.
        Unavailable: The storage does not answer.
        Unsupported: The library for this kind of storage is not installed.

    Example:
        for batch in hf.checkpoints.history("checkpoints/visits", last=3):
            print(batch.batch_id, batch.planned_ms, batch.new_bytes)
    """
    from holdfast.checkpoints import checkpoint

    return checkpoint.history(open_checkpoint(address), last, tell)


def verify(
    address: str | os.PathLike[str],
    tell: ProgressCallback | None = None,
    *,
    home: str | os.PathLike[str] | None = None,
) -> Verification:
    """Check every file for damage, and that the files are consistent with each other.

    Damage does not raise an error: the result lists it in `problems`. If the state home has an integrity
    record of the checkpoint, written by `holdfast run` or `holdfast watch`, each file is also compared with
    the record; without a record, a remark reports this.

    Args:
        address: The checkpoint.
        tell: The progress callback, called with the number of finished files, the number of all files, and
            the current step.
        home: The state home; by default that of this process's settings.

    Raises:
        Invalid: The address is not valid.
        NotFound: The checkpoint does not exist.
        Unavailable: The storage does not answer.
        Unsupported: The library for this kind of storage is not installed.

    Example:
        result = hf.checkpoints.verify("checkpoints/visits")
        assert result.problems == ()
        assert result.restorable == (6, 7, 8, 9, 10, 11)
    """
    from dataclasses import replace

    from holdfast.checkpoints.record import find_record
    from holdfast.checkpoints.verification import verifying
    from holdfast.checkpoints.verification.file_checks import WHOLE, Remark
    from holdfast.config.settings import Settings

    storage = open_checkpoint(address)
    record, why = find_record(Settings.here(home).real_home, storage)
    found = verifying.verify(storage, tell, record=record)
    if record is not None:
        return found
    what = f"{why}; files that were replaced by older valid ones cannot be detected"
    return replace(found, remarks=(*found.remarks, Remark(WHOLE, what)))


def flows(address: str | os.PathLike[str]) -> tuple[Flow, ...]:
    """Return the flows of a declarative pipeline, each with the checkpoint that its next run uses.

    Cost: lists the directories above the checkpoints; no file is read.

    Args:
        address: The storage of the pipeline, or the directory of a table or of a flow in it.

    Returns:
        The flows by table and name; empty for a checkpoint or any other directory.

    Raises:
        Invalid: The address is not valid.
        Unavailable: The storage does not answer.
        Unsupported: The library for this kind of storage is not installed.

    Example:
        assert hf.checkpoints.flows("checkpoints/visits") == ()  # a checkpoint is not a pipeline
    """
    from holdfast.checkpoints.discovery import flows_of
    from holdfast.storage import open_storage

    return flows_of(open_storage(address))


def full_refresh(address: str | os.PathLike[str]) -> tuple[FlowRefresh, ...]:
    """Return what `spark-pipelines run --full-refresh-all` would discard, flow by flow.

    Cost: reads the logs of each flow's checkpoint, and the rows of state up to 64 MiB for each flow.

    Args:
        address: The storage of the pipeline; the directory of a table, for `--full-refresh TABLE`.

    Raises:
        Invalid: The address is not valid.
        NotFound: The address is not that of a pipeline.
        Corrupt: The checkpoint of a flow is damaged.
        Unavailable: The storage does not answer.
        Unsupported: The library for this kind of storage is not installed.

    Example:
        for refresh in hf.checkpoints.full_refresh("pipeline-storage"):
            print(refresh.flow.label, refresh.rows, refresh.size_bytes)
    """
    from holdfast.checkpoints.refreshing import refresh_of
    from holdfast.errors import NotFound
    from holdfast.storage import open_storage

    found = flows(address)
    if not found:
        raise NotFound(
            "no flow of a pipeline has a checkpoint in this directory",
            code="HF-E3078",
            where=open_storage(address).uri,
            expected="the `storage` of a pipeline specification, which contains `_checkpoints`",
            hint="give the directory that `storage` names in spark-pipeline.yml, after the first run",
        )
    return tuple(map(refresh_of, found))


def record_of(storage: Storage, home: str | os.PathLike[str] | None = None) -> Record | None:
    """Return the integrity record of a checkpoint in a state home; None if there is none.

    Args:
        storage: The checkpoint.
        home: The state home; by default that of this process's settings.

    Raises:
        Unavailable: The storage does not answer.
    """
    from holdfast.checkpoints.record import find_record
    from holdfast.config.settings import Settings

    return find_record(Settings.here(home).real_home, storage)[0]
