"""Take savepoints with all state in files, including keyed state whose blobs are in a database."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from holdfast import layout
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.keyed import (
    BLOB,
    BLOBS,
    KeptBlobs,
    blobs_in,
    group_of_key,
    is_keyed,
    operators_elsewhere,
)
from holdfast.checkpoints.state.contents import ContentSum, bare_rows, store_sums
from holdfast.checkpoints.state.rows import store_chunks
from holdfast.checkpoints.state.states import OperatorStates, StateCodec, StateName, operator_states
from holdfast.clock import now_ms
from holdfast.errors import Internal
from holdfast.formats.key_groups import BASE, LOG
from holdfast.formats.manifest import Manifest
from holdfast.formats.text import foreign_json
from holdfast.layout import OwnFile, StoreId
from holdfast.quantities import counted
from holdfast.savepoints import taking
from holdfast.savepoints.catalog import savepoint_uri
from holdfast.savepoints.copying import Pace, followed
from holdfast.savepoints.derived import FileChanges, derive
from holdfast.savepoints.leases import Chance, Clock
from holdfast.savepoints.planning import TakePlan, plan_take
from holdfast.savepoints.store_edits import RowChange, StoreEdits
from holdfast.savepoints.taking import Taken
from holdfast.savepoints.view import SavepointView, workplace
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage
from holdfast.worker.state.blob_store import is_name
from holdfast.worker.state.store import GroupBlobs

Sums = dict[StateName, ContentSum]


class TakeWithoutExpired(Protocol):
    """Creates a savepoint without the expired rows of an existing one; a higher room reads keyed state."""

    def __call__(
        self,
        catalog: Storage,
        savepoint_id: str,
        to: Storage,
        *,
        label: str | None = None,
        deep: bool = False,
        operation: str | None = None,
        clock: Clock = now_ms,
        chance: Chance = os.urandom,
        tell: ProgressCallback | None = None,
    ) -> Taken:
        """Create the savepoint in the catalog `to`."""


def take(
    checkpoint: Storage,
    catalog: Storage,
    plan: TakePlan,
    *,
    clock: Clock = now_ms,
    chance: Chance = os.urandom,
    label: str | None = None,
    deep: bool = False,
    operation: str | None = None,
    pace: Pace | None = None,
    without_expired: TakeWithoutExpired | None = None,
    tell: ProgressCallback | None = None,
) -> Taken:
    """Take the savepoint that was planned, with all state in its files.

    If blobs of keyed state are in a database, a temporary savepoint with their names is taken first; the
    blobs of a batch are kept as long as the batch is restorable. Then the stores are written with the blobs
    instead of the names, and read back before the savepoint is published.

    Cost: that of `taking.take`; keyed state with blobs in a database is read completely and written to the
    catalog.

    Args:
        checkpoint: The checkpoint.
        catalog: The catalog.
        plan: The result of `plan_take` for these two.
        clock: The time in epoch milliseconds.
        chance: Returns a number of random bytes.
        label: A label for display.
        deep: Read the rows of the state regardless of their number, for exact counts and digests.
        operation: The id of the control plane's operation that requested the savepoint.
        pace: Limits the processor use.
        without_expired: Copies the savepoint without its expired rows; None to keep them.
        tell: Called with the number of finished files, the number of all files, and the current step.

    Raises:
        Invalid: The database of the blobs is not named, or rejects the credentials.
        Conflict, Corrupt, Unsupported, NotFound, Unavailable: As `taking.take`; or a blob is missing or
            damaged, or the database does not answer.
    """
    if without_expired is not None:
        taking.check_label(label)
        with workplace(catalog, "take") as work:
            # Expired rows never reach the catalog: only the rewritten savepoint is stored there.
            kept = LocalStorage(work / "catalog")
            again = plan_take(checkpoint, kept, plan.asked, plan.record, purpose=plan.purpose)
            complete = take(checkpoint, kept, again, clock=clock, pace=pace, tell=tell)
            return without_expired(
                kept,
                complete.manifest.savepoint_id,
                catalog,
                label=label,
                deep=deep,
                operation=operation,
                clock=clock,
                chance=chance,
                tell=tell,
            )
    if not operators_elsewhere(checkpoint):
        return taking.take(
            checkpoint,
            catalog,
            plan,
            clock=clock,
            chance=chance,
            label=label,
            deep=deep,
            operation=operation,
            pace=pace,
            tell=tell,
        )
    taking.check_label(label)
    with workplace(catalog, "take") as work:
        kept = LocalStorage(work / "catalog")
        named = taking.take(
            checkpoint,
            kept,
            plan_take(checkpoint, kept, plan.asked, plan.record, purpose=plan.purpose),
            clock=clock,
            pace=pace,
            tell=tell,
        )
        manifest = named.manifest
        whole = _Whole(kept, manifest, work, clock())
        return derive(
            catalog,
            manifest,
            whole.written(tell),
            None,
            noted=None if operation is None else {"operation": operation},
            origin=kept,
            label=label,
            deep=deep,
            prove=whole.prove,
            clock=clock,
            chance=chance,
            tell=tell,
        )


class _Whole:
    """Replaces the names of blobs in a savepoint's stores with the blobs."""

    def __init__(self, catalog: Storage, manifest: Manifest, folder: Path, now_ms: int) -> None:
        self._view = SavepointView(catalog, manifest.files, savepoint_uri(catalog, manifest.savepoint_id))
        self._batch_id = manifest.batch_id
        self._kept = KeptBlobs(self._view)
        self._edits = StoreEdits(self._view, manifest, folder, now_ms)
        # What each store is to hold that was written.
        self._sums: dict[StoreId, Sums] = {}

    def written(self, tell: ProgressCallback | None) -> FileChanges:
        """Write each store that has names of blobs, and the notes with their locations."""
        operators = [each for each in operator_states(self._view, self._batch_id) if is_keyed(each)]
        stores = [(operator, store) for operator in operators for store in operator.stores()]
        for operator, store in followed(stores, tell, "reading blobs"):
            sums: Sums = {}
            changes = self._changes(operator, store, sums)
            first = next(changes, None)
            if first is not None:
                self._edits.change(operator, store, chain([first], changes))
                self._sums[store] = sums
        for name in operators_elsewhere(self._view):
            path = OwnFile(layout.operator_note(name)).render()
            note = foreign_json(self._view.read(path))
            del note[BLOBS]
            self._edits.rewrite(path, json.dumps(note).encode())
        return self._edits.finish()

    def prove(self, made: SavepointView) -> None:
        """Read back and compare the written stores.

        Raises:
            Internal: A store differs from what was written, or names a blob outside the savepoint.
        """
        operators = {each.operator_id: each for each in operator_states(made, self._batch_id)}
        for store, expected in self._sums.items():
            found = store_sums(made, operators[store.operator_id], store)
            if _describe_sums(found) != _describe_sums(expected):
                raise Internal(
                    "verification failed, so no savepoint was taken: the content of a store differs from what"
                    " was written",
                    code="HF-E9030",
                    where=f"{made.uri}, operator {store.operator_id}, partition {store.partition},"
                    f" store {store.name}",
                    found=_sums_text(found),
                    expected=_sums_text(expected),
                    hint="please report this; the checkpoint is unchanged",
                )

    def _changes(self, operator: OperatorStates, store: StoreId, sums: Sums) -> Iterator[RowChange]:
        """Yield the lists that contain names, with the blobs instead; add all resulting rows to the sum."""
        for codec, pairs in store_chunks(self._view, operator, store):
            whole = [*pairs]
            if codec.name.family in (BASE, LOG):
                for at, (key, value) in enumerate(pairs):
                    blobs = self._blobs(codec, key, value)
                    if blobs is not None:
                        whole[at] = key, codec.values.stored_list(key, blobs)
                        yield RowChange(codec, codec.key_row(key), blobs, True)
            sums.setdefault(codec.name, ContentSum()).add(*bare_rows(codec, whole))

    def _blobs(self, codec: StateCodec, key: bytes, value: bytes) -> tuple[bytes, ...] | None:
        """Return the rows of a list with blobs instead of names; None for a list without names."""
        blobs = blobs_in(codec, value)
        if not any(map(is_name, blobs)):
            return None
        whole = self._kept.of_group(group_of_key(codec, key), GroupBlobs(None, blobs, ()))
        return tuple(BLOB.encode({"b": blob}) for blob in whole.base)


def _sums_text(sums: Sums) -> str:
    parts = (
        f"{family}: {counted(rows, 'row')}, checksum {digest[:16]}"
        for family, (rows, digest) in sorted(_describe_sums(sums).items())
    )
    return "; ".join(parts) or "no rows"


def _describe_sums(sums: Sums) -> dict[str, Any]:
    return {name.family: (each.rows, each.digest()) for name, each in sums.items() if each.rows}
