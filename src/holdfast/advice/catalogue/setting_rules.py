"""Rules of settings: where state is kept, and which checks are on."""

from __future__ import annotations

from typing import Final

from holdfast.advice.findings import Evidence, Rule, Severity

_SOURCE: Final = (Evidence.SOURCE,)
_PLANNED: Final = (Evidence.SOURCE, Evidence.PLAN)
_ALL: Final = (Evidence.SOURCE, Evidence.PLAN, Evidence.FACTS)
_BOTH: Final = (Evidence.SOURCE, Evidence.FACTS)
_ROCKSDB: Final = (
    '"spark.sql.streaming.stateStore.providerClass",\n'
    '    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"'
)
_HEAP: Final = _ROCKSDB.replace("RocksDBStateStoreProvider", "HDFSBackedStateStoreProvider")
_BUILDER: Final = "from pyspark.sql import SparkSession\nspark = SparkSession.builder"
_PARTITIONS: Final = '.config("spark.sql.shuffle.partitions", "8")'
_BOUNDED: Final = '.config("spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage", "true")'
_STATEFUL: Final = (
    'spark.readStream.table("events").withWatermark("ts", "1 hour").groupBy(F.window("ts", "1 hour")).count()'
)
_RUNS: Final = (
    'spark.readStream.table("events").writeStream.option("checkpointLocation", "hdfs:/checkpoints/copies")'
    '.toTable("copies")'
)


SETTING_RULES: Final = (
    Rule(
        "HF301",
        "heap-state-store",
        Severity.WARNING,
        _ALL,
        "The provider that keeps state on the heap (HDFSBackedStateStoreProvider, or `hf.Memory`) in"
        " a query with"
        " state; in a checkpoint, with 100 MB of state or more.",
        "Each executor has all of its state, in two versions, as objects of the JVM: pauses for garbage"
        " collection, then no memory. Each batch writes changes, and each tenth the whole state.",
        "take RocksDB: `hf.RocksDB()`, or its providerClass; `holdfast state migrate` moves state"
        " that is there",
        f"spark.conf.set({_HEAP})\n{_STATEFUL}",
        f"spark.conf.set({_ROCKSDB})\n"
        'spark.conf.set("spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage", "true")\n'
        f"{_STATEFUL}",
    ),
    Rule(
        "HF302",
        "provider-not-set",
        Severity.NOTE,
        _SOURCE,
        "A session that is built without a state store provider, for a query with state.",
        "Spark then takes the provider that keeps state on the heap, and the checkpoint is fixed to it.",
        "set the providerClass of RocksDB, or build the session with hf.session()",
        f"{_BUILDER}{_PARTITIONS}.getOrCreate()\n{_STATEFUL}",
        f"{_BUILDER}{_PARTITIONS}.config({_ROCKSDB}){_BOUNDED}.getOrCreate()\n{_STATEFUL}",
    ),
    Rule(
        "HF303",
        "unbounded-rocksdb-memory",
        Severity.WARNING,
        _PLANNED,
        "RocksDB as the provider without boundedMemoryUsage, for a query with state.",
        "Each partition of each operator has its own caches outside of the heap. An executor with"
        " many of them"
        " outgrows its container, which is then killed.",
        "set `spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage` to true and give maxMemoryUsageMB",
        f"spark.conf.set({_ROCKSDB})\n{_STATEFUL}",
        f"spark.conf.set({_ROCKSDB})\n"
        'spark.conf.set("spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage", "true")\n'
        f"{_STATEFUL}",
    ),
    Rule(
        "HF304",
        "shuffle-partitions-not-set",
        Severity.NOTE,
        _SOURCE,
        "A session that is built without `spark.sql.shuffle.partitions`, for a query with state.",
        "Spark takes 200, and the checkpoint is fixed to it: 200 tasks, stores and commits in each batch, of"
        " each operator, however little there is.",
        "set it to one to three times the number of cores before the first start; `holdfast rescale`"
        " changes it"
        " later",
        f"{_BUILDER}.config({_ROCKSDB}){_BOUNDED}.getOrCreate()\n{_STATEFUL}",
        f"{_BUILDER}{_PARTITIONS}.config({_ROCKSDB}){_BOUNDED}.getOrCreate()\n{_STATEFUL}",
    ),
    Rule(
        "HF305",
        "check-turned-off",
        Severity.ERROR,
        _PLANNED,
        "A setting that turns one of Spark's checks of state, plan or input off.",
        "What the check would have refused goes on, and gives a wrong result without an error.",
        "leave the check on, and mend what it complains of",
        'spark.conf.set("spark.sql.streaming.statefulOperator.checkCorrectness.enabled", "false")',
        'spark.conf.set("spark.sql.streaming.statefulOperator.checkCorrectness.enabled", "true")',
    ),
    Rule(
        "HF306",
        "data-loss-allowed",
        Severity.WARNING,
        _PLANNED,
        "A source with failOnDataLoss=false.",
        "Rows that the topic has deleted before they were read are skipped. The query goes on, and"
        " its results"
        " lack them.",
        "leave it on; keep the topic's rows longer than the longest recovery",
        'spark.readStream.format("kafka").option("failOnDataLoss", "false").load()',
        'spark.readStream.format("kafka").option("subscribe", "orders").load()',
    ),
    Rule(
        "HF307",
        "few-batches-retained",
        Severity.WARNING,
        _ALL,
        "`spark.sql.streaming.minBatchesToRetain` below 3, or a checkpoint that keeps fewer than 3 batches.",
        "A damaged newest batch has no older one behind it to go back to, and a savepoint that is"
        " taken meanwhile"
        " may find its files gone.",
        "retain 10 batches or more",
        'spark.conf.set("spark.sql.streaming.minBatchesToRetain", "1")',
        'spark.conf.set("spark.sql.streaming.minBatchesToRetain", "10")',
    ),
    Rule(
        "HF308",
        "changelog-off",
        Severity.NOTE,
        _ALL,
        "RocksDB without changelog checkpointing.",
        "Each batch uploads a snapshot of each store before it is committed, where a changelog has only what"
        " changed.",
        "set `spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled` to true; a"
        " checkpoint that is"
        " there goes on with it",
        'spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "false")',
        'spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")',
    ),
    Rule(
        "HF309",
        "row-checksum-off",
        Severity.NOTE,
        _ALL,
        "`spark.sql.streaming.stateStore.rowChecksum.enabled` is false (Spark 4.1 and later).",
        "A row of state that was damaged is read as if it were right.",
        "set it to true before the first start: the checkpoint is fixed to it",
        'spark.conf.set("spark.sql.streaming.stateStore.rowChecksum.enabled", "false")',
        'spark.conf.set("spark.sql.streaming.stateStore.rowChecksum.enabled", "true")',
    ),
    Rule(
        "HF310",
        "state-format-1",
        Severity.NOTE,
        _BOTH,
        "State of checkpoint format 1.",
        "Two attempts of a task write files of one name, and a stale or swapped file is read without"
        " an error.",
        "set `spark.sql.streaming.stateStore.checkpointFormatVersion` to 2 with RocksDB; `holdfast"
        " state migrate`"
        " moves state that is there",
        'spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "1")',
        'spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")',
    ),
    Rule(
        "HF311",
        "dynamic-allocation-with-state",
        Severity.WARNING,
        _PLANNED,
        "`spark.dynamicAllocation.enabled` is true, for a query with state.",
        "An executor that is let go takes its stores with it. Others load them anew, and for some batches few"
        " executors have all state.",
        "keep a fixed number of executors for queries with state",
        f'spark.conf.set("spark.dynamicAllocation.enabled", "true")\n{_STATEFUL}',
        f'spark.conf.set("spark.dynamicAllocation.enabled", "false")\n{_STATEFUL}',
    ),
    Rule(
        "HF312",
        "many-partitions-for-cores",
        Severity.WARNING,
        _PLANNED,
        "32 shuffle partitions or more, and more than eight for each core that the query has, for a query"
        " with"
        " state.",
        "Each partition of each operator is a task, a store and a commit in each batch. Where cores are"
        " few, most"
        " of the batch is their start and end.",
        "set `spark.sql.shuffle.partitions` to one to three times the cores before the first start; `holdfast"
        " rescale` changes a checkpoint that is there",
        f'{_BUILDER}.master("local[4]").config("spark.sql.shuffle.partitions",'
        f' "200").getOrCreate()\n{_STATEFUL}',
        f'{_BUILDER}.master("local[4]").config("spark.sql.shuffle.partitions",'
        f' "8").getOrCreate()\n{_STATEFUL}',
    ),
    Rule(
        "HF313",
        "little-room-beside-heap",
        Severity.WARNING,
        _SOURCE,
        "RocksDB's budget (maxMemoryUsageMB, 500 without it) is as large as the memory that the executor"
        " has beside"
        " its heap, or larger.",
        "RocksDB and Python workers live in `spark.executor.memoryOverhead`, a tenth of the heap and 384"
        " MB at least"
        " unless it is set. A container that outgrows it is killed, and all its state is loaded anew.",
        "set `spark.executor.memoryOverhead` to the budget and a gigabyte more",
        f'{_BUILDER}{_PARTITIONS}.config({_ROCKSDB}){_BOUNDED}.config("spark.executor.memory", "4g")\\\n'
        f'    .config("spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB",'
        f' "2000").getOrCreate()\n{_STATEFUL}',
        f'{_BUILDER}{_PARTITIONS}.config({_ROCKSDB}){_BOUNDED}.config("spark.executor.memory", "4g")\\\n'
        '    .config("spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB", "2000")\\\n'
        f'    .config("spark.executor.memoryOverhead", "3g").getOrCreate()\n{_STATEFUL}',
    ),
    Rule(
        "HF314",
        "interface-kept-as-usual",
        Severity.NOTE,
        _SOURCE,
        "A session that is built without a bound for what Spark's pages keep, for a query that runs for"
        " ever.",
        "The driver keeps the last 1000 jobs, stages and executions with their plans and 100 000 tasks,"
        " all of them"
        " made within minutes by short batches. Small drivers run out of memory after days.",
        "set `spark.sql.ui.retainedExecutions` and `spark.ui.retainedTasks` to a tenth, or `spark.ui.enabled`"
        " to false",
        f"{_BUILDER}.getOrCreate()\n{_RUNS}",
        f'{_BUILDER}.config("spark.sql.ui.retainedExecutions", "100")'
        f'.config("spark.ui.retainedTasks", "10000").getOrCreate()\n{_RUNS}',
    ),
)
