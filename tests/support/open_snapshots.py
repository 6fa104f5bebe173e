"""Open changed snapshots of a golden checkpoint with RocksDB: `python open_snapshots.py NAME SEED COUNT`.

A process of its own, since what RocksDB does with a stranger's files may end it.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from hostile import entry_names, entry_of, hostile, with_entry

from golden import golden_files, without_checksums
from holdfast import layout
from holdfast.checkpoints.state.rocksdb import open_snapshot
from holdfast.errors import HoldfastError
from holdfast.formats.files.snapshot import METADATA
from holdfast.layout import StoreFile
from holdfast.storage.local import LocalStorage

Files = dict[str, bytes]


def changed_file(files: Files, zip_path: str, seed: str, rng: random.Random) -> tuple[str, bytes]:
    """A file that opening a snapshot reads, and what a stranger makes of it."""

    def change(data: bytes) -> bytes:
        return next(hostile([data], seed, 1))

    kind = rng.choice(("zip", "list", "entry", "table"))
    if kind == "zip":
        return zip_path, change(files[zip_path])
    if kind == "table":
        folder = f"{layout.split(zip_path)[0]}/{layout.SSTS}/"
        path = rng.choice(sorted(path for path in files if path.startswith(folder)))
        return path, change(files[path])
    others = [name for name in entry_names(files[zip_path]) if name != METADATA]
    entry = METADATA if kind == "list" else rng.choice(others)
    return zip_path, with_entry(files[zip_path], entry, change(entry_of(files[zip_path], entry)))


def main(name: str, seed: str, count: int) -> None:
    files = without_checksums(golden_files(name))
    rng = random.Random(f"{seed} {name}")
    zips = sorted(path for path in files if path.endswith(".zip"))
    read = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "checkpoint")
        for path, data in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(data)
        around = sorted(Path(folder).iterdir())
        for number in range(count):
            zip_path = rng.choice(zips)
            path, data = changed_file(files, zip_path, f"{seed} {name} {number}", rng)
            (place / path).write_bytes(data)
            file = layout.parse(zip_path)
            assert isinstance(file, StoreFile)
            try:
                with open_snapshot(LocalStorage(place), file, b"") as snapshot:
                    read += sum(len(chunk) for chunk in snapshot.chunks(100))
                    snapshot.get(b"key")
            except HoldfastError:
                refused += 1
            (place / path).write_bytes(files[path])
            assert sorted(Path(folder).iterdir()) == around
    assert read, "nothing could be read"
    assert refused, "nothing was refused"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
