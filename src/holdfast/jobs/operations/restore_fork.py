"""Operations that make a checkpoint of a savepoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from holdfast import layout
from holdfast.checkpoints.tree import Tree
from holdfast.errors import HoldfastError, NotFound
from holdfast.jobs.operations.operation_context import OperationContext, undone
from holdfast.jobs.registry.operation_log import Operation
from holdfast.savepoints.savepoint_api import fork, restore
from holdfast.storage import open_storage
from holdfast.storage.port import Storage


class Restore:
    """Makes a checkpoint from which the query goes on."""

    word = "restore"

    def run(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """Make it.

        Raises:
            Conflict: Something is there already.
            Corrupt: The savepoint is damaged.
        """
        given = operation.arguments
        make = fork if self.word == "fork" else restore
        return make(given["savepoint"], given["checkpoint"], tell=work.teller(operation)).as_dict()

    def recover(self, work: OperationContext, operation: Operation) -> Mapping[str, Any]:
        """Finish it: what is there says whose it is, and is gone on with.

        Where that cannot be, what was begun is taken away again.
        """
        target = open_storage(operation.arguments["checkpoint"])
        try:
            return self.run(work, operation)
        except HoldfastError as error:
            if target.size(layout.METADATA) is not None or not self._own(target, operation):
                raise  # it is complete and in use, or another's
            _remove(target)
            raise undone(operation, error.fact) from error

    def _own(self, target: Storage, operation: Operation) -> bool:
        try:
            origin = json.loads(target.read(layout.ORIGIN))
        except (NotFound, ValueError):
            return False
        savepoint = open_storage(operation.arguments["savepoint"]).uri
        return isinstance(origin, dict) and (origin.get("operation"), origin.get("savepoint")) == (
            self.word,
            savepoint,
        )


class Fork(Restore):
    """Makes a checkpoint of the same state for another query."""

    word = "fork"


def _remove(target: Storage) -> None:
    """Take away what a killed one has left; its mark last, so that it stays known as that."""
    paths = [path for path, _ in Tree(target).places()]
    for path in sorted(paths, key=lambda each: each == layout.ORIGIN):
        with suppress(NotFound):
            target.delete(path)
