"""What has become of a key from batch to batch, over all batches whose files are kept.

The files of a store are read once, each for this key alone: the base of the oldest batch, and then what each
batch has changed. Where a batch has left a base and no change, as without changelogs, the base is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoints.state.families import Families, Pairs
from holdfast.checkpoints.state.lookup import Sought, changed_by, rows_in
from holdfast.checkpoints.state.states import OperatorStates
from holdfast.layout import Kind, StoreFile, StoreId
from holdfast.storage.port import Storage

_CHANGES = (Kind.CHANGELOG, Kind.DELTA)


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows of a key after a batch.

    Attributes:
        batch_id: The batch.
        partition: The partition.
        pairs: The rows of each state that was looked for, as they are stored.
        written: Whether the batch has written one of them, be it with the value that it had; None where its
            files do not tell, and only that a value is another one can be seen.
    """

    batch_id: int
    partition: int
    pairs: tuple[Pairs, ...]
    written: bool | None


def kept_rows(
    storage: Storage,
    operator: OperatorStates,
    partition: int,
    wanted: Sequence[Sought],
    batches: Sequence[int],
) -> Iterator[KeptRows]:
    """The rows of a key in one partition, batch by batch, oldest first.

    A batch whose files are not all kept is left out. A query may run meanwhile: what it deletes while this
    reads counts as not kept.

    Cost: each file of the partition's stores is read once at the most, and a base opened for each batch that
    has left nothing else.

    Args:
        storage: The checkpoint.
        operator: The operator, at any of the batches.
        partition: The partition.
        wanted: What is looked for, in states of one store.
        batches: The batches, ascending.

    Raises:
        NotFound: A file has gone while it was about to be read.
        Corrupt: A file is damaged.
        Unsupported: The state is of a kind that cannot be read.
    """
    store = StoreId(operator.operator_id, partition, wanted[0].codec.name.store)
    folder = operator.folder(storage, store)
    walk = _Walk(storage, operator, store, wanted)
    for batch_id in batches:
        chain = folder.chain(batch_id + 1)
        if chain.missing is not None:
            walk.lost()
            continue
        change = next((file for file in folder.made_by(batch_id + 1) if file.kind in _CHANGES), None)
        written = walk.step(batch_id, chain.files, change)
        yield KeptRows(batch_id, partition, tuple(list(rows.items()) for rows in walk.rows), written)


class _Walk:
    """Goes from batch to batch."""

    def __init__(
        self, storage: Storage, operator: OperatorStates, store: StoreId, wanted: Sequence[Sought]
    ) -> None:
        self._storage = storage
        self._operator = operator
        self._store = store
        self._wanted = wanted
        self._last: int | None = None
        self._numbers: list[bytes | None] = [None] * len(wanted)
        self.rows: list[dict[bytes, bytes]] = [{} for _ in wanted]

    def lost(self) -> None:
        """A batch is not kept: the next one has to be read anew."""
        self._last = None

    def step(self, batch_id: int, chain: Sequence[StoreFile], change: StoreFile | None) -> bool | None:
        """Bring the rows to the next batch; whether it has written some, where that can be told."""
        after = self._last == batch_id - 1 and self._last is not None
        self._last = batch_id
        base = chain[0] if chain and chain[0].kind is Kind.ZIP else None
        if base is not None and after and base.version != batch_id + 1:
            base = None
        # A family that is new has its number from the snapshot that came with it.
        if base is not None or not after or change is None:
            families = Families.in_base(self._storage, self._operator, self._store.name, base)
            self._numbers = [families.prefixes.get(part.codec.name.family) for part in self._wanted]
        if after and change is not None:
            return self._changed(change)
        before = self.rows
        self.rows = [
            rows_in(self._storage, self._operator, self._store, chain, part) for part in self._wanted
        ]
        if not after:
            # What is there after the first batch of all was written by it.
            return any(self.rows) if batch_id == 0 else None
        return None if self.rows == before else True

    def _changed(self, change: StoreFile) -> bool:
        written = False
        for at, (wanted, number) in enumerate(zip(self._wanted, self._numbers, strict=True)):
            if number is None:
                continue
            found: Any = changed_by(
                self._storage, self._operator, self._store, change, wanted, self.rows[at], number
            )
            if found is not None:
                self.rows[at], written = found, True
        return written
