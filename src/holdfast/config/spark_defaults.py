"""The list of all settings whose default differs from Spark's, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.config.checks import whole

STREAMING = "spark.sql.streaming"
STATE_STORE = f"{STREAMING}.stateStore"
ROCKSDB = f"{STATE_STORE}.rocksdb"

PROVIDER_KEY = f"{STATE_STORE}.providerClass"
FORMAT_KEY = f"{STATE_STORE}.checkpointFormatVersion"
ROW_CHECKSUM_KEY = f"{STATE_STORE}.rowChecksum.enabled"
CHANGELOG_KEY = f"{ROCKSDB}.changelogCheckpointing.enabled"
BOUNDED_MEMORY_KEY = f"{ROCKSDB}.boundedMemoryUsage"
RETAIN_KEY = f"{STREAMING}.minBatchesToRetain"
COMPRESSION_KEY = f"{STATE_STORE}.compression.codec"
UNLOAD_KEY = f"{STATE_STORE}.unloadOnCommit"
MAINTENANCE_KEY = f"{STATE_STORE}.maintenanceInterval"
FILE_MANAGER_KEY = f"{STREAMING}.checkpointFileManagerClass"
# Hadoop's file manager for object stores whose uploads can be aborted before they are visible.
ABORTABLE_MANAGER = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
UNIX_SOCKET_KEY = "spark.python.unix.domain.socket.enabled"
DAEMON_KEY = "spark.python.daemon.module"
SHUFFLE_PARTITIONS_KEY = "spark.sql.shuffle.partitions"
# With more partitions than the default number of key groups of `hf.keyed`, some would have no state.
MOST_PARTITIONS = 128

# The file manager for local checkpoints, and the file system without which it keeps old files; see
# engine/file_manager.py.
LOCAL_FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
LOCAL_FILE_SYSTEM_KEY = "fs.file.impl"
HADOOP_LOCAL_FILES = "org.apache.hadoop.fs.LocalFileSystem"
# Holdfast's file system, in the jar of the package.
HOLDFAST_LOCAL_FILES = "holdfast.files.LocalFiles"
LOCAL_FILES = {
    LOCAL_FILE_SYSTEM_KEY: HOLDFAST_LOCAL_FILES,
    # Otherwise Hadoop reuses the file system that the JVM opened first, regardless of its settings.
    "fs.file.impl.disable.cache": "true",
    FILE_MANAGER_KEY: LOCAL_FILE_MANAGER,
}

# A JVM that runs for half a minute gains nothing from its optimising compiler, and its UI is not used.
SHORT_LIVED = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

# A standby driver that takes over replays the changes since the newest snapshot, which Spark uploads once a
# minute by default.
WITH_STANDBY = {MAINTENANCE_KEY: "10s"}

_STATE = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB_PROVIDER = f"{_STATE}.RocksDBStateStoreProvider"
MEMORY_PROVIDER = f"{_STATE}.HDFSBackedStateStoreProvider"
# Holdfast's provider, in the jar of the package.
REDIS_PROVIDER = "holdfast.state.RedisStateStoreProvider"
CASSANDRA_PROVIDER = "holdfast.state.CassandraStateStoreProvider"
TIKV_PROVIDER = "holdfast.state.TiKvStateStoreProvider"
EXTERNAL_PROVIDERS = frozenset({REDIS_PROVIDER, CASSANDRA_PROVIDER, TIKV_PROVIDER})
# Providers whose client is only in the jar; commands refuse their checkpoints.
READ_BY_SPARK_ALONE = frozenset({TIKV_PROVIDER})
# The layout version of state in a database; the jar has the same number.
EXTERNAL_LAYOUT = "1"


@dataclass(frozen=True, slots=True)
class Default:
    """A setting for which Holdfast has its own default.

    Args:
        key: A Spark setting, or the name of an environment variable.
        value: The value that Holdfast sets unless the user sets one.
        spark_default: Spark's own default.
        reason: The reason why Holdfast's value is safer or faster.
    """

    key: str
    value: str
    spark_default: str
    reason: str

    @property
    def in_environment(self) -> bool:
        """Return whether the setting is an environment variable and not a setting of the session."""
        return not self.key.startswith("spark.")


DEFAULTS: tuple[Default, ...] = (
    Default(
        PROVIDER_KEY,
        ROCKSDB_PROVIDER,
        MEMORY_PROVIDER,
        "State may exceed the heap, in which Spark's default keeps all of it. "
        "Fixed for a checkpoint by its first start; `holdfast state migrate` changes it.",
    ),
    Default(
        FORMAT_KEY,
        "2",
        "1",
        "Every state file has a unique name and a checksum, so a retried task cannot overwrite a "
        "committed file, and damage is detected. RocksDB only.",
    ),
    Default(
        CHANGELOG_KEY,
        "true",
        "false",
        "A batch uploads only its changes; snapshots follow in the background.",
    ),
    Default(
        BOUNDED_MEMORY_KEY,
        "true",
        "false",
        "All stores of an executor share one budget; without it, each partition of each operator takes "
        "memory of its own until the operating system kills the process.",
    ),
    Default(
        ROW_CHECKSUM_KEY,
        "true",
        "false",
        "Each row has a checksum, so damage is an error and not a wrong result. "
        "Fixed for a checkpoint by its first start.",
    ),
    Default(
        UNIX_SOCKET_KEY,
        "true",
        "false",
        "Spark connects to its Python workers over Unix sockets and not over TCP, with which small batches "
        "wait 40 ms in each step that runs Python. Not on YARN, where the paths of containers are too long "
        "for a socket.",
    ),
    Default(
        "spark.sql.session.timeZone",
        "UTC",
        "the machine's time zone",
        "Windows and dates are the same on every machine, and no hour occurs twice a year.",
    ),
)


def state_partitions(cores: int) -> int:
    """Return the number of state partitions for a new checkpoint.

    The number is one per core, at least two. Each partition of each stateful operator is a task and a store
    that every batch opens and commits, so more than one per core makes each batch slower without a gain. With
    one core, two partitions reveal wrong assumptions about partitioned data. The maximum is the default
    number of key groups of `hf.keyed`.

    Raises:
        Invalid: `cores` is less than one.
    """
    return min(max(2, whole(cores, "cores", least=1)), MOST_PARTITIONS)


def machine_defaults(cores: int, python: str) -> tuple[Default, ...]:
    """Return the defaults that depend on the machine.

    Args:
        cores: The number of cores that run tasks: those of the machine for a local master, those of all
            executors for a cluster.
        python: The path of the interpreter that runs the driver.

    Raises:
        Invalid: `cores` is less than one.
    """
    partitions = state_partitions(cores)
    return (
        Default(
            SHUFFLE_PARTITIONS_KEY,
            str(partitions),
            "200",
            f"{cores} cores run tasks, and every state partition is a task and a store in each batch. "
            "Fixed for a checkpoint by its first start; rescale changes it.",
        ),
        Default(
            DAEMON_KEY,
            "holdfast.worker.daemon",
            "pyspark.daemon",
            "Python workers are forked with Arrow and pandas loaded, which saves each more than a second at "
            "its start and about 40 ms per task after that. Set if the workers run this interpreter, and on "
            "clusters, which get this package from the driver.",
        ),
        Default(
            "PYSPARK_PYTHON",
            python,
            "python3 from PATH",
            "Python workers need the packages of the interpreter that runs the driver.",
        ),
    )
