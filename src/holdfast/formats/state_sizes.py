"""How large the state of each partition is, from the files of a checkpoint and no more.

A store at version V is the newest snapshot at or before V with the files that it names, and the changes
since. Sizes are those of files, so a value that was written again after the snapshot counts twice.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Corrupt, NotFound, Unavailable

_FILE: Final = re.compile(r"(?P<version>\d+)(?:_[^.]+)?\.(?P<kind>zip|changelog|snapshot|delta)")
_FULL: Final = ("zip", "snapshot")
_LOOKS: Final = 5


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """The state of one partition of one store.

    Attributes:
        partition: Its number.
        bytes: Of the newest snapshot and of all changes since.
        rows: In the newest snapshot, where it says so: RocksDB's do.
    """

    partition: int
    bytes: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """One store of one stateful operator.

    Attributes:
        operator: The operator's number.
        operator_name: What Spark calls it.
        store: The store's name; `default` where an operator has one only.
        batch_id: The newest committed batch.
        partitions: All of them, in order.
    """

    operator: int
    operator_name: str
    store: str
    batch_id: int
    partitions: tuple[PartitionSize, ...]

    @property
    def bytes(self) -> int:
        """All partitions together."""
        return sum(each.bytes for each in self.partitions)

    @property
    def largest(self) -> float:
        """The share of the largest partition, by bytes; 0 for a store without any."""
        return max((each.bytes for each in self.partitions), default=0) / max(1, self.bytes)

    @property
    def rows(self) -> int | None:
        """All partitions together, if each of them says so."""
        rows = [each.rows for each in self.partitions]
        return None if None in rows else sum(each or 0 for each in rows)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "bytes": self.bytes, "rows": self.rows, "largest_share": self.largest}


def state_sizes(checkpoint: Path) -> list[StoreSizes]:
    """The state of a checkpoint at its newest committed batch, by operator, store and partition.

    Lists each store's directory and opens one zip's directory of files in each; no data is read. Where a
    running query clears files away meanwhile, it looks again.

    Raises:
        NotFound: There is no checkpoint, or nothing is committed in it.
        Corrupt: A snapshot cannot be read.
        Unavailable: The query clears files away faster than they can be listed.
    """
    for _ in range(_LOOKS):
        with suppress(FileNotFoundError):
            return _sizes(checkpoint)
    raise Unavailable("the checkpoint changes while it is looked at", where=str(checkpoint))


def _sizes(checkpoint: Path) -> list[StoreSizes]:
    batch_id = _newest_batch(checkpoint)
    found: list[StoreSizes] = []
    for folder in _numbered(checkpoint / "state"):
        name = _operator_name(folder)
        stores: dict[str, list[PartitionSize]] = defaultdict(list)
        for partition in _numbered(folder):
            for store, place in _stores(partition):
                stores[store].append(_size(int(partition.name), place, batch_id + 1))
        for store, sizes in sorted(stores.items()):
            found.append(StoreSizes(int(folder.name), name, store, batch_id, tuple(sizes)))
    return found


def is_checkpoint(path: Path) -> bool:
    """Whether a directory looks like the checkpoint of a query."""
    return (path / "commits").is_dir() and (path / "offsets").is_dir()


def _newest_batch(checkpoint: Path) -> int:
    if not is_checkpoint(checkpoint):
        below = sorted(each.name for each in checkpoint.glob("*") if is_checkpoint(each))
        raise NotFound(
            "there is no checkpoint of a query",
            where=str(checkpoint),
            found=f"checkpoints below it: {', '.join(below)}" if below else None,
            expected="a directory with `commits` and `offsets`",
            hint=f"name one of them: {checkpoint / below[0]}" if below else None,
        )
    committed = [int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdigit()]
    if not committed:
        raise NotFound("no batch is committed in this checkpoint", where=str(checkpoint))
    return max(committed)


def _numbered(folder: Path) -> list[Path]:
    """What is named by a number, in the order of the numbers."""
    if not folder.is_dir():
        return []
    return sorted((each for each in folder.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))


def _stores(partition: Path) -> Iterable[tuple[str, Path]]:
    """The stores of a partition: directories of their names, or the partition's own."""
    named = [each for each in sorted(partition.iterdir()) if each.is_dir() and each.name[0] not in "_."]
    named = [each for each in named if each.name not in ("SSTs", "logs", "archive")]
    return [(each.name, each) for each in named] if named else [("default", partition)]


def _operator_name(folder: Path) -> str:
    """From the operator's metadata: one file, or one for each batch that wrote it anew."""
    metadata = folder / "_metadata"
    newer = _numbered(metadata / "v2")
    file = newer[-1] if newer else metadata / "metadata"
    if not file.is_file():
        return ""
    body = file.read_text(encoding="utf-8").partition("\n")[2]
    try:
        return str(json.loads(body)["operatorInfo"]["operatorName"])
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt("the metadata of a stateful operator cannot be read", where=str(file)) from error


def _size(partition: int, store: Path, version: int) -> PartitionSize:
    files: dict[tuple[int, str], Path] = {}
    for each in store.iterdir():
        found = _FILE.fullmatch(each.name)
        if found is None or int(found["version"]) > version:
            continue
        key = int(found["version"]), found["kind"]
        # A task that ran twice leaves two files of one version; which one counts makes little difference.
        if key not in files or each.stat().st_mtime > files[key].stat().st_mtime:
            files[key] = each
    base = max((at for at, kind in files if kind in _FULL), default=0)
    total, rows = 0, None
    for (at, kind), file in files.items():
        if at == base and kind in _FULL:
            more, rows = _snapshot(file) if kind == "zip" else (0, None)
            total += file.stat().st_size + more
        elif at > base and kind not in _FULL:
            total += file.stat().st_size
    return PartitionSize(partition, total, rows)


def _snapshot(file: Path) -> tuple[int, int | None]:
    """The bytes of the files that a RocksDB snapshot names, and its rows."""
    try:
        with zipfile.ZipFile(file) as archive:
            text = archive.read("metadata").decode()
        fields = json.loads(text.partition("\n")[2])
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise Corrupt("a snapshot of state cannot be read", where=str(file), found=str(error)) from error
    rows = fields.get("numKeys")
    return sum(int(each["sizeBytes"]) for each in fields.get("sstFiles") or ()), rows
