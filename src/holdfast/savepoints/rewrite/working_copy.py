"""Change state in a copy that nobody else sees, and make a new checkpoint of what has become of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.guard.checkpoint_guard import CheckpointGuard
from holdfast.checkpoints.record import Record
from holdfast.checkpoints.values import ProgressCallback
from holdfast.errors import Conflict, HoldfastError
from holdfast.savepoints.catalog.catalog import load, savepoint_uri
from holdfast.savepoints.restoring import Operation, Restored, plan_restore, restore, withdraw
from holdfast.savepoints.rewrite.maintenance_commit import copy_as_batch
from holdfast.savepoints.rewrite.whole_take import take
from holdfast.savepoints.taking.planning import Purpose, plan_take
from holdfast.savepoints.view import SavepointView
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage


@dataclass(frozen=True, slots=True)
class Source:
    """What is to be changed: a checkpoint, or a savepoint in its catalog.

    Attributes:
        storage: The checkpoint, or the catalog.
        savepoint_id: The savepoint's id; None for a checkpoint.
        record: What the checkpoint's files were when their batches were committed; None without a record.
    """

    storage: Storage
    savepoint_id: str | None = None
    record: Record | None = field(default=None, repr=False, compare=False)

    @property
    def uri(self) -> str:
        """Its address."""
        return (
            self.storage.uri if self.savepoint_id is None else savepoint_uri(self.storage, self.savepoint_id)
        )

    def view(self) -> tuple[Storage, str]:
        """It as a checkpoint, and the address of the checkpoint that it is or was taken of."""
        if self.savepoint_id is None:
            return self.storage, self.storage.uri
        manifest = load(self.storage, self.savepoint_id)
        return SavepointView(self.storage, manifest.files, manifest.checkpoint), manifest.checkpoint


class WorkingCopy:
    """A copy of a checkpoint or savepoint, in a directory that nobody else sees, that may be changed.

    Args:
        folder: The directory, which is the caller's to remove. Links lead into it from the same disk.
        purpose: What the copy is made for.
        tell: Called with what is done, what there is in all, and what is being done.
    """

    def __init__(self, folder: Path, purpose: Purpose, tell: ProgressCallback | None) -> None:
        self._purpose = purpose
        self.place = folder / "checkpoint"
        self.checkpoint = LocalStorage(self.place)
        self._catalog = LocalStorage(folder / "catalog")
        self._tell = tell

    def go_on_with(self, place: Path) -> None:
        """Take another local directory, which nobody else sees either, for what the copy has become."""
        self.place = place
        self.checkpoint = LocalStorage(place)

    def copied(self, source: Source) -> int:
        """Copy the source to where it may be changed, and say its batch."""
        if source.savepoint_id is None:
            taken = self._taken(source.storage, source.record)
            return self._restored(self._catalog, taken, self.checkpoint).batch_id
        return self._restored(source.storage, source.savepoint_id, self.checkpoint).batch_id

    def copied_at(self, source: Source, batch_id: int) -> None:
        """Copy the source, which has to be at a batch still.

        Raises:
            Conflict: It has gone on.
        """
        copy = self.copied(source)
        if copy != batch_id:
            raise Conflict(
                "the query has gone on since this was planned",
                where=source.uri,
                found=f"batch {copy}",
                expected=f"batch {batch_id}",
                hint="stop it first",
            )

    def end_at(self, batch_id: int) -> None:
        """Give the state of the newest batch to an earlier one, if maintenance batches came after that.

        So no sink sees a gap in the batch numbers.

        Raises:
            Internal: A maintenance batch has not written the whole state.
        """
        newest = read(self.checkpoint).batch_id
        if newest is None or newest <= batch_id:
            return
        place = self.place.with_name(f"{self.place.name}-at-{batch_id}")
        copy_as_batch(self.checkpoint, LocalStorage(place), batch_id)
        self.go_on_with(place)

    @contextmanager
    def standing_for(self, address: str) -> Iterator[None]:
        """What is found in the copy is told as found in what it was copied of."""
        try:
            yield
        except HoldfastError as error:
            facts = {
                name: text and text.replace(self.checkpoint.uri, address)
                for name, text in error.facts().items()
            }
            raise type(error)(error.fact.replace(self.checkpoint.uri, address), **facts) from error

    def published(
        self,
        target: Storage,
        operation: Operation,
        named: tuple[str, str],
        guard: CheckpointGuard | None = None,
    ) -> Restored:
        """Make a checkpoint of what the copy has become.

        Args:
            target: The checkpoint that is to be made.
            operation: What makes it.
            named: The address that a person has named, and that of its checkpoint.
            guard: The guard of the checkpoint that was copied; None where it was a savepoint.

        Raises:
            Conflict: The checkpoint that was copied is used after all; nothing was made.
        """
        if guard is not None:
            guard.require_unmoved()
        with self.standing_for(named[0]):
            savepoint_id = self._taken(self.checkpoint)
        made = plan_restore(
            self._catalog,
            savepoint_id,
            target,
            operation,
            named=named,
            tell=self._tell,
        )
        restored = restore(self._catalog, target, made, tell=self._tell)
        if guard is not None:
            try:
                guard.require_unmoved()
            except HoldfastError:
                # Two checkpoints of one query must not be.
                withdraw(target)
                raise
        return restored

    def _taken(self, checkpoint: Storage, record: Record | None = None) -> str:
        plan = plan_take(checkpoint, self._catalog, record=record, purpose=self._purpose)
        taken = take(checkpoint, self._catalog, plan, tell=self._tell)
        return taken.manifest.savepoint_id

    def _restored(self, catalog: Storage, savepoint_id: str, target: Storage) -> Restored:
        plan = plan_restore(catalog, savepoint_id, target, Operation.RESTORE, in_files=True, tell=self._tell)
        return restore(catalog, target, plan, tell=self._tell)
