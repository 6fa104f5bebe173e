"""The parts of a verb that can run on other machines, and where they run.

A part is a function of a module, with an address and an item as arguments: executors import it and open the
savepoint or the checkpoint themselves. What they return is merged in the order in which one process would
have computed it. A part only reads, so Spark may run it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.state.contents import ContentSum, StateContent, state_contents, store_sums
from holdfast.checkpoints.state.key_partition import PartitionCheck
from holdfast.checkpoints.state.states import StateName, operator_states
from holdfast.errors import NotFound, Unavailable, Unsupported
from holdfast.external.view import is_external, open_steady
from holdfast.extras import require_package
from holdfast.formats.manifest import Manifest
from holdfast.layout import Log, LogFile, StoreId
from holdfast.savepoints.catalog import load, split_uri
from holdfast.savepoints.view import SavepointView, StateLocation
from holdfast.storage import open_storage
from holdfast.storage.hashing import hash_of
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    from holdfast.engine.executors import Executors

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")
F = TypeVar("F")


class Tasks(Protocol):
    """A way to apply a function to many items."""

    @property
    def slots(self) -> int:
        """The number of items that are worked on at once."""

    def run(
        self, work: Callable[[T], R], items: Iterable[T], tell: ProgressCallback | None, note: str
    ) -> list[R]:
        """Apply a function to each item, and return the results in order.

        Raises:
            HoldfastError: The error of the first item whose function raised one.
        """

    def exchange(
        self,
        work: Callable[[T], tuple[R, Mapping[int, V]]],
        fold: Callable[[Iterable[V]], F],
        items: Iterable[T],
        groups: int,
        tell: ProgressCallback | None,
        note: str,
    ) -> tuple[list[R], list[F]]:
        """Apply a function to each item, and fold what the items have for each group, in any order.

        Returns:
            The results in the order of the items, and the fold of each group.

        Raises:
            As `run`.
        """


def executors(name: str, master: str) -> Executors:
    """Return the executors of a master, on which a verb runs its tasks.

    Args:
        name: The name of the application.
        master: The master.
    """
    require_package("pyspark")
    from holdfast.engine.executors import Executors

    return Executors(name, master)


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
        return _not_seen("catalog of the savepoint", f"{self.catalog}, savepoint {self.savepoint_id}", found)

    def open(self) -> tuple[Storage, int]:
        """Return the savepoint as a checkpoint, and its batch."""
        catalog, manifest = open_shared(self)
        return SavepointView(catalog, manifest.files, manifest.checkpoint), manifest.batch_id


@dataclass(frozen=True, slots=True)
class SharedCheckpoint:
    """The address of a checkpoint's batch for other machines.

    Attributes:
        uri: The checkpoint.
        batch_id: The batch.
        logs_sha256: The hash of the batch's entries in the offset log and the commit log. A machine on which
            they differ, or are missing, does not see the same checkpoint.
        call: Random bytes, unique per call, because a checkpoint may be replaced between two calls.
    """

    uri: str
    batch_id: int
    logs_sha256: str
    call: str

    @classmethod
    def of(cls, storage: Storage, batch_id: int) -> SharedCheckpoint:
        """Return the address of a batch."""
        return cls(storage.uri, batch_id, _hash_of_logs(storage, batch_id), os.urandom(8).hex())

    def open(self) -> tuple[Storage, int]:
        """Return the checkpoint and its batch.

        Raises:
            Unavailable: This machine does not see the same checkpoint.
        """
        storage = open_steady(self.uri)
        try:
            found = _hash_of_logs(storage, self.batch_id)
        except NotFound as error:
            raise self._not_seen("no such batch") from error
        if found != self.logs_sha256:
            raise self._not_seen("a batch with different logs")
        return storage, self.batch_id

    def _not_seen(self, found: str) -> Unavailable:
        return _not_seen("checkpoint", f"{self.uri}, batch {self.batch_id}", found)


def _not_seen(what: str, where: str, found: str) -> Unavailable:
    return Unavailable(
        f"an executor does not see the {what}",
        code="HF-E5078",
        where=where,
        found=found,
        expected="the same files as on this machine",
        hint="use storage that all executors reach, such as s3: or hdfs:, or omit --master",
    )


def _hash_of_logs(storage: Storage, batch_id: int) -> str:
    return hash_of(b"".join(storage.read(LogFile(log, batch_id).render()) for log in Log))


SharedState = SharedSavepoint | SharedCheckpoint


def share_state(state: StateLocation, batch_id: int) -> SharedState:
    """Return the address of a state for other machines.

    Args:
        state: The state.
        batch_id: Its batch.

    Raises:
        Unsupported: The state is in a database.
        NotFound: The state does not exist any more.
    """
    saved = split_uri(state.name) if state.is_savepoint else None
    if saved is not None:
        catalog = open_storage(saved[0], "catalog")
        return SharedSavepoint.of(catalog, load(catalog, saved[1]))
    if is_external(state.storage):
        raise Unsupported(
            "state in a database cannot be read on executors",
            code="HF-E7145",
            where=state.name,
            found="--master",
            expected="a savepoint, or a checkpoint with its state in files",
            hint="omit --master, or take a savepoint and compare that",
        )
    return SharedCheckpoint.of(state.storage, batch_id)


@lru_cache(maxsize=2)
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
    tasks: Tasks, state: SharedState, view: Storage, batch_id: int, tell: ProgressCallback | None
) -> tuple[StateContent, ...]:
    """Return what `contents` returns with a check of partitions, computed store by store in tasks.

    Args:
        tasks: Where the stores are read.
        state: The savepoint or the checkpoint.
        view: The same as a checkpoint.
        batch_id: The batch.
        tell: Called with stores done, total stores, and the current step.

    Raises:
        As `contents`; and
        Unavailable: An executor does not see the state.
    """
    operators = operator_states(view, batch_id)
    stores = [store for operator in operators for store in operator.stores()]
    sums: dict[StateName, ContentSum] = {}
    for parts in tasks.run(partial(sums_of_store, state), stores, tell, "reading state"):
        for name, rows, total, size_bytes in parts:
            sums.setdefault(name, ContentSum()).merge(ContentSum.restored(rows, total, size_bytes))
    return state_contents(operators, sums)


def sums_of_store(state: SharedState, store: StoreId) -> list[tuple[StateName, int, str, int]]:
    """Return rows, sum and bytes of each state in a store, after a check of its keys' partitions."""
    opened = open_state(state)
    sums = store_sums(opened.storage, opened.operators[store.operator_id], store, check=opened.check)
    return [(name, found.rows, found.total, found.size_bytes) for name, found in sums.items()]


class OpenedState:
    """A state that a worker has opened for several items.

    Attributes:
        storage: The checkpoint, or the savepoint's view.
        operators: The operators by number.
    """

    def __init__(self, storage: Storage, batch_id: int) -> None:
        self.storage = storage
        self.operators = {operator.operator_id: operator for operator in operator_states(storage, batch_id)}

    @cached_property
    def check(self) -> PartitionCheck:
        """The check that keys are in the partition that Spark's hash determines."""
        return PartitionCheck(self.operators.values(), self.storage.uri)


@lru_cache(maxsize=2)
def open_state(state: SharedState) -> OpenedState:
    """Open a state on this machine, once for several items.

    Raises:
        Unavailable: This machine does not see the same state.
    """
    return OpenedState(*state.open())
