"""The parts of a savepoint's verification that can run on other machines, and where they run.

A part is a function of a module, with an address and an item as arguments: executors import it and open the
savepoint themselves. What they return is merged in the order in which one process would have computed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol, TypeVar

from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.state.contents import ContentSum, StateContent, state_contents, store_sums
from holdfast.checkpoints.state.key_partition import PartitionCheck
from holdfast.checkpoints.state.states import OperatorStates, StateName, operator_states
from holdfast.errors import NotFound, Unavailable
from holdfast.formats.manifest import Manifest
from holdfast.layout import StoreId
from holdfast.savepoints.catalog import load
from holdfast.savepoints.view import SavepointView
from holdfast.storage import open_storage
from holdfast.storage.hashing import hash_of
from holdfast.storage.port import Storage

T = TypeVar("T")
R = TypeVar("R")


class Tasks(Protocol):
    """A way to apply a function to many items."""

    def run(
        self, work: Callable[[T], R], items: Iterable[T], tell: ProgressCallback | None, note: str
    ) -> list[R]:
        """Apply a function to each item, and return the results in order.

        Raises:
            HoldfastError: The error of the first item whose function raised one.
        """


@dataclass(frozen=True, slots=True)
class SharedSavepoint:
    """The address of a savepoint for other machines.

    Attributes:
        catalog: The catalog.
        savepoint_id: The savepoint.
        manifest_sha256: The hash of its manifest. A machine on which the manifest differs, or is missing,
            does not see the same catalog.
    """

    catalog: str
    savepoint_id: str
    manifest_sha256: str

    @classmethod
    def of(cls, catalog: Storage, manifest: Manifest) -> SharedSavepoint:
        """Return the address of a savepoint."""
        return cls(catalog.uri, manifest.savepoint_id, hash_of(manifest.render()))

    def not_seen(self, found: str) -> Unavailable:
        """Return the error for a machine that does not see the savepoint."""
        return Unavailable(
            "an executor does not see the catalog of the savepoint",
            code="HF-E5078",
            where=f"{self.catalog}, savepoint {self.savepoint_id}",
            found=found,
            expected="the same files as on this machine",
            hint="use a catalog on storage that all executors reach, such as s3: or hdfs:, or omit --master",
        )


@lru_cache(maxsize=1)
def open_shared(savepoint: SharedSavepoint) -> tuple[Storage, Manifest]:
    """Open a savepoint on this machine, once for several items.

    Raises:
        Unavailable: This machine does not see the same savepoint.
    """
    catalog = open_storage(savepoint.catalog, "catalog")
    try:
        manifest = load(catalog, savepoint.savepoint_id)
    except NotFound as error:
        raise savepoint.not_seen("no such savepoint") from error
    if hash_of(manifest.render()) != savepoint.manifest_sha256:
        raise savepoint.not_seen("a different manifest")
    return catalog, manifest


def contents_on(
    tasks: Tasks, savepoint: SharedSavepoint, view: Storage, batch_id: int, tell: ProgressCallback | None
) -> tuple[StateContent, ...]:
    """Return what `contents` returns with a check of partitions, computed store by store in tasks.

    Args:
        tasks: Where the stores are read.
        savepoint: The savepoint.
        view: The savepoint as a checkpoint.
        batch_id: The batch.
        tell: Called with stores done, total stores, and the current step.

    Raises:
        As `contents`; and
        Unavailable: An executor does not see the catalog.
    """
    operators = operator_states(view, batch_id)
    stores = [
        StoreId(operator.operator_id, partition, name)
        for operator in operators
        for partition in range(operator.partitions)
        for name in operator.store_names
    ]
    sums: dict[StateName, ContentSum] = {}
    for parts in tasks.run(partial(sums_of_store, savepoint), stores, tell, "reading state"):
        for name, rows, total, size_bytes in parts:
            sums.setdefault(name, ContentSum()).merge(ContentSum.restored(rows, total, size_bytes))
    return state_contents(operators, sums)


def sums_of_store(savepoint: SharedSavepoint, store: StoreId) -> list[tuple[StateName, int, str, int]]:
    """Return rows, sum and bytes of each state in a store, after a check of its keys' partitions."""
    opened = _opened(savepoint)
    sums = store_sums(opened.view, opened.operators[store.operator_id], store, check=opened.check)
    return [(name, found.rows, found.total, found.size_bytes) for name, found in sums.items()]


@dataclass(frozen=True, slots=True)
class _Opened:
    """A savepoint that a worker has opened for several items."""

    view: SavepointView
    operators: dict[int, OperatorStates]
    check: PartitionCheck


@lru_cache(maxsize=1)
def _opened(savepoint: SharedSavepoint) -> _Opened:
    catalog, manifest = open_shared(savepoint)
    view = SavepointView(catalog, manifest.files, manifest.checkpoint)
    operators = operator_states(view, manifest.batch_id)
    named = {operator.operator_id: operator for operator in operators}
    return _Opened(view, named, PartitionCheck(operators, view.uri))
