"""What tests of savepoints share: clocks, chance, and small checkpoints made by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.savepoints.planning import plan_take
from holdfast.savepoints.removal import Removal, delete, sweep
from holdfast.savepoints.restoring import Restored, RestoreKind, plan_restore, restore
from holdfast.savepoints.taking import Taken, take
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage

QUERY = "7d7a1b9e-9dda-47b2-8f49-4073fd4a7361"
START_MS = 1_772_700_000_000


@dataclass
class Hands:
    """Does things with catalogs: one at a time, by a clock and a chance of its own."""

    now_ms: int = START_MS
    drawn: Callable[[], int] = field(default_factory=lambda: itertools.count(1).__next__)

    def clock(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def chance(self, count: int) -> bytes:
        return self.drawn().to_bytes(count, "big")

    def token(self) -> str:
        return self.chance(8).hex()

    def take(
        self,
        checkpoint: Storage,
        catalog: Storage,
        batch_id: int | None = None,
        label: str | None = None,
        *,
        deep: bool = False,
        workers: int = 1,
    ) -> Taken:
        plan = plan_take(checkpoint, catalog, batch_id)
        return take(
            checkpoint,
            catalog,
            plan,
            clock=self.clock,
            chance=self.chance,
            label=label,
            deep=deep,
            workers=workers,
        )

    def make(
        self,
        catalog: Storage,
        savepoint_id: str,
        target: Storage,
        operation: RestoreKind,
        *,
        again: bool = True,
    ) -> Restored:
        plan = plan_restore(
            catalog, savepoint_id, target, operation, chance=self.chance, again=again, workers=1
        )
        return restore(catalog, target, plan, clock=self.clock, workers=1)

    def restore(self, catalog: Storage, savepoint_id: str, target: Storage) -> Restored:
        return self.make(catalog, savepoint_id, target, RestoreKind.RESTORE)

    def fork(self, catalog: Storage, savepoint_id: str, target: Storage) -> Restored:
        return self.make(catalog, savepoint_id, target, RestoreKind.FORK)

    def delete(self, catalog: Storage, savepoint_id: str) -> Removal:
        return delete(catalog, savepoint_id, clock=self.clock, chance=self.chance)

    def sweep(self, catalog: Storage, dead_after_ms: int = 3_600_000) -> Removal:
        return sweep(catalog, clock=self.clock, chance=self.chance, dead_after_ms=dead_after_ms)


def file_query(batches: int, query_id: str = QUERY) -> dict[str, bytes]:
    """The checkpoint of a query without state that has read a file in each batch, and noted one file more."""
    files = {"metadata": f'{{"id":"{query_id}"}}'.encode()}
    for number in range(batches):
        files[f"offsets/{number}"] = (
            f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{number}}}\n{{"logOffset":{number}}}'.encode()
        )
        files[f"commits/{number}"] = b'v1\n{"nextBatchWatermarkMs":0}'
    for number in range(batches + 1):
        seen = f'{{"path":"file:///in/{query_id[:4]}-{number}","timestamp":{number},"batchId":{number}}}'
        files[f"sources/0/{number}"] = f"v1\n{seen}".encode()
    return files


def catalog() -> MemoryStorage:
    """An empty catalog."""
    return MemoryStorage(uri="memory://catalog")


def target(name: str = "new") -> MemoryStorage:
    """A place where nothing is."""
    return MemoryStorage(uri=f"memory://{name}")


def manifests(storage: MemoryStorage) -> list[str]:
    """The ids of the savepoints that exist."""
    return sorted(path.split("/")[1] for path in storage.files if path.endswith("/manifest.json"))
