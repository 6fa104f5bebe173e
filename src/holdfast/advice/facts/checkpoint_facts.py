"""What a checkpoint's files tell of its state, its size over time included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.logs.logs import Logs
from holdfast.checkpoints.state_growth import state_bytes
from holdfast.checkpoints.values import Checkpoint
from holdfast.errors import NotFound
from holdfast.layout import StoreId
from holdfast.storage.port import Storage

# So many of the batches that are kept are looked at.
_SAMPLES: Final = 24


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """How many files of each kind the first partition of an operator has, over all versions that are kept."""

    snapshots: int
    changelogs: int


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """A checkpoint, with what only several of its batches tell.

    Attributes:
        checkpoint: The checkpoint at its newest batch.
        sizes: The bytes of each operator's state after some of the batches that are kept, by batch.
        watermarks: The watermark after the first and the last of them; None without one.
        files: The files of each operator.
    """

    checkpoint: Checkpoint
    sizes: Mapping[int, Mapping[int, int]]
    watermarks: tuple[int | None, int | None]
    files: Mapping[int, StoreFiles]


def read_facts(storage: Storage) -> CheckpointFacts:
    """Read what a checkpoint tells, of a query that runs or of one that does not.

    Cost: a listing of each store's folder, the size of each file of some 24 batches, and the index of each
        RocksDB snapshot among them. Nothing of the state itself is read.

    Raises:
        NotFound: There is no checkpoint.
        Corrupt: A file that was read is damaged.
        Unavailable: The storage does not answer.
    """
    checkpoint = read(storage)
    if checkpoint.external is not None or not checkpoint.operators:
        return CheckpointFacts(checkpoint, {}, (None, None), {})
    step = max(1, len(checkpoint.committed) // _SAMPLES)
    batches = sorted({*checkpoint.committed[::step], *checkpoint.committed[-1:]})
    sizes = state_bytes(storage, batches, only_whole=True)
    marks = (_watermark(storage, min(sizes)), _watermark(storage, max(sizes))) if sizes else (None, None)
    return CheckpointFacts(checkpoint, sizes, marks, _files(storage, checkpoint))


def _watermark(storage: Storage, batch_id: int) -> int | None:
    try:
        commit = Logs(storage).commit(batch_id)
    except NotFound:
        return None
    return None if commit is None else commit.next_watermark_ms or None


def _files(storage: Storage, checkpoint: Checkpoint) -> dict[int, StoreFiles]:
    found = {}
    for operator in checkpoint.operators:
        names = [
            name
            for store in operator.store_names
            for name in storage.list(StoreId(operator.operator_id, 0, store).folder).names
            if not name.startswith(".")
        ]
        found[operator.operator_id] = StoreFiles(
            sum(name.endswith(".zip") for name in names), sum(name.endswith(".changelog") for name in names)
        )
    return found
