"""A plain model of a database that keeps blobs, and histories of tasks to hold a real one against it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import count

from holdfast.formats.key_groups import Meta
from holdfast.worker.state.blob_store import (
    MARGIN,
    BlobDatabase,
    BlobName,
    BlobReader,
    Blobs,
    BlobServer,
    BlobStore,
    BlobTask,
    BlobWrites,
    ReplacedBlobs,
    blob_key,
)
from holdfast.worker.state.redis_blobs import RedisBlobServer
from holdfast.worker.state.store import GroupBlobs, MemoryStore, Write

LEAST = 64
GROUPS = 3
RETAINED = 3
# A store asks of its server only what keys begin with.
NOWHERE: BlobServer = RedisBlobServer("nowhere", 0)


class MemoryBlobs:
    """Does what `BlobDatabase` says, in two dictionaries."""

    product = "memory"

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.notes: dict[tuple[str, int], dict[str, int]] = {}

    def write(self, home: str, writes: BlobWrites) -> list[ReplacedBlobs]:
        for group, names in writes.noted.items():
            notes = self.notes.setdefault((home, group), {})
            for name in names:
                notes[name] = max(writes.batch_id, notes.get(name, writes.batch_id))
        self.blobs |= writes.blobs
        replaced = []
        for group in writes.folded:
            notes = self.notes.get((home, group), {})
            gone = tuple(sorted(name for name, batch_id in notes.items() if batch_id < writes.before))
            if gone:
                replaced.append(ReplacedBlobs(group, gone, writes.before))
        return replaced

    def fetch(self, names: Sequence[BlobName]) -> Sequence[bytes | None]:
        return [self.blobs.get(name.key) for name in names]

    def delete(self, home: str, replaced: Sequence[ReplacedBlobs]) -> None:
        for gone in replaced:
            for name in gone.names:
                self.blobs.pop(blob_key(home, gone.group, name), None)
                notes = self.notes.get((home, gone.group), {})
                if notes.get(name, gone.before) < gone.before:
                    del notes[name]


def append(group: int, store: MemoryStore, blob: bytes) -> Write:
    """A blob more for a group."""
    (before,) = store.metas([group])
    return Write(group, Meta(GROUPS, b"token---", b"form----"), before, append=blob, forms=b"{}")


def fold(group: int, store: MemoryStore, *blobs: bytes) -> Write:
    """A new base for a group."""
    (before,) = store.metas([group])
    return Write(group, Meta(GROUPS, b"token---", b"form----"), before, base=blobs)


def contents(stored: GroupBlobs) -> tuple[bytes, ...]:
    """All blobs of a group."""
    return (*stored.base, *stored.log)


def check_history(
    database: BlobDatabase, server: BlobServer, keys: Callable[[], list[str]], rounds: int
) -> None:
    """Tasks fail, are repeated or late, and batches are taken back; the model is a dictionary a version.

    Args:
        database: What is checked.
        server: What keys begin with.
        keys: The blobs that are there.
        rounds: How many tasks.
    """
    chance = random.Random(20261125)
    versions: dict[int, MemoryStore] = {0: MemoryStore()}
    models: dict[int, dict[int, list[bytes]]] = {0: {}}
    batch = most = 0
    tokens = count()
    ever = [(0, versions[0], models[0])]

    def task(store: MemoryStore, number: int) -> BlobStore:
        facts = BlobTask("visits", "query", number, f"t{next(tokens)}", RETAINED)
        return BlobStore(store, Blobs(server, LEAST), facts, database)

    def attempt(
        number: int, before: MemoryStore, held: dict[int, list[bytes]]
    ) -> tuple[MemoryStore, dict[int, list[bytes]]]:
        store = before.snapshot()
        model = {group: list(blobs) for group, blobs in held.items()}
        blobs = task(store, number)
        writes = []
        for group in chance.sample(range(GROUPS), chance.randrange(GROUPS + 1)):
            new = [chance.randbytes(chance.choice([1, LEAST - 1, LEAST, 5 * LEAST])) for _ in range(2)]
            if chance.random() < 0.15:
                writes.append(fold(group, store, *new))
                model[group] = new
            else:
                writes.append(append(group, store, new[0]))
                model.setdefault(group, []).append(new[0])
        blobs.write(writes)
        return store, model

    for _ in range(rounds):
        chosen = chance.random()
        if chosen < 0.15:
            attempt(batch, versions[batch], models[batch])  # its executor is lost before it commits
        elif chosen < 0.4:
            attempt(*chance.choice(ever))  # a late one, maybe of batches that were taken back
        elif chosen < 0.45:
            batch = max(number for number in versions if number <= max(0, batch - chance.randrange(3)))
        else:
            versions[batch + 1], models[batch + 1] = attempt(batch, versions[batch], models[batch])
            batch += 1
            ever.append((batch, versions[batch], models[batch]))
            most = max(most, batch)
            versions = {n: kept for n, kept in versions.items() if most - RETAINED <= n <= batch}
        for number, store in versions.items():
            for group, blobs_of in models[number].items():
                assert contents(BlobReader(store, "visits", database).load(group)) == tuple(blobs_of)
    assert most > rounds // 5
    for _ in range(MARGIN + 8):
        store = versions[batch].snapshot()
        task(store, batch).write(fold(group, store, bytes(LEAST)) for group in range(GROUPS))
        versions[batch + 1] = store
        batch += 1
    # What is left is what the last batches have replaced, one blob a group and batch, and nothing older.
    left = {int(key.rpartition(":")[2].split("-")[0]) for key in keys()}
    assert min(left) >= batch - RETAINED - MARGIN - 3
    assert len(keys()) <= GROUPS * (RETAINED + MARGIN + 3)


def check_calls(database: BlobDatabase, rounds: int) -> None:
    """Any calls have the same answers as the model's, also where a call is made twice.

    Args:
        database: What is checked; it is empty.
        rounds: How many calls.
    """
    chance = random.Random(20261126)
    model = MemoryBlobs()
    homes = ["holdfast:keyed:q:one", "holdfast:keyed:q:two"]
    names: dict[tuple[str, int], list[str]] = {(home, group): [] for home in homes for group in range(2)}
    known: list[BlobName] = []
    for number in range(rounds):
        home = chance.choice(homes)
        # Tasks come in any order.
        writes = BlobWrites(chance.randrange(20), chance.randrange(12))
        for group in chance.sample(range(2), chance.randrange(3)):
            own = names[home, group]
            again = chance.sample(own, min(len(own), chance.randrange(4)))
            fresh = [f"{writes.batch_id}-t{number}-{index}" for index in range(chance.randrange(3))]
            own += fresh
            for name in fresh:
                key = blob_key(home, group, name)
                size = chance.choice([0, 1, 1000, 256 << 10, 300_000, 600_000])
                writes.blobs[key] = chance.randbytes(size)
                known.append(BlobName.of(key, writes.blobs[key]))
            if again or fresh:
                writes.noted[group] = [*fresh, *again]
            if chance.random() < 0.3 and writes.batch_id >= writes.before:
                writes.folded.append(group)
        wanted = model.write(home, writes)
        for _ in range(chance.choice([1, 2])):
            answered = database.write(home, writes)
        assert sorted((gone.group, sorted(gone.names)) for gone in answered) == sorted(
            (gone.group, list(gone.names)) for gone in wanted
        )
        if chance.random() < 0.7:
            model.delete(home, wanted)
            for _ in range(chance.choice([1, 2])):
                database.delete(home, answered)
        asked = chance.sample(known, min(len(known), 6))
        assert list(database.fetch(asked)) == list(model.fetch(asked))
    assert any(model.notes.values())
    assert len(model.blobs) < len(known)
