"""A checkpoint with more state than a take reads, and its content worked out by definition."""

from __future__ import annotations

import hashlib
import itertools
import random
import struct
from collections.abc import Iterable
from pathlib import Path

from state_rows import state_rows

from golden import golden_on_disk
from holdfast.checkpoints.state.states import operator_states
from holdfast.formats.rows.row_hashes import partition_of
from holdfast.layout import StoreId
from holdfast.savepoints.stores import StoreForm, StoreWriter
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

# Changelogs behind snapshots of RocksDB; partition 0 gets a new snapshot at the newest version.
NAME = "4.2/aggregate-changelog"
NEWEST = 12
ROWS = 60_000

Row = tuple[bytes, bytes]
_KEY = [{"name": "name", "type": "string"}]


def large_rows(count: int = ROWS, seed: int = 5) -> list[Row]:
    """Keys of one text and values of two numbers, as Spark lays rows out; all belong to partition 0 of 2."""
    rng = random.Random(seed)
    rows: list[Row] = []
    for number in itertools.count():
        if len(rows) == count:
            break
        name = f"customer-{number:08}-{rng.getrandbits(64):016x}".encode()
        padded = name.ljust(-(-len(name) // 8) * 8, b"\0")
        key = struct.pack("<qq", 0, 16 << 32 | len(name)) + padded
        if partition_of(key, _KEY, 1, 2, NAME):
            continue
        rows.append((key, struct.pack("<qqq", 0, rng.getrandbits(40), rng.getrandbits(40))))
    return rows


def large_checkpoint(folder: Path, rows: Iterable[Row]) -> Path:
    """A checkpoint whose first partition holds these rows, and whose others are those of the golden one."""
    golden_on_disk(NAME, folder)
    storage = LocalStorage(folder)
    [operator] = operator_states(storage, NEWEST - 1)
    form = StoreForm(operator.values, operator.codec, unique_ids=False)
    store = StoreId(operator.operator_id, 0)
    with StoreWriter(storage, form.file(store, NEWEST), form, folder / "work", now_ms=0) as writer:
        keys, values = zip(*rows, strict=True)
        writer.add([b"\0" + key for key in keys], values)
        writer.finish()
    return folder


def digest_by_definition(rows: Iterable[Row]) -> tuple[int, str]:
    """The number of rows and their digest: the sum of hashes of 512 bits, and a hash of that."""
    count, total = 0, 0
    for key, value in rows:
        row = hashlib.blake2b(len(key).to_bytes(4, "little") + key + value, digest_size=64).digest()
        total += int.from_bytes(row, "little")
        count += 1
    sums = (total % (1 << 512)).to_bytes(64, "little")
    return count, hashlib.sha256(sums + count.to_bytes(8, "little")).hexdigest()


def digests_by_definition(storage: Storage) -> dict[tuple[int, str, str], tuple[int, str]]:
    """Rows and digest of every state of a checkpoint that has rows, read one by one."""
    rows: dict[tuple[int, str, str], list[Row]] = {}
    for row in state_rows(storage):
        name = (row.state.operator_id, row.state.store, row.state.family)
        value = row.value_rows[0]
        if row.is_list:
            value = b"".join(struct.pack("<i", len(each)) + each for each in row.value_rows)
        rows.setdefault(name, []).append((row.key_row, value))
    return {name: digest_by_definition(each) for name, each in rows.items()}
