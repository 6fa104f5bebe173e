"""Golden checkpoints for tests: real ones, small, read from archives into memory or onto a disk."""

from __future__ import annotations

import functools
import json
import os
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.formats.logs.batch_logs import OffsetLog, parse_offsets
from holdfast.storage.memory import MemoryStorage

FOLDER = Path(__file__).resolve().parents[1] / "golden"
SUFFIX = ".tar.xz"
# Keyed state of Holdfast's: each key group under its own number, as once, and spread over the partitions.
KEYED = ("4.2/keyed-format2", "4.2/spread-format2")
# Their number of partitions is not what Spark notes of their operators.
REPARTITIONED = "4.2/aggregate-repartitioned"
GATHERED = ("4.2/global-changelog", "4.2/limit-memory")
# Of a query without state.
STATELESS = "3.5/stateless-memory"
_ALL = {
    f"{archive.parent.name}/{archive.name.removesuffix(SUFFIX)}"
    for archive in FOLDER.glob(f"[0-9]*/*{SUFFIX}")
}
NAMES = (
    "4.2/aggregate-changelog",
    "4.2/aggregate-format2",
    "4.2/aggregate-memory",
    "4.2/aggregate-rocksdb",
    "4.2/dedupe-changelog",
    "4.2/join-format2",
    "4.2/join-memory",
    *KEYED,
    "4.2/session-rocksdb",
    "4.2/state-format2",
    "4.2/windowed-memory",
    "4.3/aggregate-format2",
    "4.3/aggregate-memory",
    "4.3/join-format2",
    "4.3/state-format2",
)
# All else: the queries of `make_plain`, one by one, which `spark_matrix` tries with every verb.
OTHERS = sorted(_ALL - {REPARTITIONED, *GATHERED, *NAMES})
# Some of Spark 3.5, which notes nothing of its operators.
UNNAMED = (
    "3.5/aggregate-memory",
    "3.5/aggregate-rocksdb",
    "3.5/dedupe-changelog",
    "3.5/join-memory",
    "3.5/session-rocksdb",
)


@functools.cache
def files_of_batch(batch: int) -> list[str]:
    """What an aggregate of two partitions with its state on the heap writes in a batch, in this order."""
    state = [f"state/0/{partition}/{batch + 1}.delta" for partition in (0, 1)]
    return [f"offsets/{batch}", *state, f"commits/{batch}"]


def golden_files(name: str) -> dict[str, bytes]:
    """The files of one, by path; callers copy before they change anything."""
    files = {}
    with tarfile.open(FOLDER / f"{name}{SUFFIX}") as archive:
        for member in archive:
            data = archive.extractfile(member)
            assert data is not None
            files[member.name] = data.read()
    return files


def golden(name: str) -> MemoryStorage:
    """One in memory."""
    return MemoryStorage(golden_files(name), uri=f"memory://golden/{name}")


def golden_with_confs(name: str, **confs: str) -> MemoryStorage:
    """One whose newest batch is fixed to other settings, given without `spark.sql.streaming.`."""
    files = dict(golden_files(name))
    batches = [path.removeprefix("offsets/") for path in files if path.startswith("offsets/")]
    batch_id = max(int(batch) for batch in batches if batch.isdecimal())
    newest = f"offsets/{batch_id}"
    old = parse_offsets(files[newest], newest)
    new = {**old.confs, **{f"spark.sql.streaming.{key}": value for key, value in confs.items()}}
    files[newest] = OffsetLog(old.version, {**(old.fields or {}), "conf": new}, old.offsets).render()
    files.pop(f"offsets/.{batch_id}.crc", None)
    return MemoryStorage(files, uri=f"memory://golden/{name}")


# Where the query of `kafka_files` goes on.
KAFKA = {"orders": {"0": 40, "1": 25, "10": 7}, "refunds": {"0": 3}}


def kafka_files(name: str, *sources: Any) -> dict[str, bytes]:
    """The files of one whose sources have come to these offsets, in every batch; by default one of Kafka."""
    files = {path: data for path, data in golden_files(name).items() if not path.startswith("sources/")}
    for path in [path for path in files if path.startswith("offsets/")]:
        if path.removeprefix("offsets/").isdecimal():
            old = parse_offsets(files[path], path)
            ends = {str(number): json.dumps(end) for number, end in enumerate(sources or (KAFKA,))}
            files[path] = OffsetLog(old.version, old.fields, ends).render()
            files.pop(path.replace("/", "/.") + ".crc", None)
    return files


def golden_on_disk(name: str, folder: Path) -> Path:
    """One in a folder of the test's own, as old as a query's that has been stopped for a day."""
    return files_on_disk(golden_files(name), folder)


def files_on_disk(files: Mapping[str, bytes], folder: Path) -> Path:
    """Files in a folder of the test's own, a day old."""
    day_old_s = time.time() - 86_400
    for path, data in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        os.utime(file, (day_old_s, day_old_s))
    return folder


def input_folder(name: str) -> str:
    """The address of the directory whose files the query of one has read."""
    [first] = [data for path, data in golden_files(name).items() if path == "sources/0/0"]
    return str(json.loads(first.split(b"\n")[1])["path"].rpartition("/")[0])


def files_read_from(name: str, folder: str) -> dict[str, bytes]:
    """The files of one, as if its query had read files of another directory, which is given as an address."""
    before, files = input_folder(name).encode(), {}
    for path, data in golden_files(name).items():
        if not path.startswith("sources/"):
            files[path] = data
        elif not path.endswith(".crc"):
            files[path] = data.replace(before, folder.encode())
    return files


def without_checksums(files: dict[str, bytes]) -> dict[str, bytes]:
    """The same as an object store holds it under state-checkpoint format 1: no checksums."""
    return {path: data for path, data in files.items() if not path.endswith(".crc")}
