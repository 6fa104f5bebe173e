"""Operations that make a checkpoint of a savepoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast import layout
from holdfast.errors import HoldfastError, NotFound
from holdfast.formats.text import foreign_json
from holdfast.jobs.operations.operation_context import OperationContext, undone
from holdfast.jobs.registry.operation_arguments import MakeCheckpoint
from holdfast.savepoints.restoring import Restored, withdraw
from holdfast.storage import open_storage
from holdfast.storage.port import Storage


@dataclass(frozen=True, slots=True)
class CheckpointMaker:
    """Makes a checkpoint from which a query goes on, the same one or another.

    Attributes:
        verb: `restore` or `fork`, which the new checkpoint notes as its origin.
        make: What does it.
    """

    verb: str
    make: Callable[..., Restored]

    def run(self, work: OperationContext[MakeCheckpoint]) -> Mapping[str, Any]:
        """Make it.

        Raises:
            Conflict: Something is there already.
            Corrupt: The savepoint is damaged.
        """
        return self.make(work.wanted.savepoint, work.wanted.checkpoint, tell=work.teller()).as_dict()

    def recover(self, work: OperationContext[MakeCheckpoint]) -> Mapping[str, Any]:
        """Go on with what is there, if that is this operation's own; where it cannot, take it away."""
        target = open_storage(work.wanted.checkpoint)
        try:
            return self.run(work)
        except HoldfastError as error:
            if target.size(layout.METADATA) is not None or not self._made(target, work.wanted.savepoint):
                raise  # it is complete and in use, or another's
            withdraw(target)
            raise undone(work.operation, error.fact) from error

    def _made(self, target: Storage, savepoint: str) -> bool:
        """Whether what is in the target is of such an operation on this savepoint."""
        try:
            origin = foreign_json(target.read(layout.ORIGIN))
        except (NotFound, ValueError):
            return False
        mark = (self.verb, open_storage(savepoint).uri)
        return isinstance(origin, dict) and (origin.get("operation"), origin.get("savepoint")) == mark
