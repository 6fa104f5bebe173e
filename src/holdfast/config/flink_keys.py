"""The table of Flink's settings for checkpoints, state and restarts, with Holdfast's equivalents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from holdfast.config.checks import refused
from holdfast.config.setting_report import SettingOutcome
from holdfast.config.spark_defaults import ROCKSDB, SHUFFLE_PARTITIONS_KEY
from holdfast.config.units import exact_size, parse_duration, parse_size

Reader = Callable[[object, str], object]

# Flink's name for no limit, and the number that represents it.
_NO_LIMIT = frozenset({"infinite", "2147483647"})


def text(value: object, key: str) -> str:
    """Read a value as non-empty text."""
    if not isinstance(value, str) or not value.strip():
        raise refused(key, value, "text")
    return value.strip()


def boolean(value: object, key: str) -> bool:
    """Read true or false, in any case."""
    word = str(value).strip().lower()
    if word not in ("true", "false"):
        raise refused(key, value, "true or false")
    return word == "true"


def number(value: object, key: str) -> int:
    """Read a whole number."""
    if not isinstance(value, bool) and isinstance(value, (int, str)):
        digits = str(value).strip()
        if digits.removeprefix("-").isascii() and digits.removeprefix("-").isdigit() and len(digits) < 19:
            return int(digits)
    raise refused(key, value, "a whole number")


def limit(value: object, key: str) -> int | None:
    """Read a whole number; return None for Flink's value for no limit."""
    return None if str(value).strip().lower() in _NO_LIMIT else number(value, key)


def decimal(value: object, key: str) -> float:
    """Read a decimal number."""
    if not isinstance(value, bool) and isinstance(value, (int, float, str)):
        try:
            return float(value)
        except ValueError:
            pass
    raise refused(key, value, "a number")


def positive(value: object, key: str) -> int:
    """Read a whole number of at least one."""
    whole = number(value, key)
    if whole < 1:
        raise refused(key, value, "a whole number of at least 1")
    return whole


def share(value: object, key: str) -> float:
    """Read a share from 0 to 1."""
    part = decimal(value, key)
    if not 0 <= part <= 1:
        raise refused(key, value, "a number of at least 0 and at most 1")
    return part


def duration(value: object, key: str) -> int:
    """Read a duration in milliseconds; a bare number is milliseconds, and zero is accepted."""
    if isinstance(value, (str, int, float, timedelta)):
        return parse_duration(value, key, allow_zero=True, bare_ms=True)
    raise refused(key, value, 'a duration, such as "10 s", or milliseconds')


def size(value: object, key: str) -> int:
    """Read a size in bytes; a bare number is bytes."""
    if isinstance(value, str) and not value.strip().isdecimal():
        return parse_size(value, key)
    return parse_size(number(value, key), key)


def managed(value: object, key: str) -> str | None:
    """Read whether RocksDB's memory is bounded; return None for the profile's budget."""
    return None if boolean(value, key) else "unbounded"


def words(allowed: Mapping[str, str]) -> Reader:
    """Return a reader that translates Flink's values, in any case, into Holdfast's."""

    def read(value: object, key: str) -> str:
        word = allowed.get(str(value).strip().lower())
        if word is None:
            raise refused(key, value, "one of " + ", ".join(allowed))
        return word

    return read


mode: Final = words({"exactly_once": "exactly_once", "at_least_once": "at_least_once"})

# The effect of a cancellation on the checkpoint.
retention: Final = words(
    {
        "retain_on_cancellation": "retain",
        "delete_on_cancellation": "delete",
        "no_externalized_checkpoints": "delete",
    }
)

# Named sets of RocksDB options.
profile: Final = words(
    {
        "default": "ssd",
        "flash_ssd_optimized": "ssd",
        "spinning_disk_optimized": "spinning-disk",
        "spinning_disk_optimized_high_mem": "spinning-disk",
    }
)

elections: Final = words({"none": "none", "zookeeper": "zookeeper"})

_backends: Final = words(
    {
        "hashmap": "memory",
        "jobmanager": "memory",
        "filesystem": "memory",
        "rocksdb": "rocksdb",
        "forst": "rocksdb",
    }
)

_strategies: Final = words(
    {
        **dict.fromkeys(("none", "off", "disable"), "none"),
        **dict.fromkeys(("fixed-delay", "fixeddelay"), "fixed-delay"),
        **dict.fromkeys(("failure-rate", "failurerate"), "failure-rate"),
        **dict.fromkeys(("exponential-delay", "exponentialdelay"), "exponential-delay"),
    }
)


def backend(value: object, key: str) -> object:
    """Read the type of the state backend, given by short name or class name."""
    name = text(value, key)
    if "." in name:
        return "rocksdb" if "rocksdb" in name.lower() or "forst" in name.lower() else "memory"
    return _backends(name, key)


def strategy(value: object, key: str) -> object:
    """Read the type of the restart strategy; false means `off`, because YAML parses a bare `off` as false."""
    return "none" if value is False else _strategies(value, key)


def retained(value: object, key: str) -> int:
    """Read the number of retained checkpoints; Flink's 1 becomes 2, Spark's minimum for a restart."""
    count = number(value, key)
    return 2 if count == 1 else count


def kibibytes(value: object, key: str) -> int:
    """Read a size in whole KiB."""
    size_bytes = size(value, key)
    if size_bytes % 1024:
        raise refused(key, f"{value}, which is {exact_size(size_bytes)}", "whole KiB")
    return size_bytes // 1024


@dataclass(frozen=True, slots=True)
class FlinkKey:
    """A setting of Flink.

    Args:
        name: The name in Flink 2.
        target: The field that it sets: "checkpoint.FIELD", "backend.FIELD", a part of a restart strategy
            ("exponential-delay.FIELD"), or a name that `read_flink` handles; empty if none.
        read: The reader of the value.
        aliases: The older names.
        spark_key: The Spark setting that it sets, if no field of Holdfast does.
        outcome: The outcome to report, if it sets nothing.
        why: The explanation, if no field of Holdfast has one.
    """

    name: str
    target: str = ""
    read: Reader = lambda value, _key: value
    aliases: tuple[str, ...] = ()
    spark_key: str = ""
    outcome: SettingOutcome = SettingOutcome.NO_USE
    why: str = ""


_CHECKPOINTING = "execution.checkpointing."
_BACKEND = "state.backend.rocksdb."
_RESTART = "restart-strategy."
_ZOOKEEPER = "high-availability.zookeeper."
_HA = "Part of the address of the elections."

_NO_BARRIERS = "There are no barriers and no records in flight between batches, so nothing is unaligned."
_COMPACTION = "Spark leaves compaction to RocksDB's own defaults and has no setting for it."
_TIMERS = "Timers are part of the state of transformWithState and are stored in RocksDB."


def _checkpoint(name: str, field: str, read: Reader, aliases: tuple[str, ...] = ()) -> FlinkKey:
    """Return the entry of a setting that is a field of `Checkpoint`."""
    return FlinkKey(f"{_CHECKPOINTING}{name}", f"checkpoint.{field}", read, aliases)


def _rocksdb(name: str, read: Reader, spark_name: str, why: str) -> FlinkKey:
    """Return the entry of a RocksDB setting with a different name in Spark."""
    return FlinkKey(f"{_BACKEND}{name}", read=read, spark_key=f"{ROCKSDB}.{spark_name}", why=why)


def _always(name: str, why: str, **given: Any) -> FlinkKey:
    """Return the entry of a setting for behaviour that Spark always has."""
    return FlinkKey(name, outcome=SettingOutcome.ALWAYS, why=why, **given)


FLINK_KEYS: tuple[FlinkKey, ...] = (
    _checkpoint("interval", "interval", duration),
    _checkpoint("min-pause", "min_pause", duration),
    _checkpoint("timeout", "timeout", duration),
    _checkpoint("mode", "mode", mode),
    _checkpoint("max-concurrent-checkpoints", "max_concurrent", number),
    _checkpoint("tolerable-failed-checkpoints", "tolerable_failures", number),
    _checkpoint("unaligned.enabled", "unaligned", boolean, (f"{_CHECKPOINTING}unaligned",)),
    _checkpoint(
        "aligned-checkpoint-timeout", "aligned_timeout", duration, (f"{_CHECKPOINTING}alignment-timeout",)
    ),
    _checkpoint("externalized-checkpoint-retention", "on_cancel", retention),
    _checkpoint("num-retained", "retain", retained, ("state.checkpoints.num-retained",)),
    _checkpoint("incremental", "incremental", boolean, ("state.backend.incremental",)),
    _checkpoint(
        "local-backup.enabled",
        "local_recovery",
        boolean,
        ("state.backend.local-recovery", "execution.state-recovery.from-local"),
    ),
    _checkpoint("dir", "storage", text, ("state.checkpoints.dir", "state.backend.fs.checkpointdir")),
    FlinkKey(
        f"{_CHECKPOINTING}savepoint-dir",
        "checkpoint.savepoints",
        text,
        ("state.savepoints.dir", "savepoints.state.backend.fs.dir"),
    ),
    FlinkKey(
        "state.savepoints.compression",
        why="A savepoint has the state files as the query compressed them; the codec is"
        " Checkpoint(compression=…).",
    ),
    _always(
        f"{_CHECKPOINTING}snapshot-compression",
        "Spark always compresses its state files; the codec is Checkpoint(compression=…).",
        read=boolean,
    ),
    _always(
        f"{_CHECKPOINTING}storage",
        "A checkpoint is always stored as files, never in the driver.",
        read=text,
        aliases=("state.checkpoint-storage",),
    ),
    _always(
        f"{_CHECKPOINTING}checkpoints-after-tasks-finish",
        "Tasks end with each batch, and the checkpoint includes all of them.",
        read=boolean,
        aliases=(f"{_CHECKPOINTING}checkpoints-after-tasks-finish.enabled",),
    ),
    FlinkKey(
        f"{_CHECKPOINTING}create-subdir",
        read=boolean,
        aliases=("state.checkpoints.create-subdir",),
        why="A checkpoint uses its directory as given: give each job its own.",
    ),
    FlinkKey(
        f"{_CHECKPOINTING}interval-during-backlog",
        why="Every batch ends with a checkpoint, also under a backlog; larger batches make them rarer.",
    ),
    FlinkKey(f"{_CHECKPOINTING}unaligned.forced", why=_NO_BARRIERS),
    FlinkKey(f"{_CHECKPOINTING}unaligned.interruptible-timers.enabled", why=_NO_BARRIERS),
    FlinkKey(f"{_CHECKPOINTING}unaligned.max-subtasks-per-channel-state-file", why=_NO_BARRIERS),
    FlinkKey(
        f"{_CHECKPOINTING}local-backup.dirs",
        aliases=("taskmanager.state.local.root-dirs",),
        why="Executors store state in their scratch directory: RocksDB(local_dir=…).",
    ),
    FlinkKey(
        f"{_CHECKPOINTING}cleaner.parallel-mode",
        aliases=("state.checkpoint.cleaner.parallel-mode",),
        why="Spark deletes old files in its own background threads.",
    ),
    FlinkKey(
        f"{_CHECKPOINTING}data-inline-threshold",
        aliases=("state.storage.fs.memory-threshold", "state.backend.fs.memory-threshold"),
        why="State is never written into the metadata of a checkpoint.",
    ),
    FlinkKey(
        f"{_CHECKPOINTING}write-buffer-size",
        aliases=("state.storage.fs.write-buffer-size", "state.backend.fs.write-buffer-size"),
        why="The client of the file system buffers writes.",
    ),
    FlinkKey("state.backend.type", "backend", backend, ("state.backend",)),
    _always(
        "state.backend.async",
        "Snapshots are uploaded in the background.",
    ),
    FlinkKey(f"{_BACKEND}memory.managed", "backend.memory", managed),
    FlinkKey(f"{_BACKEND}memory.fixed-per-tm", "backend.memory", size),
    FlinkKey(f"{_BACKEND}memory.fixed-per-slot", "backend.memory", size),
    FlinkKey(f"{_BACKEND}block.cache-size", "backend.block_cache", size),
    FlinkKey(f"{_BACKEND}writebuffer.size", "backend.write_buffer", size),
    FlinkKey(f"{_BACKEND}localdir", "backend.local_dir", text, ("state.backend.rocksdb.checkpointdir",)),
    FlinkKey(f"{_BACKEND}predefined-options", "backend.profile", profile),
    _rocksdb("block.blocksize", kibibytes, "blockSizeKB", "The amount of data that one read loads."),
    _rocksdb(
        "writebuffer.count",
        positive,
        "maxWriteBufferNumber",
        "The number of write buffers that one store may fill before writes wait.",
    ),
    _rocksdb("files.open", number, "maxOpenFiles", "The number of files that one store keeps open."),
    _rocksdb(
        "memory.write-buffer-ratio",
        share,
        "writeBufferCacheRatio",
        "The share of the bounded memory that write buffers may take.",
    ),
    _rocksdb(
        "memory.high-prio-pool-ratio",
        share,
        "highPriorityPoolRatio",
        "The share of the bounded memory that is reserved for indexes and filters.",
    ),
    FlinkKey(
        f"{_BACKEND}compression.per.level",
        why="Spark uses one codec on all levels: RocksDB(compression=…).",
    ),
    FlinkKey(
        f"{_BACKEND}checkpoint.transfer.thread.num",
        why="Spark uploads files with one thread per task and in its maintenance threads.",
    ),
    FlinkKey(f"{_BACKEND}thread.num", why=_COMPACTION),
    FlinkKey(f"{_BACKEND}writebuffer.number-to-merge", why=_COMPACTION),
    FlinkKey(
        f"{_BACKEND}block.metadata-blocksize",
        why="Spark does not partition RocksDB's indexes, so there are no such blocks.",
    ),
    FlinkKey(
        f"{_BACKEND}memory.partitioned-index-filters",
        why="Spark does not partition RocksDB's indexes.",
    ),
    FlinkKey(f"{_BACKEND}write-batch-size", why="Spark writes rows one by one within a batch."),
    _always(
        f"{_BACKEND}use-bloom-filter",
        "Spark always sets a Bloom filter.",
    ),
    FlinkKey(f"{_BACKEND}options-factory", why="Spark loads no options class for RocksDB."),
    FlinkKey(f"{_BACKEND}timer-service.factory", why=_TIMERS),
    FlinkKey(f"{_BACKEND}timer-service.cache-size", why=_TIMERS),
    FlinkKey("restart-strategy.type", "restart", strategy, ("restart-strategy",)),
    FlinkKey(f"{_RESTART}fixed-delay.attempts", "fixed-delay.attempts", limit),
    FlinkKey(f"{_RESTART}fixed-delay.delay", "fixed-delay.delay", duration),
    FlinkKey(f"{_RESTART}failure-rate.max-failures-per-interval", "failure-rate.failures", number),
    FlinkKey(f"{_RESTART}failure-rate.failure-rate-interval", "failure-rate.per", duration),
    FlinkKey(f"{_RESTART}failure-rate.delay", "failure-rate.delay", duration),
    FlinkKey(f"{_RESTART}exponential-delay.initial-backoff", "exponential-delay.initial", duration),
    FlinkKey(f"{_RESTART}exponential-delay.max-backoff", "exponential-delay.max", duration),
    FlinkKey(f"{_RESTART}exponential-delay.backoff-multiplier", "exponential-delay.multiplier", decimal),
    FlinkKey(f"{_RESTART}exponential-delay.jitter-factor", "exponential-delay.jitter", decimal),
    FlinkKey(
        f"{_RESTART}exponential-delay.reset-backoff-threshold", "exponential-delay.reset_after", duration
    ),
    FlinkKey(
        f"{_RESTART}exponential-delay.attempts-before-reset-backoff", "exponential-delay.attempts", limit
    ),
    FlinkKey(
        "high-availability.type",
        "ha.type",
        elections,
        ("high-availability", "high-availability.mode"),
        why="Start each supervisor with `holdfast run --ha …` or HOLDFAST_HA.",
    ),
    FlinkKey(f"{_ZOOKEEPER}quorum", "ha.quorum", text, why=_HA),
    FlinkKey(f"{_ZOOKEEPER}path.root", "ha.root", text, why=_HA),
    FlinkKey(
        f"{_ZOOKEEPER}client.session-timeout",
        "ha.lease",
        duration,
        why="The time after which a silent leader is replaced: `holdfast run --lease …` or HOLDFAST_LEASE.",
    ),
    FlinkKey(
        "high-availability.storageDir",
        why="The data of a leader is small and stored at the address of the elections.",
    ),
    FlinkKey("high-availability.cluster-id", why="A leader is elected for each job, under the job's name."),
    FlinkKey(
        "parallelism.default",
        read=positive,
        spark_key=SHUFFLE_PARTITIONS_KEY,
        why="The number of partitions of stateful operators. Fixed by the first start; rescale changes it.",
    ),
)

# Families without a counterpart, by the prefix of their names.
FLINK_FAMILIES: tuple[tuple[str, str], ...] = (
    (f"{_CHECKPOINTING}file-merging.", "Spark writes one file for each partition and batch."),
    (f"{_BACKEND}metrics.", "Holdfast always shows the RocksDB metrics that Spark reports."),
    (f"{_BACKEND}compaction.", _COMPACTION),
    (f"{_BACKEND}log.", "Spark writes RocksDB's log to its own log."),
    (f"{_BACKEND}manual-compaction.", _COMPACTION),
    (f"{_BACKEND}bloom-filter.", "Spark always sets a Bloom filter of its own."),
    ("state.backend.changelog.", "Checkpoint(incremental=…) sets whether a batch uploads only its changes."),
    ("state.changelog.", "Checkpoint(incremental=…) sets whether a batch uploads only its changes."),
    ("state.backend.forst.", "State is stored in RocksDB on the executors; ForSt is not supported."),
    ("state.backend.latency-track.", "Holdfast always shows the latencies that Spark reports."),
    ("state.latency-track.", "Holdfast always shows the latencies that Spark reports."),
    (
        "high-availability.jobmanager.",
        "Supervisors do not connect to each other; they only use the elections.",
    ),
    (
        "high-availability.kubernetes.",
        "Leaders are elected in ZooKeeper, or by a lease on a shared disk or in S3.",
    ),
    ("state.size-track.", "Holdfast always shows the sizes that Spark reports."),
)

# Prefixes for which an unknown name is probably misspelt.
OWN_PREFIXES = (_CHECKPOINTING, "state.", "restart-strategy")
