"""Every lint rule by its id, and the rules about settings, checkpoints and progress."""

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
        "An operator with 32 partitions or more, and fewer than 100 rows (or, where rows are not"
        " counted, 16 KB)"
        " in a partition.",
        "Each partition is a task, a store and several files in each batch, whatever it holds.",
        "make a checkpoint with fewer by `holdfast rescale CHECKPOINT NEW --partitions N`",
        "spark.sql.shuffle.partitions=200",
        "spark.sql.shuffle.partitions=8",
    ),
    Rule(
        "HF602",
        "state-grows",
        Severity.WARNING,
        _FACTS,
        "State of an operator that was larger in each third of the batches that are kept, by a fifth"
        " or more in"
        " all, in a checkpoint without a watermark; or a watermark that has not moved meanwhile.",
        "Nothing seems to end it, and it will not fit one day.",
        "bound it by a watermark or a time to live; `holdfast ttl CHECKPOINT --what-if 24h` shows"
        " what one would free",
        "a query without a watermark",
        "a query with one, or state with a time to live",
    ),
    Rule(
        "HF603",
        "uneven-partitions",
        Severity.WARNING,
        _FACTS,
        "A store of 1 MB or more whose largest of four or more partitions has half of all bytes or more.",
        "The task of that partition decides how long a batch takes, and its executor how much memory"
        " is needed.",
        "see the largest keys with `holdfast skew CHECKPOINT --keys 10`, and the guide on hot keys",
        "one key has most of the rows",
        "keys that are even, or `hf.skew.split_hot`",
    ),
    Rule(
        "HF604",
        "no-watermark",
        Severity.WARNING,
        _FACTS,
        "A deduplication, or a join of streams, in a checkpoint that has had no watermark for ten batches.",
        "Without one they remove nothing: every key or row that was ever seen is still there.",
        "declare a watermark in the query; see HF103 and HF106 for how",
        "a query without a watermark",
        "a query with one",
    ),
)


PROGRESS_RULES: Final = (
    Rule(
        "HF701",
        "rows-dropped-late",
        Severity.WARNING,
        _FACTS,
        "Rows that were dropped as late in the batches that are remembered, a thousandth of the input or"
        " more.",
        "They are in no result, and Spark says so in its numbers alone.",
        "see how late rows are with `hf.late_rows`, wait longer in the watermark, or take them out apart:"
        " `late=` of"
        " hf.keyed",
        "a watermark that waits less than rows are late",
        "one that waits longer, or late rows that are handled",
    ),
    Rule(
        "HF702",
        "state-only-grows",
        Severity.WARNING,
        _FACTS,
        "An operator with 1000 rows or more that has lost none in 20 batches with input or more, and has"
        " grown by a"
        " fifth in the second half of them.",
        "Nothing has ended in all that time. A watermark or a time to live that works takes rows out.",
        "bound it by a watermark or a time to live, unless the keys are few; `holdfast ttl CHECKPOINT"
        " --what-if 24h`"
        " shows what one would free",
        "keys that never end",
        "a watermark, or state with a time to live",
    ),
    Rule(
        "HF703",
        "hot-key",
        Severity.WARNING,
        _FACTS,
        "A key with three tenths or more of the rows of the newest batch, of those that `hf.skew.watch`"
        " looks at.",
        "The task of its partition decides how long a batch takes, whatever else is added.",
        "split it with `hf.skew.split_hot`; see the guide on hot keys",
        "one key that is far more frequent than all others",
        "keys that are even, or that are split",
    ),
    Rule(
        "HF704",
        "commit-dominates",
        Severity.WARNING,
        _FACTS,
        "20 batches with input or more, of a second or more at the mean, half of which went into Spark's"
        " logs, or"
        " into committing the state of a partition.",
        "More cores do not help: the storage of the checkpoint is what is waited for.",
        "take fewer partitions (`holdfast rescale`), longer triggers, changelogs (HF308), or a faster"
        " storage for the"
        " checkpoint",
        "many partitions with a checkpoint on slow storage",
        "as many as there are cores, and a trigger that is longer",
    ),
    Rule(
        "HF705",
        "empty-batches",
        Severity.NOTE,
        _FACTS,
        "20 batches or more, nine of ten without input.",
        "Each of them writes its logs, and commits its stores where state may end: work and requests for"
        " nothing.",
        "give a longer trigger, or `availableNow` from a scheduler",
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


# What the rules' examples begin with.
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
    "A comment that suppresses a rule and gives no reason, or names a rule that there is not.",
    "It suppresses nothing. Whoever reads it later cannot tell whether it still holds.",
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
    "1": "State without an end",
    "2": "Watermarks",
    "3": "Settings",
    "4": "Checkpoints and sinks",
    "5": "Processors",
    "6": "Checkpoints at rest",
    "7": "Batches of a job",
}
