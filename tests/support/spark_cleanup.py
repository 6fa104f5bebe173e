"""A model of a query whose batches, maintenance and log purge run in threads that stall at any step.

It follows Spark's sources (`HDFSBackedStateStoreProvider`, `RocksDBFileManager`, `RocksDB.doMaintenance`,
`HDFSMetadataLog.purge`) and shares no code with what is tested.
"""

from __future__ import annotations

import io
import json
import random
import re
import struct
import uuid
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field

from golden import golden_files
from holdfast.formats.files.compression import compressed, decompressed

PARTITIONS = 2
PROVIDERS = ("heap", "rocksdb", "changelog")
_GOLDEN = {"heap": "memory", "rocksdb": "rocksdb", "changelog": "changelog"}


@dataclass(frozen=True)
class Settings:
    """What the query is set to.

    Attributes:
        provider: "heap", "rocksdb" without changelogs, or "changelog".
        format2: Whether names have unique ids.
        retain: `minBatchesToRetain`.
        deltas: `minDeltasForSnapshot`.
        most: `maxVersionsToDeletePerMaintenance`; -1 for no limit.
    """

    provider: str
    format2: bool
    retain: int
    deltas: int
    most: int = -1


@dataclass
class Partition:
    """What Spark's executor knows of one store."""

    waiting: list[str] = field(default_factory=list)
    since: int = 0
    lineage: list[tuple[int, str]] = field(default_factory=list)


class Query:
    """A checkpoint that changes by one step at a time.

    Args:
        settings: What the query is set to.
        rng: Chooses which thread makes the next step, and the order of listings.
    """

    def __init__(self, settings: Settings, rng: random.Random) -> None:
        self.settings = settings
        self.rng = rng
        golden = "format2" if settings.format2 else _GOLDEN[settings.provider]
        self.golden = golden_files(f"4.2/aggregate-{golden}")
        kept = ("metadata", "state/0/_metadata/metadata", "state/0/0/_metadata/schema")
        self.files = {path: self.golden[path] for path in kept}
        self.committed = -1
        self.due = 0
        self.late: list[tuple[int, str]] = []
        self.uploaded: set[tuple[int, str]] = set()
        self.released = [0] * PARTITIONS
        self.ids: dict[tuple[int, int], str] = {}
        self._start()

    def _start(self) -> None:
        self.partitions = [Partition() for _ in range(PARTITIONS)]
        for number, partition in enumerate(self.partitions):
            partition.since = max((version for version in self._bases(number)), default=0)
            partition.lineage = [
                (version, self.ids[number, version])
                for version in range(max(1, partition.since), self.committed + 2)
                if (number, version) in self.ids
            ]
        self.cleaning = [False] * PARTITIONS
        self.threads = {
            "batches": self._batches(),
            "purge": self._purge(),
            "former executor": self._late(),
            **{f"upload {number}": self._uploads(number) for number in range(PARTITIONS)},
            **{f"cleanup {number}": self._cleanup(number) for number in range(PARTITIONS)},
        }
        self.stalled: dict[str, int] = {}

    def step(self) -> None:
        """Let one thread make a step; now and then a thread stalls, or the process is killed and restarts."""
        if self.rng.random() < 0.004:
            self._start()
        if self.rng.random() < 0.02:
            self.stalled[self.rng.choice(sorted(self.threads))] = self.rng.randrange(10, 200)
        self.stalled = {name: steps - 1 for name, steps in self.stalled.items() if steps > 1}
        running = [name for name in sorted(self.threads) if name not in self.stalled]
        if running:
            next(self.threads[self.rng.choice(running)])

    # Threads: each `yield` is a place where a thread may stall for any time.

    def _batches(self) -> Iterator[None]:
        while True:
            batch_id = self.committed + 1
            self.files[f"offsets/{batch_id}"] = self._offsets(batch_id)
            self.due = batch_id - self.settings.retain
            yield
            ids = []
            for number, partition in enumerate(self.partitions):
                attempts = 2 if self.settings.format2 and self.rng.random() < 0.1 else 1
                for _ in range(attempts):  # of two attempts at a task the last one counts
                    unique = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
                    self._write(number, batch_id + 1, unique if self.settings.format2 else "")
                    yield
                self.ids[number, batch_id + 1] = unique
                partition.lineage.append((batch_id + 1, unique))
                ids.append([unique])
            fields: dict[str, object] = {"nextBatchWatermarkMs": 0}
            if self.settings.format2:
                fields["stateUniqueIds"] = {"0": ids}
            version = "v2" if self.settings.format2 else "v1"
            self.files[f"commits/{batch_id}"] = f"{version}\n{json.dumps(fields)}".encode()
            self.committed = batch_id
            yield

    def _purge(self) -> Iterator[None]:
        """It runs beside the batches, for the threshold that held when it began."""
        while True:
            threshold = self.due
            for log in ("offsets", "commits"):
                for batch_id in sorted(self._numbers(log)):
                    if batch_id < threshold:
                        del self.files[f"{log}/{batch_id}"]
                        yield
            yield

    def _uploads(self, number: int) -> Iterator[None]:
        """Run apart from the cleanup, as in Spark 4.3; Spark 4.2 does one after the other."""
        while True:
            yield from self._snapshot(number)
            yield

    def _cleanup(self, number: int) -> Iterator[None]:
        while True:
            listing = self._listing(number)
            yield
            clean = self._clean_heap if self.settings.provider == "heap" else self._clean_rocksdb
            for name in clean(number, listing):
                self.cleaning[number] = True
                self.files.pop(f"state/0/{number}/{name}", None)
                yield
            self.cleaning[number] = False
            yield

    def _late(self) -> Iterator[None]:
        """Upload a snapshot of an executor that lost the partition, after files around it were deleted."""
        while True:
            for number, stem in list(self.late):
                versions = {_version(name) for name in self._listing(number) if name.endswith(".changelog")}
                around = {_version(stem), _version(stem) + 1}
                if (number, stem) in self.uploaded:  # under format 1 it would overwrite a file
                    self.late.remove((number, stem))
                    continue
                if versions.isdisjoint(around) and not self.cleaning[number] and max(versions) > max(around):
                    self.late.remove((number, stem))
                    yield from self._upload(number, stem)
            yield

    def _clean_heap(self, number: int, listing: list[str]) -> Iterator[str]:
        by_version: dict[int, str] = {}
        for name in listing:
            version, kind = int(name.split(".")[0]), name.split(".")[1]
            if kind == "snapshot" or version not in by_version:
                by_version[version] = name
        if not by_version:
            return
        keep = max(by_version) - self.settings.retain
        snapshots = [
            version for version, name in by_version.items() if name.endswith("snapshot") and version <= keep
        ]
        if keep <= 0 or keep not in by_version or not snapshots:
            return
        self.released[number] = max(self.released[number], *snapshots)
        for version in sorted(by_version):
            if version < max(snapshots):
                yield by_version[version]

    def _clean_rocksdb(self, number: int, listing: list[str]) -> Iterator[str]:
        zips = sorted((name for name in listing if name.endswith(".zip")), key=_version)
        if not zips:
            return
        newest, oldest = _version(zips[-1]), _version(zips[0])
        bound = newest - self.settings.retain + 1
        if self.settings.most != -1:
            bound = min(bound, oldest + self.settings.most)
        keep = max((_version(name) for name in zips if _version(name) <= bound), default=0)
        due = [name for name in zips if _version(name) < keep]
        if not due:
            return
        self.released[number] = max(self.released[number], keep)
        data = [file for name in due for file in self._data_files(number, name)]
        self.rng.shuffle(data)
        yield from data
        for name in due:
            # A storage may refuse a deletion; Spark goes on with the next one.
            if self.rng.random() > 0.01:
                yield name
        for name in listing:
            if name.endswith(".changelog") and _version(name) < keep and self.rng.random() > 0.01:
                yield name

    def _snapshot(self, number: int) -> Iterator[None]:
        partition, settings = self.partitions[number], self.settings
        if settings.provider == "heap":
            versions = {_version(name): name for name in self._listing(number)}
            newest = max(versions, default=0)
            bases = [_version(name) for name in self._listing(number) if name.endswith(".snapshot")]
            if newest - max(bases, default=0) > settings.deltas:
                yield  # it is written beside, and then moved
                self.files[f"state/0/{number}/{newest}.snapshot"] = self.golden[
                    f"state/0/{number}/10.snapshot"
                ]
                yield
        elif settings.provider == "changelog" and partition.waiting:
            newest_stem = partition.waiting[-1]
            partition.waiting.clear()
            yield from self._upload(number, newest_stem)

    # What a thread writes.

    def _write(self, number: int, version: int, unique: str) -> None:
        partition, stem = self.partitions[number], f"{version}_{unique}" if unique else f"{version}"
        folder = f"state/0/{number}"
        if self.settings.provider == "heap":
            self.files[f"{folder}/{stem}.delta"] = self.golden[f"state/0/{number}/11.delta"]
        elif self.settings.provider == "rocksdb":
            for _ in self._upload(number, stem):
                pass
        else:
            self.files[f"{folder}/{stem}.changelog"] = self._changelog(number, version)
            if version - partition.since >= self.settings.deltas:
                partition.since = version
                partition.waiting.append(stem)
                if self.rng.random() < 0.1:
                    self.late.append((number, stem))

    def _upload(self, number: int, stem: str) -> Iterator[None]:
        folder = f"state/0/{number}"
        self.uploaded.add((number, stem))
        name = f"000008-{uuid.UUID(int=self.rng.getrandbits(128), version=4)}.sst"
        source, written = next(
            (path, files[0])
            for path in sorted(self.golden)
            if path.startswith(f"{folder}/") and path.endswith(".zip")
            if len(files := self._shared(path)) == 1  # RocksDB's manifest in it names no other
        )
        data = self.golden[f"{folder}/SSTs/{written['dfsSstFileName']}"]
        self.files[f"{folder}/SSTs/{name}"] = data
        yield
        self.files[f"{folder}/{stem}.zip"] = self._zip(source, [{**written, "dfsSstFileName": name}])
        yield

    def _shared(self, source: str) -> list[dict[str, object]]:
        with zipfile.ZipFile(io.BytesIO(self.golden[source])) as snapshot:
            files: list[dict[str, object]] = json.loads(snapshot.read("metadata").partition(b"\n")[2])[
                "sstFiles"
            ]
        return files

    def _zip(self, source: str, shared: list[dict[str, object]]) -> bytes:
        target = io.BytesIO()
        with (
            zipfile.ZipFile(io.BytesIO(self.golden[source])) as before,
            zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as after,
        ):
            for entry in before.namelist():
                data = before.read(entry)
                if entry == "metadata":
                    head, _, fields = data.partition(b"\n")
                    data = head + b"\n" + json.dumps({**json.loads(fields), "sstFiles": shared}).encode()
                after.writestr(entry, data)
        return target.getvalue()

    def _changelog(self, number: int, version: int) -> bytes:
        folder, partition = f"state/0/{number}", self.partitions[number]
        if not self.settings.format2:
            return self.golden[f"{folder}/11.changelog"]
        lineage = [{"version": v, "checkpointUniqueId": i} for v, i in partition.lineage[-12:]]
        source = next(
            path for path in self.golden if path.startswith(f"{folder}/11_") and path.endswith("changelog")
        )
        plain = decompressed(self.golden[source], "lz4", source)
        # "v3", then the lineage as a string of Java's.
        (length,) = struct.unpack_from(">H", plain, 4)
        text = json.dumps(lineage).encode()
        return compressed(plain[:4] + struct.pack(">H", len(text)) + text + plain[6 + length :], "lz4")

    def _offsets(self, batch_id: int) -> bytes:
        version, fields, _ = self.golden["offsets/9"].decode().split("\n")
        planned = {**json.loads(fields), "batchTimestampMs": 1_700_000_000_000 + batch_id}
        return f"{version}\n{json.dumps(planned)}\n{json.dumps({'offset': batch_id})}".encode()

    # What is there.

    def _listing(self, number: int) -> list[str]:
        folder = f"state/0/{number}/"
        names = [path[len(folder) :] for path in self.files if path.startswith(folder)]
        named = [name for name in names if "/" not in name]
        self.rng.shuffle(named)
        return named

    def _numbers(self, log: str) -> list[int]:
        return [int(path.split("/")[1]) for path in self.files if path.startswith(f"{log}/")]

    def _bases(self, number: int) -> list[int]:
        return [_version(name) for name in self._listing(number) if name.endswith((".zip", ".snapshot"))]

    def _data_files(self, number: int, name: str) -> list[str]:
        with zipfile.ZipFile(io.BytesIO(self.files[f"state/0/{number}/{name}"])) as archive:
            fields = json.loads(archive.read("metadata").partition(b"\n")[2])
        return [f"SSTs/{file['dfsSstFileName']}" for file in fields["sstFiles"]]

    def oldest_base(self, number: int) -> int:
        """Return the oldest version of a partition that has a base; 0 without one."""
        return min(self._bases(number), default=0)

    def loadable(self, number: int, version: int, without: str = "") -> bool:
        """Whether Spark can load a version of a partition."""
        names = {name for name in self._listing(number) if f"state/0/{number}/{name}" != without}
        while version > 0:
            unique = f"_{self.ids[number, version]}" if self.settings.format2 else ""
            stem = f"{version}{unique}"
            if f"{stem}.snapshot" in names:
                return True
            if f"{stem}.zip" in names:
                files = self._data_files(number, f"{stem}.zip")
                if all(f"state/0/{number}/{file}" in self.files for file in files):
                    return True
            if not names & {f"{stem}.delta", f"{stem}.changelog"}:
                return False
            version -= 1
        return True


def _version(name: str) -> int:
    return int(re.split(r"[._]", name, maxsplit=1)[0])
