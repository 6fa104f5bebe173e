"""The source of a change: a savepoint, or a checkpoint with its guard and its possible users."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from holdfast.checkpoints import record_of
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.record import Record
from holdfast.clock import now_ms
from holdfast.external.view import open_checkpoint
from holdfast.ownership.checkpoint_guard import CheckpointGuard, dry_run_usage, guarded, refuse_held
from holdfast.ownership.usage import CheckpointUsage
from holdfast.savepoints.address import Address, StateAddress
from holdfast.savepoints.catalog import load, savepoint_uri
from holdfast.savepoints.view import SavepointView
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

_SAY_STOPPED: Final = (
    "stop the query, then confirm with --confirm-stopped (in Python `stopped=True`); or take a savepoint and"
    " run `holdfast {}` on the savepoint, which needs no confirmation"
)


def source_of(address: Address, home: Address | None = None) -> ChangeSource:
    """Return the checkpoint or savepoint of which a copy is to be changed.

    Args:
        address: Its address.
        home: The state home, which may have an integrity record of the checkpoint; by default the one in the
            settings.

    Raises:
        Invalid, NotFound: As `StateAddress.resolve`.
    """
    source = StateAddress.resolve(address)
    if source.is_savepoint:
        return ChangeSource(*source.open_savepoint())
    checkpoint = open_checkpoint(source.text)
    return ChangeSource(checkpoint, record=record_of(checkpoint, home))


@contextmanager
def source_guard(
    source: ChangeSource, verb: str, *, stopped: bool, tell: ProgressCallback | None
) -> Iterator[CheckpointGuard | None]:
    """Hold the guard of a checkpoint that is to be copied and changed; a savepoint needs none.

    Raises:
        Conflict: A query uses the checkpoint, or it is not confirmed that none does.
    """
    if source.savepoint_id is not None:
        yield None
        return
    with guarded(source.storage, verb, stopped=stopped, hint=_SAY_STOPPED.format(verb), tell=tell) as guard:
        yield guard


def source_usage(source: ChangeSource) -> CheckpointUsage | None:
    """Return the possible users of a checkpoint; None for a savepoint, which is never in use.

    Raises:
        Conflict: A job holds it, or a process has it open.
    """
    return None if source.savepoint_id is not None else dry_run_usage(source.storage, now_ms())


def move_of(
    source: Address, checkpoint: Address | None, ending: str, home: Address | None = None
) -> tuple[ChangeSource, Storage]:
    """Return the source and the target of a move.

    Args:
        source: A checkpoint that no job holds, or a savepoint.
        checkpoint: The new checkpoint; None for one next to the checkpoint.
        ending: What follows the checkpoint's name then.
        home: The state home, as of `source_of`.

    Raises:
        Conflict: A job holds the checkpoint.
    """
    given = source_of(source, home)
    if given.savepoint_id is None:
        refuse_held(given.storage)
    return given, open_storage(os.fspath(checkpoint or f"{given.view()[1].rstrip('/')}-{ending}"))


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """The source of a change: a checkpoint, or a savepoint in its catalog.

    Attributes:
        storage: The checkpoint, or the catalog.
        savepoint_id: The savepoint's id; None for a checkpoint.
        record: The integrity record of the checkpoint; None without one.
    """

    storage: Storage
    savepoint_id: str | None = None
    record: Record | None = field(default=None, repr=False, compare=False)

    @property
    def uri(self) -> str:
        """Return the address of the checkpoint or savepoint."""
        return (
            self.storage.uri if self.savepoint_id is None else savepoint_uri(self.storage, self.savepoint_id)
        )

    def view(self) -> tuple[Storage, str]:
        """Return the source as a checkpoint, and the address of the original checkpoint."""
        if self.savepoint_id is None:
            return self.storage, self.storage.uri
        manifest = load(self.storage, self.savepoint_id)
        return SavepointView(self.storage, manifest.files, manifest.checkpoint), manifest.checkpoint
