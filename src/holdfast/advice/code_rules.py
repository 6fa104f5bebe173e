"""Lint rules for processors, sinks, state and watermarks in code."""

from __future__ import annotations

from typing import Final

from holdfast.advice.findings import FindingEvidence, Rule, Severity
from holdfast.config.spark_defaults import ABORTABLE_MANAGER

_SOURCE: Final = (FindingEvidence.SOURCE,)
_PLANNED: Final = (FindingEvidence.SOURCE, FindingEvidence.PLAN)
_CLASS: Final = (
    "from pyspark.sql.streaming import StatefulProcessor\n\n\n"
    "class Visits(StatefulProcessor):\n"
    "    def init(self, handle):\n"
)
_COUNT: Final = (
    "    def handleInputRows(self, key, rows, timerValues):\n"
    "        count = (self.count.get() or (0,))[0] + sum(1 for _ in rows)\n"
    "        self.count.update((count,))\n"
    "        yield Row(customer=key[0], count=count)\n"
)
_KEYED: Final = "import holdfast as hf\n\n\nclass Visits(hf.Keyed):\n"

PROCESSOR_RULES: Final = (
    Rule(
        "HF501",
        "old-stateful-function",
        Severity.WARNING,
        _PLANNED,
        "applyInPandasWithState.",
        "It supports one state per key, one timeout and no TTL, passes rows one key at a time, and its"
        " state schema cannot evolve. transformWithState replaces it in Spark 4.",
        "use a StatefulProcessor with transformWithState, or hf.keyed, which is several times as fast",
        'events.groupBy("customer").applyInPandasWithState(count, "n long", "n long", "append",'
        ' "ProcessingTimeTimeout")',
        'hf.keyed(events, by="customer").process(Visits(), output="customer string, n long", name="visits")',
    ),
    Rule(
        "HF502",
        "stateful-function-without-timeout",
        Severity.WARNING,
        _PLANNED,
        "applyInPandasWithState with NoTimeout.",
        "The function is not called again for a key without new events, so its state is never removed.",
        "set a timeout in the function, and call state.remove() when state.hasTimedOut",
        'events.groupBy("customer").applyInPandasWithState(count, "n long", "n long", "append", "NoTimeout")',
        'events.groupBy("customer").applyInPandasWithState(count, "n long", "n long", "append",'
        ' "ProcessingTimeTimeout")',
    ),
    Rule(
        "HF503",
        "state-without-ttl",
        Severity.WARNING,
        _SOURCE,
        "A StatefulProcessor with a state that has no TTL and no timer and is never cleared.",
        "The state keeps one value for every key ever seen, without limit.",
        "pass a TTL in ms as the last argument, or register a timer and clear the state there",
        f'{_CLASS}        self.count = handle.getValueState("count", "n long")\n\n{_COUNT}',
        f'{_CLASS}        self.count = handle.getValueState("count", "n long", 86_400_000)\n\n{_COUNT}',
    ),
    Rule(
        "HF504",
        "keyed-state-without-ttl",
        Severity.WARNING,
        _SOURCE,
        "A state of hf.Keyed or hf.KeyedTable without a TTL, in a class that removes nothing and sets no"
        " timer.",
        "The state keeps one value for every key ever seen, without limit.",
        'declare a TTL: hf.value("long", default=0, ttl="24h")',
        f'{_KEYED}    visits = hf.value("long", default=0)\n\n'
        "    def on_event(self, event, state, ctx):\n        state.visits += 1\n",
        f'{_KEYED}    visits = hf.value("long", default=0, ttl="24h")\n\n'
        "    def on_event(self, event, state, ctx):\n        state.visits += 1\n",
    ),
    Rule(
        "HF505",
        "rows-in-list-state",
        Severity.WARNING,
        _SOURCE,
        "Whole rows, or columns with large payloads, in list state.",
        "State is stored, checkpointed and restored for its whole lifetime, including columns that no"
        " result needs.",
        "store only what the result needs: a count, a sum, the last value, or the one column that is read",
        f'{_KEYED}    seen = hf.list("struct<id: string, body: string>", ttl="1 hour")\n\n'
        "    def on_event(self, event, state, ctx):\n        state.seen.append(event)\n",
        f'{_KEYED}    seen = hf.list("string", ttl="1 hour")\n\n'
        "    def on_event(self, event, state, ctx):\n        state.seen.append(event.id)\n",
    ),
    Rule(
        "HF506",
        "number-as-text",
        Severity.WARNING,
        _SOURCE,
        "A number stored in a state of type string.",
        "Text takes several times the bytes of a long, is parsed in each batch, and sorts 10 before 9.",
        'declare the state as "long", "double" or "decimal(12,2)"',
        f'{_KEYED}    total = hf.value("string", default="0", ttl="24h")\n\n'
        "    def on_event(self, event, state, ctx):\n        state.total = str(int(state.total) + event.n)\n",
        f'{_KEYED}    total = hf.value("long", default=0, ttl="24h")\n\n'
        "    def on_event(self, event, state, ctx):\n        state.total += event.n\n",
    ),
    Rule(
        "HF507",
        "processor-without-state",
        Severity.WARNING,
        _SOURCE,
        "A processor class that declares no state and sets no timer.",
        "Rows are shuffled by key and each partition has a state store, for work that a projection does"
        " without either.",
        "use select, withColumn or mapInArrow; use explode for flatMap",
        f"{_KEYED}    def on_event(self, event, state, ctx):\n"
        '        yield {"customer": event.customer, "cents": event.amount * 100}\n',
        'events.select("customer", F.col("amount") * 100)',
    ),
)


_START: Final = 'events.writeStream.format("delta")'
_AT: Final = '.option("checkpointLocation", "hdfs:/checkpoints/events")'

SINK_RULES: Final = (
    Rule(
        "HF401",
        "no-checkpoint",
        Severity.ERROR,
        _SOURCE,
        "A query started without a checkpointLocation, into a sink other than console, memory or noop.",
        "foreachBatch and foreach then use a temporary checkpoint directory: a restart begins without state"
        " and reads its input again. Other sinks refuse to start.",
        'set `.option("checkpointLocation", …)`, with a separate directory for each query',
        "events.writeStream.foreachBatch(lambda rows, batch_id:"
        ' rows.write.mode("overwrite").save(str(batch_id))).start()',
        f'{_START}{_AT}.start("/tables/events")',
    ),
    Rule(
        "HF402",
        "checkpoint-in-tmp",
        Severity.ERROR,
        _SOURCE,
        "A checkpoint below /tmp.",
        "A reboot or a cleanup job empties the directory, and state and offsets are lost.",
        "use durable storage: HDFS, an object store or a disk that is backed up",
        f'{_START}.option("checkpointLocation", "/tmp/events").start("/tables/events")',
        f'{_START}{_AT}.start("/tables/events")',
    ),
    Rule(
        "HF403",
        "checkpoint-on-one-machine",
        Severity.NOTE,
        _SOURCE,
        "A checkpoint at a file: address, in a file that does not set a local master.",
        "Executors of a cluster write state to their own local disks, which no other machine can read.",
        "use storage that all executors can reach",
        f'{_START}.option("checkpointLocation", "file:/data/checkpoints/events").start("/tables/events")',
        f'{_START}{_AT}.start("/tables/events")',
    ),
    Rule(
        "HF404",
        "batch-appended-twice",
        Severity.WARNING,
        _SOURCE,
        "A foreachBatch function that appends and does not use the batch ID.",
        "Spark runs an uncommitted batch again, which appends the same rows twice.",
        "write by key (MERGE), set Delta's txnAppId and txnVersion, or use `hf.sink(df).append(…, ledger=…)`",
        "def write(rows, batch_id):\n"
        '    rows.write.format("jdbc").mode("append").save()\n\n'
        f"events.writeStream.foreachBatch(write){_AT}.start()",
        "def write(rows, batch_id):\n"
        '    rows.write.format("delta").option("txnAppId", "events").option("txnVersion", batch_id)'
        '.mode("append").save("/tables/events")\n\n'
        f"events.writeStream.foreachBatch(write){_AT}.start()",
    ),
    Rule(
        "HF405",
        "batch-computed-again",
        Severity.WARNING,
        _SOURCE,
        "A foreachBatch function with several actions on the batch and no persist.",
        "Each action computes the batch from its sources again and loads its state stores again.",
        "call `rows.persist()` first and `rows.unpersist()` last",
        "def write(rows, batch_id):\n"
        '    rows.write.mode("overwrite").save(f"/tables/a/{batch_id}")\n'
        '    rows.write.mode("overwrite").save(f"/tables/b/{batch_id}")\n\n'
        f"events.writeStream.foreachBatch(write){_AT}.start()",
        "def write(rows, batch_id):\n"
        "    rows.persist()\n"
        '    rows.write.mode("overwrite").save(f"/tables/a/{batch_id}")\n'
        '    rows.write.mode("overwrite").save(f"/tables/b/{batch_id}")\n'
        "    rows.unpersist()\n\n"
        f"events.writeStream.foreachBatch(write){_AT}.start()",
    ),
    Rule(
        "HF406",
        "sink-for-looking",
        Severity.WARNING,
        _SOURCE,
        "A console or memory sink that reads a production source, or that has a checkpoint of its own.",
        "The memory sink keeps all rows in the driver; the console sink keeps none. Neither can recover its"
        " output after a failure.",
        "write to a table or a topic",
        'spark.readStream.format("kafka").load().writeStream.format("memory").queryName("t").start()',
        f'spark.readStream.format("kafka").load().writeStream.format("delta"){_AT}.start("/tables/events")',
    ),
    Rule(
        "HF407",
        "no-trigger-on-object-storage",
        Severity.NOTE,
        _SOURCE,
        "A query without a trigger and with a checkpoint on object storage.",
        "Batches run back to back, and each makes a dozen write and list requests: several hundred dollars"
        " a month for an idle query.",
        'set `.trigger(processingTime="1 minute")`, or the longest delay that results allow',
        f'{_START}.option("checkpointLocation", "s3a://bucket/events").start("/tables/events")',
        f'{_START}.trigger(processingTime="1 minute")'
        '.option("checkpointLocation", "s3a://bucket/events").start("/tables/events")',
    ),
    Rule(
        "HF408",
        "usual-file-manager-on-s3",
        Severity.NOTE,
        _SOURCE,
        "A checkpoint on S3 in a session built without `spark.sql.streaming.checkpointFileManagerClass`.",
        "Spark then writes each file under a temporary name and renames it. On S3 a rename is a copy, and"
        " readers can see it half done.",
        f"set `spark.sql.streaming.checkpointFileManagerClass` to {ABORTABLE_MANAGER}",
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        'spark.readStream.table("events").writeStream.trigger(processingTime="1 minute")\\\n'
        '    .option("checkpointLocation", "s3a://bucket/events").toTable("copies")',
        "from pyspark.sql import SparkSession\n"
        'spark = SparkSession.builder.config("spark.sql.streaming.checkpointFileManagerClass",\n'
        f'    "{ABORTABLE_MANAGER}").getOrCreate()\n'
        'spark.readStream.table("events").writeStream.trigger(processingTime="1 minute")\\\n'
        '    .option("checkpointLocation", "s3a://bucket/events").toTable("copies")',
    ),
    Rule(
        "HF409",
        "one-checkpoint-for-two-queries",
        Severity.ERROR,
        _SOURCE,
        "Two queries started with the same checkpointLocation.",
        "If they run in turn, each resumes from the offsets and state of the other and skips input of its"
        " own. If they run at once, one of them fails.",
        "give each query its own directory, for example one with its name",
        f'{_START}{_AT}.start("/tables/events")\n'
        'orders.writeStream.format("delta").option("checkpointLocation", "hdfs:/checkpoints/events")'
        '.start("/tables/orders")',
        f'{_START}{_AT}.start("/tables/events")\n'
        'orders.writeStream.format("delta").option("checkpointLocation", "hdfs:/checkpoints/orders")'
        '.start("/tables/orders")',
    ),
    Rule(
        "HF410",
        "file-sink-log-grows",
        Severity.NOTE,
        _SOURCE,
        "A sink of files (parquet, json, csv, orc, text) without the option `retention`.",
        "Spark lists every file ever written in `_spark_metadata` and rewrites the whole list in every"
        " tenth batch, which gets slower with every file. Readers read the whole list too.",
        'use a table format such as Delta, or set `.option("retention", "30d")` if readers may skip older'
        " files",
        'events.writeStream.format("parquet").option("checkpointLocation", "hdfs:/checkpoints/events")'
        '.start("/tables/events")',
        f'{_START}.option("checkpointLocation", "hdfs:/checkpoints/events").start("/tables/events")',
    ),
    Rule(
        "HF411",
        "failure-swallowed",
        Severity.WARNING,
        _SOURCE,
        "An exception of awaitTermination that is caught and neither raised again nor turned into an exit"
        " code.",
        "The driver exits with code 0. Kubernetes, schedulers and EMR count that as success and do not"
        " restart it.",
        "raise the exception again, or exit with `sys.exit(1)`",
        'query = events.writeStream.format("delta").option("checkpointLocation", "hdfs:/checkpoints/events")'
        '.start("/tables/events")\n'
        "try:\n    query.awaitTermination()\nexcept Exception as error:\n    print(error)",
        'query = events.writeStream.format("delta").option("checkpointLocation", "hdfs:/checkpoints/events")'
        '.start("/tables/events")\n'
        "try:\n    query.awaitTermination()\nexcept Exception as error:\n    print(error)\n    raise",
    ),
    Rule(
        "HF412",
        "sources-by-number",
        Severity.NOTE,
        (FindingEvidence.PLAN,),
        "A query with several sources that have no names.",
        "Spark assigns offsets to sources by their position in the query. If a source is added, removed or"
        " moved, the others resume from the wrong offsets.",
        "keep the order of sources for the lifetime of the checkpoint; with Spark 4.2, set"
        " `spark.sql.streaming.queryEvolution.enableSourceEvolution` before the first start and name each"
        " source with `readStream.name(…)`",
        'hf.sink(orders.select("id").union(payments.select("id"))).delta("/tables/ids")',
        'hf.sink(orders.select("id")).delta("/tables/ids")',
    ),
    Rule(
        "HF413",
        "output-ahead-of-checkpoint",
        Severity.ERROR,
        (FindingEvidence.FACTS,),
        "In `lint FILE.py`: a file sink whose `_spark_metadata` has later batches than the checkpoint of"
        " its query has planned. Both directories must be literals in the code and exist on this machine.",
        "A file sink writes nothing for a batch number that it already has. With a new or an older"
        " checkpoint the numbers repeat, and Spark drops those rows without an error.",
        "use a new output directory and prepare its log with `holdfast restore SAVEPOINT CHECKPOINT --table"
        " DIR`, or use the checkpoint that belongs to this directory",
        "a new checkpointLocation with the path used before",
        "a new checkpointLocation with a new path",
    ),
    Rule(
        "HF414",
        "sink-log-gap",
        Severity.ERROR,
        (FindingEvidence.FACTS,),
        "In `lint FILE.py`: a file sink whose `_spark_metadata` lacks a batch that the checkpoint of its"
        " query has committed. Both directories must be literals in the code and exist on this machine.",
        "Every ten batches Spark reads the entries of all batches since the last compaction of the log. If"
        " one is missing, the query fails with BATCH_METADATA_NOT_FOUND, then and at every later start.",
        "use a new output directory whose log is prepared with `holdfast restore SAVEPOINT CHECKPOINT"
        " --table DIR`",
        "a checkpoint restored at batch 5 with an empty path",
        "the same with a path prepared by `holdfast restore --table`",
    ),
)


STATE_RULES: Final = (
    Rule(
        "HF101",
        "window-without-watermark",
        Severity.ERROR,
        _PLANNED,
        "An aggregate over windows of a stream without a watermark.",
        "Spark drops the state of a window when the watermark passes its end. Without a watermark every"
        " window is kept, and output mode append is refused.",
        'declare `.withWatermark("ts", "10 minutes")` on the window\'s column, before groupBy',
        'events.groupBy(F.window("ts", "5 minutes")).count()',
        'events.withWatermark("ts", "10 minutes").groupBy(F.window("ts", "5 minutes")).count()',
    ),
    Rule(
        "HF102",
        "keys-without-end",
        Severity.WARNING,
        _PLANNED,
        "A streaming aggregate whose keys include neither a window nor the watermark's column.",
        "One row of state per key is kept forever, whether or not there is a watermark. That is fine for a"
        " few countries, but not for customers, sessions or devices.",
        "add an event-time window to the keys; for a running total with an end use `hf.running`, or"
        " `hf.keyed` with a TTL",
        'events.groupBy("customer").count()',
        'events.withWatermark("ts", "10 minutes").groupBy("customer", F.window("ts", "1 day")).count()',
    ),
    Rule(
        "HF103",
        "dedupe-without-watermark",
        Severity.ERROR,
        _PLANNED,
        "dropDuplicates on a stream without a watermark.",
        "Every key ever seen is kept, so the state grows with the stream. Spark refuses"
        " dropDuplicatesWithinWatermark without a watermark.",
        'declare a watermark and use `.dropDuplicatesWithinWatermark(["id"])`',
        'once = events.dropDuplicates(["event_id"])',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicatesWithinWatermark(["event_id"])',
    ),
    Rule(
        "HF104",
        "dedupe-key-without-event-time",
        Severity.ERROR,
        _PLANNED,
        "dropDuplicates by columns that do not include the watermark's column.",
        "The watermark drops keys by their event time. Keys without one are kept forever, so the watermark"
        " has no effect.",
        'use `.dropDuplicatesWithinWatermark(["id"])`, which keeps a key until the watermark has passed it',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicates(["event_id"])',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicatesWithinWatermark(["event_id"])',
    ),
    Rule(
        "HF105",
        "dedupe-by-event-time",
        Severity.NOTE,
        _PLANNED,
        "dropDuplicates by an ID and the watermark's column.",
        "Two rows with the same ID and times a millisecond apart are two rows. A producer that sends again"
        " often sets a new time.",
        'if the time of a duplicate may differ, use `.dropDuplicatesWithinWatermark(["id"])`',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicates(["event_id", "ts"])',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicatesWithinWatermark(["event_id"])',
    ),
    Rule(
        "HF106",
        "join-without-watermark",
        Severity.ERROR,
        _PLANNED,
        "A stream-stream join in which one or both sides have no watermark.",
        "Rows wait in state for a match. Without a watermark on both sides Spark cannot tell that no match"
        " will come, and keeps every row of at least one side forever.",
        "declare a watermark on both sides, and bound the event times in the join condition;"
        " `hf.join_within` requires both",
        'orders.join(payments, "order_id")',
        'hf.join_within(orders, payments, by="order_id", times=("ts", "ts"), bound="1 hour",'
        ' watermark="1 hour")',
    ),
    Rule(
        "HF107",
        "join-without-time-bound",
        Severity.ERROR,
        _PLANNED,
        "A stream-stream join with watermarks whose condition does not bound the event times.",
        "A watermark alone removes nothing from a join. Only a condition such as `paid_at <= ordered_at +"
        " interval 1 hour` limits how long a row can still match.",
        "compare the event times of both sides in the join condition, or join by a window of them",
        'orders.withWatermark("ordered_at", "1 hour").join('
        'payments.withWatermark("paid_at", "1 hour"), "order_id")',
        'orders.withWatermark("ordered_at", "1 hour").alias("o").join('
        'payments.withWatermark("paid_at", "1 hour").alias("p"),\n'
        '    F.expr("o.order_id = p.order_id and paid_at between ordered_at'
        ' and ordered_at + interval 1 hour"))',
    ),
    Rule(
        "HF108",
        "complete-mode-over-keys",
        Severity.WARNING,
        _PLANNED,
        "Output mode complete on an aggregate with keys.",
        "In this mode Spark ignores the watermark and removes no state, and each batch writes the whole"
        " result.",
        'use outputMode("update") with a sink that replaces by key, or "append" with windows',
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "1 hour"), "customer").count()'
        '.writeStream.outputMode("complete")',
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "1 hour"), "customer").count()'
        '.writeStream.outputMode("append")',
    ),
    Rule(
        "HF109",
        "collected-in-state",
        Severity.WARNING,
        _PLANNED,
        "collect_list, collect_set, array_agg or listagg in a streaming aggregate.",
        "All values of a group are one state value, which is read and written as a whole in each batch that"
        " touches the key. A hot key takes minutes, then all memory of its task.",
        "store only what the result needs: a count, a sum, the maximum, `approx_count_distinct`; or write"
        " the rows out and collect them when reading",
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "1 hour"), "customer")'
        '.agg(F.collect_list("item"))',
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "1 hour"), "customer")'
        '.agg(F.approx_count_distinct("item"))',
    ),
    Rule(
        "HF110",
        "salt-without-second-aggregate",
        Severity.ERROR,
        _SOURCE,
        "An aggregate that groups by a random number, with no second aggregate after it.",
        "The parts of a key are never added up, so each result row has only part of the answer. A batch"
        " that runs again draws different numbers and counts rows twice.",
        "remove the salt: Spark combines rows before the shuffle, so a hot key sends one row per task; the"
        " guide on hot keys covers the cases where that does not help",
        'events.withWatermark("ts", "1 hour").withColumn("salt", (F.rand() * 8).cast("int"))'
        '.groupBy(F.window("ts", "1 hour"), "customer", "salt").count().writeStream.outputMode("append")',
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "1 hour"), "customer").count()'
        '.writeStream.outputMode("append")',
    ),
    Rule(
        "HF111",
        "dedupe-by-whole-row",
        Severity.WARNING,
        (FindingEvidence.PLAN,),
        "dropDuplicates without columns, or distinct, on a stream with four or more columns.",
        "The whole row is the key, so every row is kept in full. A duplicate that differs in any column,"
        " such as the time it was sent, is not removed.",
        'name the columns that identify a row: `.dropDuplicatesWithinWatermark(["id"])`',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicates()',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicatesWithinWatermark(["event_id"])',
    ),
    Rule(
        "HF112",
        "refused-by-spark",
        Severity.ERROR,
        (FindingEvidence.PLAN,),
        "A query that Spark refuses to start in its output mode.",
        "The driver starts, builds the query and ends with an error. A restart by a supervisor does not"
        " help.",
        "follow Spark's message: usually declare a watermark or change the output mode",
        'hf.sink(events.groupBy("customer").count()).delta("/tables/counts")',
        'hf.sink(events.withWatermark("ts", "1 hour").groupBy("customer", F.window("ts", "1 day")).count())'
        '.delta("/tables/counts")',
    ),
)


_ALL: Final = (FindingEvidence.SOURCE, FindingEvidence.PLAN, FindingEvidence.FACTS)

TIME_RULES: Final = (
    Rule(
        "HF201",
        "watermark-not-kept",
        Severity.ERROR,
        _SOURCE,
        "A call of withWatermark or dropDuplicates whose result is discarded.",
        "DataFrames are immutable: the call returns a new one. A query built on the old one has no"
        " watermark.",
        "assign the result of the call, and build the query on it",
        'events.withWatermark("ts", "10 minutes")\nevents.select("ts").writeStream.format("noop")',
        'timed = events.withWatermark("ts", "10 minutes")\ntimed.select("ts").writeStream.format("noop")',
    ),
    Rule(
        "HF202",
        "window-over-other-column",
        Severity.ERROR,
        _PLANNED,
        "A window over a column other than the watermark's.",
        "Spark drops windows by the column that the watermark is declared on. A window over any other"
        " column never ends, even if it is a copy or the same time parsed again.",
        "create the column first, declare the watermark on it, and use the same column for the window",
        'events.withWatermark("ts", "1 hour").groupBy(F.window("arrived_at", "5 minutes")).count()',
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "5 minutes")).count()',
    ),
    Rule(
        "HF203",
        "watermark-behind-aggregate",
        Severity.ERROR,
        _SOURCE,
        "A watermark declared after the aggregate that needs it.",
        "A watermark affects only the operators after it. The aggregate before it keeps its state forever.",
        "declare the watermark before groupBy",
        'counts = events.groupBy(F.window("ts", "5 minutes")).count().withWatermark("window", "10 minutes")',
        'events.withWatermark("ts", "10 minutes").groupBy(F.window("ts", "5 minutes")).count()',
    ),
    Rule(
        "HF204",
        "long-watermark",
        Severity.WARNING,
        _PLANNED,
        "A watermark delay longer than a day, before a stateful operator.",
        "State is kept for the whole delay, and in output mode append results are held back as long.",
        "set the delay to how late rows really are (hf.late_rows counts them), and handle the few later"
        " ones separately",
        'events.withWatermark("ts", "30 days").groupBy(F.window("ts", "1 hour")).count()',
        'events.withWatermark("ts", "2 hours").groupBy(F.window("ts", "1 hour")).count()',
    ),
    Rule(
        "HF205",
        "watermark-declared-twice",
        Severity.ERROR,
        _SOURCE,
        "A second watermark on a stream that already has one, with no stateful operator between them.",
        "Spark 4 refuses to start such a query. In Spark 3 it is unclear which of the two applies.",
        "keep only one watermark",
        'events.withWatermark("ts", "1 hour").withWatermark("seen_at", "1'
        ' hour").groupBy(F.window("ts", "1 hour")).count()',
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "1 hour")).count()',
    ),
    Rule(
        "HF206",
        "several-watermarks",
        Severity.NOTE,
        _PLANNED,
        "An operator after two or more streams that each have a watermark.",
        "Spark uses the slowest watermark: a silent stream holds back all others, and their state grows. A"
        " restart resumes with the one saved watermark, so rows that were on time may count as late.",
        "send rows on each stream at all times, for example heartbeats, and monitor the watermark's lag",
        'orders.withWatermark("ordered_at", "1 hour").join(payments.withWatermark("paid_at", "1 hour"),\n'
        '    F.expr("order_id = paid_order and paid_at between ordered_at and ordered_at + interval 1'
        ' hour"))',
        'shops = spark.read.table("shops")\norders.withWatermark("ordered_at", "1 hour").join(shops, "shop")',
    ),
    Rule(
        "HF207",
        "watermark-of-the-fastest",
        Severity.WARNING,
        _ALL,
        "`spark.sql.streaming.multipleWatermarkPolicy` is max.",
        "The fastest stream sets the watermark: rows of all slower streams are dropped as late, without an"
        " error.",
        "leave the policy at min, and send heartbeats on silent streams",
        'spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "max")',
        'spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "min")',
    ),
    Rule(
        "HF208",
        "watermark-left-behind",
        Severity.ERROR,
        _PLANNED,
        "A window over the watermark's column as it was before the watermark, or after a cast or another"
        " function.",
        "Spark marks the column that withWatermark returns. The column of the earlier DataFrame"
        " (`events.ts`), a cast and a rounded time have no mark, so no window ever ends.",
        "cast first, then declare the watermark, and refer to the column by its name",
        'timed = events.withWatermark("ts", "10 minutes")\n'
        'timed.groupBy(F.window(events.ts, "5 minutes")).count()',
        'timed = events.withWatermark("ts", "10 minutes")\ntimed.groupBy(F.window("ts", "5'
        ' minutes")).count()',
    ),
)
