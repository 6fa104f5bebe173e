"""All lint rules by ID, and the rules for settings, checkpoints and progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.advice.code_rules import PROCESSOR_RULES, SINK_RULES, STATE_RULES, TIME_RULES
from holdfast.advice.findings import FindingEvidence, Rule, Severity

_FACTS: Final = (FindingEvidence.FACTS,)

CHECKPOINT_RULES: Final = (
    Rule(
        "HF601",
        "tiny-partitions",
        Severity.NOTE,
        _FACTS,
        "An operator with at least 32 partitions and fewer than 100 rows per partition (or 16 KB, if rows"
        " are not counted).",
        "Each partition is a task, a state store and several files in each batch, however little it holds.",
        "reduce the partitions with `holdfast rescale CHECKPOINT NEW --partitions N`",
        "spark.sql.shuffle.partitions=200",
        "spark.sql.shuffle.partitions=8",
    ),
    Rule(
        "HF602",
        "state-grows",
        Severity.WARNING,
        _FACTS,
        "State of an operator that was larger in each third of the kept batches, by at least a fifth in"
        " total, in a checkpoint without a watermark or with one that has not moved.",
        "Nothing appears to remove this state, and it will outgrow its executors.",
        "bound it with a watermark or a TTL; `holdfast ttl CHECKPOINT --what-if 24h` estimates what a TTL"
        " would free",
        "a query without a watermark",
        "a query with a watermark, or state with a TTL",
    ),
    Rule(
        "HF603",
        "uneven-partitions",
        Severity.WARNING,
        _FACTS,
        "A store of at least 1 MB with four or more partitions, the largest of which has at least half of"
        " all bytes.",
        "The task of that partition sets the duration of each batch, and the memory that an executor needs.",
        "list the largest keys with `holdfast skew CHECKPOINT --top 10`, and see the guide on hot keys",
        "one key has most of the rows",
        "evenly distributed keys, or `hf.skew.split_hot`",
    ),
    Rule(
        "HF604",
        "no-watermark",
        Severity.WARNING,
        _FACTS,
        "A deduplication or a stream-stream join in a checkpoint that has had no watermark for ten batches.",
        "Without a watermark these operators remove nothing: every key or row ever seen is still stored.",
        "declare a watermark in the query; HF103 and HF106 show how",
        "a query without a watermark",
        "a query with a watermark",
    ),
    Rule(
        "HF605",
        "written-by-defective-spark",
        Severity.WARNING,
        _FACTS,
        "State in RocksDB that was written by a Spark release with a known defect of its state store.",
        "Such a defect may leave a checkpoint that cannot be loaded, or fail tasks. The"
        " [list of defects](sparks.md#defects-of-sparks-state-store) has the releases.",
        "upgrade Spark: `holdfast check --spark 4.2 CHECKPOINT` reports whether the checkpoint can continue;"
        " `holdfast checkpoint verify` finds the damage",
        "a checkpoint of Spark 3.5, 4.0 or 4.1",
        "a checkpoint of Spark 4.2",
    ),
    Rule(
        "HF606",
        "partitions-not-fixed",
        Severity.ERROR,
        _FACTS,
        "State of a query with named sources, in a checkpoint that does not fix the number of partitions.",
        "Spark 4.2 does not write `spark.sql.shuffle.partitions` to an offset log of version 2 that it"
        " begins, and uses the number of the session. With a lower number it ignores the state of the other"
        " partitions without an error. Holdfast starts its queries with the number of the state.",
        "start the query with `spark.sql.shuffle.partitions` set to the number of the state, or use"
        " Spark 4.3",
        "a query with named sources that Spark 4.2 began",
        "the same in Spark 4.3, or after `holdfast rescale`, which fixes the number",
    ),
)


PROGRESS_RULES: Final = (
    Rule(
        "HF701",
        "rows-dropped-late",
        Severity.WARNING,
        _FACTS,
        "Rows dropped as late in the recorded batches, at least one in a thousand of the input.",
        "These rows are in no result. Spark reports them only in its progress metrics.",
        "measure how late rows are with `hf.late_rows`, then raise the watermark's delay or handle late"
        " rows with `late=` of hf.keyed",
        "a watermark delay shorter than rows are late",
        "a longer delay, or late rows handled separately",
    ),
    Rule(
        "HF702",
        "state-only-grows",
        Severity.WARNING,
        _FACTS,
        "An operator with at least 1000 rows that has lost none in at least 20 batches with input, and has"
        " grown by a fifth in the second half of them.",
        "No row was removed in all these batches. A watermark or TTL that works removes rows.",
        "bound the state with a watermark or a TTL, unless the keys are few; `holdfast ttl CHECKPOINT"
        " --what-if 24h` estimates what a TTL would free",
        "keys that never expire",
        "a watermark, or state with a TTL",
    ),
    Rule(
        "HF703",
        "hot-key",
        Severity.WARNING,
        _FACTS,
        "A key with at least 30% of the rows of the newest batch, in a query that `hf.skew.watch` observes.",
        "The task of its partition sets the duration of each batch, however many cores are added.",
        "split the key with `hf.skew.split_hot`; see the guide on hot keys",
        "one key far more frequent than all others",
        "evenly distributed or split keys",
    ),
    Rule(
        "HF704",
        "commit-dominates",
        Severity.WARNING,
        _FACTS,
        "At least 20 batches with input, of at least one second on average, half of which was spent writing"
        " Spark's logs or committing the state of a partition.",
        "The batches wait for the checkpoint's storage, so more cores do not help.",
        "use fewer partitions (`holdfast rescale`), a longer trigger, changelogs (HF308) or faster storage"
        " for the checkpoint",
        "many partitions with a checkpoint on slow storage",
        "as many partitions as cores, and a longer trigger",
    ),
    Rule(
        "HF705",
        "empty-batches",
        Severity.NOTE,
        _FACTS,
        "At least 20 batches, nine of ten without input.",
        "Each empty batch still writes its logs, and commits its stores if state may expire.",
        "use a longer trigger, or run with `availableNow` from a scheduler",
        "a short trigger on a source that is mostly silent",
        "a longer trigger",
    ),
)


_SOURCE: Final = (FindingEvidence.SOURCE,)
_PLANNED: Final = (FindingEvidence.SOURCE, FindingEvidence.PLAN)
_ALL: Final = (FindingEvidence.SOURCE, FindingEvidence.PLAN, FindingEvidence.FACTS)
_BOTH: Final = (FindingEvidence.SOURCE, FindingEvidence.FACTS)
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
        "The HDFSBackedStateStoreProvider (`hf.Memory`), which keeps state on the heap, in a stateful"
        " query; in a checkpoint, with at least 100 MB of state.",
        "Each executor holds all its state as JVM objects, in two versions, which leads to long garbage"
        " collection pauses and then to out-of-memory errors. Each batch writes its changes, and every"
        " tenth batch the whole state.",
        "use RocksDB: `hf.RocksDB()` or its providerClass; `holdfast state migrate` moves existing state",
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
        "A session built without a state store provider, for a stateful query.",
        "Spark then uses the provider that keeps state on the heap, and the checkpoint is bound to it.",
        "set the RocksDB providerClass, or build the session with hf.session()",
        f"{_BUILDER}{_PARTITIONS}.getOrCreate()\n{_STATEFUL}",
        f"{_BUILDER}{_PARTITIONS}.config({_ROCKSDB}){_BOUNDED}.getOrCreate()\n{_STATEFUL}",
    ),
    Rule(
        "HF303",
        "unbounded-rocksdb-memory",
        Severity.WARNING,
        _PLANNED,
        "RocksDB as the provider without boundedMemoryUsage, for a stateful query.",
        "Each partition of each operator has its own caches outside the heap. An executor with many"
        " partitions exceeds its container's memory, and the container is killed.",
        "set `spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage` to true and set maxMemoryUsageMB",
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
        "A session built without `spark.sql.shuffle.partitions`, for a stateful query.",
        "Spark uses 200, and the checkpoint is bound to that: 200 tasks, stores and commits per operator"
        " and batch, however little data there is.",
        "set `spark.sql.shuffle.partitions` to one to three times the number of cores before the first start;"
        " `holdfast rescale` changes an existing checkpoint",
        f"{_BUILDER}.config({_ROCKSDB}){_BOUNDED}.getOrCreate()\n{_STATEFUL}",
        f"{_BUILDER}{_PARTITIONS}.config({_ROCKSDB}){_BOUNDED}.getOrCreate()\n{_STATEFUL}",
    ),
    Rule(
        "HF305",
        "check-turned-off",
        Severity.ERROR,
        _PLANNED,
        "A setting that turns off one of Spark's checks of state, plan or input.",
        "The query runs in cases that the check would have refused, and returns wrong results without an"
        " error.",
        "keep the check on, and fix what it reports",
        'spark.conf.set("spark.sql.streaming.statefulOperator.checkCorrectness.enabled", "false")',
        'spark.conf.set("spark.sql.streaming.statefulOperator.checkCorrectness.enabled", "true")',
    ),
    Rule(
        "HF306",
        "data-loss-allowed",
        Severity.WARNING,
        _PLANNED,
        "A source with failOnDataLoss=false.",
        "Rows that the topic deleted before they were read are skipped. The query continues, and its"
        " results lack them.",
        "leave failOnDataLoss on, and retain the topic's rows for longer than the longest recovery",
        'spark.readStream.format("kafka").option("failOnDataLoss", "false").load()',
        'spark.readStream.format("kafka").option("subscribe", "orders").load()',
    ),
    Rule(
        "HF307",
        "few-batches-retained",
        Severity.WARNING,
        _ALL,
        "`spark.sql.streaming.minBatchesToRetain` below 3, or a checkpoint that keeps fewer than 3 batches.",
        "If the newest batch is damaged, there is no older one to fall back to, and a running savepoint may"
        " find its files deleted.",
        "retain at least 10 batches",
        'spark.conf.set("spark.sql.streaming.minBatchesToRetain", "1")',
        'spark.conf.set("spark.sql.streaming.minBatchesToRetain", "10")',
    ),
    Rule(
        "HF308",
        "changelog-off",
        Severity.NOTE,
        _ALL,
        "RocksDB without changelog checkpointing.",
        "Each batch uploads a snapshot of each store before it commits. A changelog has only the changes.",
        "set `spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled` to true; an existing"
        " checkpoint continues with it",
        'spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "false")',
        'spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")',
    ),
    Rule(
        "HF309",
        "row-checksum-off",
        Severity.NOTE,
        _ALL,
        "`spark.sql.streaming.stateStore.rowChecksum.enabled` is false (Spark 4.1 and later).",
        "A damaged state row is read without an error.",
        "set the setting to true before the first start, which binds the checkpoint to the value",
        'spark.conf.set("spark.sql.streaming.stateStore.rowChecksum.enabled", "false")',
        'spark.conf.set("spark.sql.streaming.stateStore.rowChecksum.enabled", "true")',
    ),
    Rule(
        "HF310",
        "state-format-1",
        Severity.NOTE,
        _BOTH,
        "State of checkpoint format 1.",
        "Two attempts of a task write files with the same name, and a stale or swapped file is read without"
        " an error.",
        "set `spark.sql.streaming.stateStore.checkpointFormatVersion` to 2 with RocksDB; `holdfast state"
        " migrate` moves existing state",
        'spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "1")',
        'spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")',
    ),
    Rule(
        "HF311",
        "dynamic-allocation-with-state",
        Severity.WARNING,
        _PLANNED,
        "`spark.dynamicAllocation.enabled` is true, for a stateful query.",
        "When an executor is released, its stores are lost. Other executors load them again, and for some"
        " batches a few executors hold all state.",
        "keep a fixed number of executors for stateful queries",
        f'spark.conf.set("spark.dynamicAllocation.enabled", "true")\n{_STATEFUL}',
        f'spark.conf.set("spark.dynamicAllocation.enabled", "false")\n{_STATEFUL}',
    ),
    Rule(
        "HF312",
        "many-partitions-for-cores",
        Severity.WARNING,
        _PLANNED,
        "At least 32 shuffle partitions, and more than eight per core of the query, for a stateful query.",
        "Each partition of each operator is a task, a store and a commit in each batch. With few cores,"
        " starting and committing them takes most of the batch.",
        "set `spark.sql.shuffle.partitions` to one to three times the number of cores before the first"
        " start; `holdfast rescale` changes an existing checkpoint",
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
        "A RocksDB budget (maxMemoryUsageMB, default 500) that is at least as large as the executor's"
        " memory outside its heap.",
        "RocksDB and Python workers use `spark.executor.memoryOverhead`, by default a tenth of the heap and"
        " at least 384 MB. A container that exceeds it is killed, and all its state is loaded again.",
        "set `spark.executor.memoryOverhead` to the budget plus one gigabyte",
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
        "A session built without limits for what Spark's UI retains, for a query that runs continuously.",
        "The driver keeps the last 1000 jobs, stages and executions with their plans and 100 000 tasks,"
        " which short batches reach within minutes. Small drivers run out of memory after days.",
        "set `spark.sql.ui.retainedExecutions` and `spark.ui.retainedTasks` to a tenth, or"
        " `spark.ui.enabled` to false",
        f"{_BUILDER}.getOrCreate()\n{_RUNS}",
        f'{_BUILDER}.config("spark.sql.ui.retainedExecutions", "100")'
        f'.config("spark.ui.retainedTasks", "10000").getOrCreate()\n{_RUNS}',
    ),
    Rule(
        "HF315",
        "spark-with-defects",
        Severity.WARNING,
        _SOURCE,
        "RocksDB as the provider, with an installed pyspark that has a known defect of its state store.",
        "Such a defect may leave a checkpoint that cannot be loaded, or fail tasks. The"
        " [list of defects](sparks.md#defects-of-sparks-state-store) has the releases.",
        "upgrade pyspark to 4.2 or newer",
        f"# pyspark 4.0 is installed\nspark.conf.set({_ROCKSDB})",
        f"# pyspark 4.2 is installed\nspark.conf.set({_ROCKSDB})",
    ),
)


# The first lines of the rules' examples.
PRELUDE: Final = """\
from pyspark.sql import functions as F

import holdfast as hf

events = spark.readStream.table("events")
orders = spark.readStream.table("orders")
payments = spark.readStream.table("payments")
"""

BAD_SUPPRESSION: Final = Rule(
    "HF001",
    "suppression-without-reason",
    Severity.WARNING,
    (FindingEvidence.SOURCE,),
    "A comment that suppresses a rule without a reason, or names an unknown rule.",
    "It suppresses nothing. Without a reason, later readers cannot tell whether it still applies.",
    "write `# holdfast: ignore[HF102] the keys are 40 countries`",
    'events.groupBy("country").count()  # holdfast: ignore[HF102]',
    'events.groupBy("country").count()  # holdfast: ignore[HF102] the keys are 40 countries',
)
RULES: Final[Mapping[str, Rule]] = {
    rule.id: rule
    for rule in (
        BAD_SUPPRESSION,
        *STATE_RULES,
        *TIME_RULES,
        *SETTING_RULES,
        *SINK_RULES,
        *PROCESSOR_RULES,
        *CHECKPOINT_RULES,
        *PROGRESS_RULES,
    )
}
# The titles of the groups, by the first digit of an id.
GROUPS: Final = {
    "0": "Comments",
    "1": "Unbounded state",
    "2": "Watermarks",
    "3": "Settings",
    "4": "Checkpoints and sinks",
    "5": "Processors",
    "6": "Checkpoints at rest",
    "7": "Batches of a job",
}
