"""The backend of a running job's state: RocksDB, the heap, or a database."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

from holdfast.config.checks import Check, check_fields, flag, one_of, optional, refused, whole
from holdfast.config.database_stores import Cassandra, Redis, TiKV
from holdfast.config.setting_report import SettingOutcome, SettingReport, format_setting, shown_size
from holdfast.config.spark_defaults import (
    BOUNDED_MEMORY_KEY,
    FORMAT_KEY,
    MEMORY_PROVIDER,
    PROVIDER_KEY,
    ROCKSDB,
    ROCKSDB_PROVIDER,
    ROW_CHECKSUM_KEY,
)
from holdfast.config.units import MIB, Size, exact_size, parse_size

UNBOUNDED = "unbounded"

MAX_MEMORY_KEY = f"{ROCKSDB}.maxMemoryUsageMB"
BLOCK_COMPRESSION_KEY = f"{ROCKSDB}.compression"
BLOCK_CACHE_KEY = f"{ROCKSDB}.blockCacheSizeMB"
WRITE_BUFFER_KEY = f"{ROCKSDB}.writeBufferSizeMB"
TRACK_ROWS_KEY = f"{ROCKSDB}.trackTotalNumberOfRows"
LOCAL_DIR_KEY = "spark.local.dir"

BlockCodec: TypeAlias = Literal["lz4", "lz4hc", "snappy", "zstd", "bzip2", "none"]
DiskProfile: TypeAlias = Literal["ssd", "spinning-disk", "low-memory"]

# RocksDB silently treats any other value as "none".
_BLOCK_COMPRESSIONS: Final[Mapping[BlockCodec, str]] = {
    "lz4": "lz4",
    "lz4hc": "lz4hc",
    "snappy": "snappy",
    "zstd": "zstd",
    "bzip2": "bzip2",
    "none": "none",
}


@dataclass(frozen=True, slots=True)
class _Profile:
    memory: str
    conf: tuple[tuple[str, str], ...]
    why: str


_PROFILES: Final[Mapping[DiskProfile, _Profile]] = {
    "ssd": _Profile("512m", (), "Spark's own settings, which suit a disk with fast random access."),
    "spinning-disk": _Profile(
        "512m",
        (
            (f"{ROCKSDB}.blockSizeKB", "32"),
            (WRITE_BUFFER_KEY, "64"),
            (f"{ROCKSDB}.maxWriteBufferNumber", "4"),
        ),
        "Larger blocks and write buffers: fewer, longer reads and writes, for a disk with slow seeks.",
    ),
    "low-memory": _Profile(
        "128m",
        (
            (f"{ROCKSDB}.blockSizeKB", "16"),
            (WRITE_BUFFER_KEY, "8"),
            (f"{ROCKSDB}.maxWriteBufferNumber", "2"),
            (f"{ROCKSDB}.maxOpenFiles", "256"),
        ),
        "A small budget, small write buffers, larger blocks for a smaller index, few open files.",
    ),
}
PROFILES = tuple(_PROFILES)


def _mebibytes(value: Size, setting: str) -> int:
    size_bytes = parse_size(value, setting)
    # Spark stores its cache budgets in whole MiB, in a Java int.
    if size_bytes % MIB or size_bytes // MIB > 2**31 - 1:
        found = f"{value!r}, which is {exact_size(size_bytes)}"
        raise refused(setting, value, 'whole MiB, such as "64m" or "2g"', found=found)
    return size_bytes


def _directory(value: object, setting: str) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not all(Path(path).is_absolute() for path in text.split(",")):
        expected = "an absolute path on the executors, or several separated by commas"
        raise refused(setting, value, expected)
    return text


def _block_compression(value: object, setting: str) -> object:
    if value == "zlib":
        found = "'zlib', which Holdfast cannot read"
        raise refused(
            setting, value, 'a codec that Holdfast can read; "zstd" makes files as small', found=found
        )
    return one_of(value, setting, allowed=tuple(_BLOCK_COMPRESSIONS))


_CHECKS: Final[Mapping[str, Check]] = {
    "profile": partial(one_of, allowed=PROFILES),
    "memory": optional(lambda value, setting: value if value == UNBOUNDED else _mebibytes(value, setting)),
    "format_version": partial(whole, least=1, most=2),
    "row_checksum": flag,
    "compression": _block_compression,
    "block_cache": optional(_mebibytes),
    "write_buffer": optional(_mebibytes),
    "track_rows": flag,
    "local_dir": optional(_directory),
}


@dataclass(frozen=True, slots=True)
class RocksDB:
    """The default backend: state in RocksDB on the executors' disks.

    `Checkpoint(incremental=…)` sets whether checkpoints are incremental.

    The first start of a checkpoint pins the kind of store and `row_checksum` in its offset log, and
    Spark ignores a later change of them; the other fields can change with each start.

    Args:
        memory: The budget that all stores of one executor share for caches and write buffers, in whole MiB;
            the profile's value by default. "unbounded" removes the limit.
        format_version: The layout of state files: 2 gives each file a unique name and a checksum.
        row_checksum: True to store a checksum with each row.
        compression: The codec of blocks inside RocksDB's files: "lz4", "lz4hc", "snappy", "zstd",
            "bzip2" or "none". RocksDB's "zlib" is refused, because Holdfast cannot read it. The codec of
            uploaded files is `Checkpoint(compression=…)`.
        block_cache: The cache of one store in whole MiB; only with unbounded memory, since a bounded
            budget is one cache for all.
        write_buffer: The write buffer of one store in whole MiB; the profile's value by default.
        profile: "ssd", "spinning-disk" or "low-memory".
        track_rows: True to count rows; costs a read for each write.
        local_dir: The executors' directory for RocksDB, best on a local SSD. Spark also uses it for shuffles.
            YARN and Kubernetes ignore it and choose their own.

    Raises:
        Invalid: A value is not allowed.

    Example:
        backend = hf.RocksDB(memory="2 GB", profile="low-memory", compression="zstd")
        assert backend.memory_bytes == 2 << 30
        print([(setting.name, setting.value, setting.why) for setting in backend.knobs()])
    """

    memory: Size | None = None
    format_version: int = 2
    row_checksum: bool = True
    compression: BlockCodec = "lz4"
    block_cache: Size | None = None
    write_buffer: Size | None = None
    profile: DiskProfile = "ssd"
    track_rows: bool = True
    local_dir: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_fields(self, "RocksDB", _CHECKS)
        if self.memory is None:
            object.__setattr__(self, "memory", parse_size(_PROFILES[self.profile].memory))

    @property
    def memory_bytes(self) -> int | None:
        """The memory budget of an executor in bytes; None if unbounded."""
        return None if self.memory is None or self.memory == UNBOUNDED else parse_size(self.memory)

    @property
    def block_cache_bytes(self) -> int | None:
        """The block cache of one store in bytes; None if not set."""
        return None if self.block_cache is None else parse_size(self.block_cache)

    @property
    def write_buffer_bytes(self) -> int | None:
        """The write buffer of one store in bytes; None if only the profile sets it."""
        return None if self.write_buffer is None else parse_size(self.write_buffer)

    def spark_conf(self) -> dict[str, str]:
        """Return the Spark settings of this store.

        The first start pins the provider class and the row checksum in the offset log.
        """
        conf = {
            PROVIDER_KEY: ROCKSDB_PROVIDER,
            FORMAT_KEY: str(self.format_version),
            ROW_CHECKSUM_KEY: format_setting(self.row_checksum),
            BOUNDED_MEMORY_KEY: format_setting(self.memory_bytes is not None),
            BLOCK_COMPRESSION_KEY: _BLOCK_COMPRESSIONS[self.compression],
            TRACK_ROWS_KEY: format_setting(self.track_rows),
            **dict(_PROFILES[self.profile].conf),
        }
        if self.memory_bytes is not None:
            conf[MAX_MEMORY_KEY] = str(self.memory_bytes // MIB)
        elif self.block_cache_bytes is not None:
            conf[BLOCK_CACHE_KEY] = str(self.block_cache_bytes // MIB)
        if self.write_buffer_bytes is not None:
            conf[WRITE_BUFFER_KEY] = str(self.write_buffer_bytes // MIB)
        if self.local_dir is not None:
            conf[LOCAL_DIR_KEY] = str(self.local_dir)
        return conf

    def knobs(self) -> tuple[SettingReport, ...]:
        """Return the explanation of every field, in order."""
        conf = self.spark_conf()
        profile = _PROFILES[self.profile]
        local_dir = None if self.local_dir is None else str(self.local_dir)

        def knob(name: str, value: str, why: str, *keys: str, unset: str = "") -> SettingReport:
            becomes = ", ".join(f"{key} = {conf.get(key, unset)}" for key in keys)
            return SettingReport(name, value, SettingOutcome.SPARK, becomes or "Spark's own settings", why)

        cache_size = shown_size(self.block_cache_bytes)
        if self.memory_bytes is None:
            why = "Each store of each partition has its own caches and buffers; their sum has no limit."
            memory = knob("memory", UNBOUNDED, why, BOUNDED_MEMORY_KEY)
            why = "The read cache of one store."
            block_cache = knob("block_cache", cache_size, why, BLOCK_CACHE_KEY, unset="8, Spark's default")
        else:
            why = "One budget for caches and buffers of all stores of an executor, outside the JVM's heap."
            memory = knob("memory", exact_size(self.memory_bytes), why, BOUNDED_MEMORY_KEY, MAX_MEMORY_KEY)
            why = 'The bounded memory is one cache for all stores; memory="unbounded" gives each its own.'
            block_cache = SettingReport("block_cache", cache_size, SettingOutcome.NO_USE, "", why)
        buffers = "Larger buffers mean fewer, longer writes."
        if self.write_buffer is None and WRITE_BUFFER_KEY in conf:
            buffers += f" Set by the profile {self.profile}."
        return (
            memory,
            knob(
                "format_version",
                str(self.format_version),
                "2 gives every state file a unique name and a checksum; 1 is Spark's older layout.",
                FORMAT_KEY,
            ),
            knob(
                "row_checksum",
                format_setting(self.row_checksum),
                "A damaged row is an error and not a wrong result. Fixed by a checkpoint's first start.",
                ROW_CHECKSUM_KEY,
            ),
            knob(
                "compression",
                self.compression,
                "The codec of blocks inside RocksDB's files; zstd is smaller and slower.",
                BLOCK_COMPRESSION_KEY,
            ),
            block_cache,
            knob(
                "write_buffer",
                shown_size(self.write_buffer_bytes),
                buffers,
                WRITE_BUFFER_KEY,
                unset="-1, RocksDB's default",
            ),
            knob("profile", self.profile, profile.why, *(key for key, _ in profile.conf)),
            knob(
                "track_rows",
                format_setting(self.track_rows),
                "Counting rows reads a key before each write; without it the number of rows is unknown.",
                TRACK_ROWS_KEY,
            ),
            knob(
                "local_dir",
                format_setting(local_dir),
                "The executors' scratch directory, for shuffles too; set when the session starts. YARN and "
                "Kubernetes choose their own.",
                LOCAL_DIR_KEY,
                unset="Spark's default",
            ),
        )


@dataclass(frozen=True, slots=True)
class Memory:
    """A backend with state on the executors' heap ("hashmap" in Flink), for tests and small state.

    The state is checkpointed and survives a restart. It needs no serialisation, but every retained version is
    a full map in memory; if the state outgrows the heap, the executor fails. `transformWithState` does
    not support this backend.

    Example:
        @hf.job(name="visits", checkpoint="checkpoints/shop", backend=hf.Memory())
        def visits(session): ...

        assert visits.backend == hf.Memory()
    """

    def spark_conf(self) -> dict[str, str]:
        """Return the Spark settings of this store.

        The settings select state-checkpoint format 1, the only one that Spark's heap store can write. The
        first start pins the provider class in the offset log.
        """
        return {PROVIDER_KEY: MEMORY_PROVIDER, FORMAT_KEY: "1"}

    def knobs(self) -> tuple[SettingReport, ...]:
        """Return an empty tuple, because there are no fields."""
        return ()


ExternalStore = Redis | Cassandra | TiKV
Backend = RocksDB | Memory | ExternalStore
