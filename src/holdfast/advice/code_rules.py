"""Lint rules about processors, sinks, state and watermarks in code."""

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
        "It has one state for each key, one timeout and no time to live, hands rows over key by key, and its"
        " state cannot be evolved. Spark 4 has transformWithState in its place.",
        "write a StatefulProcessor with transformWithState, or hf.keyed, which is several times as fast",
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
        "A key whose events have ended is never called again, so that nobody can remove its state.",
        "give a timeout, set it in the function, and call state.remove() when state.hasTimedOut",
        'events.groupBy("customer").applyInPandasWithState(count, "n long", "n long", "append", "NoTimeout")',
        'events.groupBy("customer").applyInPandasWithState(count, "n long", "n long", "append",'
        ' "ProcessingTimeTimeout")',
    ),
    Rule(
        "HF503",
        "state-without-ttl",
        Severity.WARNING,
        _SOURCE,
        "A StatefulProcessor with a state that has no time to live, no timer, and is never cleared.",
        "One value for each key that was ever seen stays for ever.",
        "give the state a time to live in ms as the last argument, or register a timer and clear it there",
        f'{_CLASS}        self.count = handle.getValueState("count", "n long")\n\n{_COUNT}',
        f'{_CLASS}        self.count = handle.getValueState("count", "n long", 86_400_000)\n\n{_COUNT}',
    ),
    Rule(
        "HF504",
        "keyed-state-without-ttl",
        Severity.WARNING,
        _SOURCE,
        "A state of hf.Keyed or hf.KeyedTable without a ttl, in a class that removes nothing and sets"
        " no timer.",
        "One value for each key that was ever seen stays for ever.",
        'give it a time to live: hf.value("long", default=0, ttl="24h")',
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
        "Whole rows, or columns with whole payloads, in list state.",
        "State is stored, checkpointed and restored for as long as it lives, here with columns that"
        " no answer needs.",
        "keep what the answer needs: a count, a sum, the last value, or the one column that is read",
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
        "A number that is kept in a state of type string.",
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
        "Rows are shuffled by key and each partition has a store, for what a projection does without either.",
        "write select, withColumn, or mapInArrow; flatMap by explode",
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
        "A query that is started without a checkpointLocation, into a sink that is not for looking.",
        "foreachBatch and foreach then get a checkpoint in a temporary directory: a restart begins"
        " without state"
        " and reads its input again. Other sinks refuse to start.",
        'give `.option("checkpointLocation", …)`, one of its own for each query',
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
        "The directory is emptied by the next boot or by a cleaner, and state and offsets with it.",
        "put it where the tables are: HDFS, an object store, a disk that is backed up",
        f'{_START}.option("checkpointLocation", "/tmp/events").start("/tables/events")',
        f'{_START}{_AT}.start("/tables/events")',
    ),
    Rule(
        "HF403",
        "checkpoint-on-one-machine",
        Severity.NOTE,
        _SOURCE,
        "A checkpoint at file:, in a file that does not set a local master.",
        "Executors of a cluster write their state to their own disks, where no other machine finds it.",
        "put it on storage that all executors see",
        f'{_START}.option("checkpointLocation", "file:/data/checkpoints/events").start("/tables/events")',
        f'{_START}{_AT}.start("/tables/events")',
    ),
    Rule(
        "HF404",
        "batch-appended-twice",
        Severity.WARNING,
        _SOURCE,
        "A function of foreachBatch that appends and does not use the batch's id.",
        "Spark runs a batch again when it was not committed, and the rows are appended once more.",
        "write by key (MERGE), give Delta txnAppId and txnVersion, or take `hf.sink(df).append(…, ledger=…)`",
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
        "A function of foreachBatch with several actions on the batch and no persist.",
        "Each action computes the batch from its sources again, state included: its stores are loaded"
        " again too.",
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
        "A console or memory sink behind a source of production, or with a checkpoint of its own.",
        "The memory sink keeps all its rows in the driver, and the console keeps none. Neither can go"
        " on after a"
        " failure with what it had.",
        "write into a table or a topic",
        'spark.readStream.format("kafka").load().writeStream.format("memory").queryName("t").start()',
        f'spark.readStream.format("kafka").load().writeStream.format("delta"){_AT}.start("/tables/events")',
    ),
    Rule(
        "HF407",
        "no-trigger-on-object-storage",
        Severity.NOTE,
        _SOURCE,
        "A query without a trigger whose checkpoint is on object storage.",
        "Batches follow each other without a pause, each with a dozen requests to write and list:"
        " some hundred"
        " dollars a month for an idle query.",
        'give `.trigger(processingTime="1 minute")`, or what the answer can wait',
        f'{_START}.option("checkpointLocation", "s3a://bucket/events").start("/tables/events")',
        f'{_START}.trigger(processingTime="1 minute")'
        '.option("checkpointLocation", "s3a://bucket/events").start("/tables/events")',
    ),
    Rule(
        "HF408",
        "usual-file-manager-on-s3",
        Severity.NOTE,
        _SOURCE,
        "A checkpoint on S3 in a session that is built without"
        " `spark.sql.streaming.checkpointFileManagerClass`.",
        "Spark then writes each file under another name and renames it, which on S3 is a copy and can be seen"
        " half done.",
        f"set it to {ABORTABLE_MANAGER}",
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
        "Two queries that are started with the same checkpointLocation.",
        "Run in turn, each goes on from the offsets and the state of the other, and skips input of its own."
        " Run at once, one of them fails.",
        "give each query a directory of its own, such as one with its name",
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
        "Spark notes every file that it has ever written in `_spark_metadata`, and writes the whole list"
        " anew in each"
        " tenth batch, which gets slower with every file. Readers read all of it too.",
        'write into a table format such as Delta, or give `.option("retention", "30d")` where older files may'
        " be left out by readers",
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
        "The driver ends with exit code 0. Kubernetes, a scheduler and EMR call that success, and start"
        " nothing again.",
        "raise it again, or end with `sys.exit(1)`",
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
        "Spark finds the offsets of a source by its place in the query. Where one is added, taken out or"
        " moved, the"
        " others would go on from offsets that are not theirs.",
        "keep their order for as long as the checkpoint lives; with Spark 4.2 and"
        " `spark.sql.streaming.queryEvolution.enableSourceEvolution` from the first start on, name each by"
        " `readStream.name(…)`",
        'hf.sink(orders.select("id").union(payments.select("id"))).delta("/tables/ids")',
        'hf.sink(orders.select("id")).delta("/tables/ids")',
    ),
    Rule(
        "HF413",
        "output-ahead-of-checkpoint",
        Severity.ERROR,
        (FindingEvidence.FACTS,),
        "In `lint FILE.py`, a sink of files whose `_spark_metadata` has later batches than the checkpoint of"
        " its query has planned. Both are directories that the code names in full, on this machine.",
        "A sink of files writes nothing for a batch number that it has already. With a new or an older"
        " checkpoint the numbers come again, and Spark throws their rows away without an error.",
        "give the query a new directory for its output and prepare its log, by `holdfast restore SAVEPOINT"
        " CHECKPOINT --table DIR`, or the checkpoint that belongs to this directory",
        "a new checkpointLocation, and the path that was there before",
        "a new checkpointLocation, and a new path",
    ),
    Rule(
        "HF414",
        "sink-log-gap",
        Severity.ERROR,
        (FindingEvidence.FACTS,),
        "In `lint FILE.py`, a sink of files whose `_spark_metadata` lacks a batch that the checkpoint of its"
        " query has committed. Both are directories that the code names in full, on this machine.",
        "Every ten batches Spark reads the entry of every batch since the last compaction of the log. If one"
        " is missing, the query fails with BATCH_METADATA_NOT_FOUND, and at every start from then on.",
        "give the query a new directory whose log is prepared, by `holdfast restore SAVEPOINT CHECKPOINT"
        " --table DIR`",
        "a checkpoint that was restored at batch 5, and an empty path",
        "the same, and a path that `holdfast restore --table` has prepared",
    ),
)


STATE_RULES: Final = (
    Rule(
        "HF101",
        "window-without-watermark",
        Severity.ERROR,
        _PLANNED,
        "An aggregate over windows of a stream that has no watermark.",
        "Spark drops the state of a window when the watermark has passed its end. Without one every window"
        " since the start stays, and output mode append is refused.",
        'declare `.withWatermark("ts", "10 minutes")` on the column of the window, before groupBy',
        'events.groupBy(F.window("ts", "5 minutes")).count()',
        'events.withWatermark("ts", "10 minutes").groupBy(F.window("ts", "5 minutes")).count()',
    ),
    Rule(
        "HF102",
        "keys-without-end",
        Severity.WARNING,
        _PLANNED,
        "An aggregate of a stream whose keys have neither a window nor the column of the watermark.",
        "One row of state for each key stays for ever, whatever watermark there is. That is right for a"
        " few countries, and wrong for customers, sessions or devices.",
        "put a window of the event time among the keys; for a running total with an end take"
        " `hf.running`, or `hf.keyed` with a time to live",
        'events.groupBy("customer").count()',
        'events.withWatermark("ts", "10 minutes").groupBy("customer", F.window("ts", "1 day")).count()',
    ),
    Rule(
        "HF103",
        "dedupe-without-watermark",
        Severity.ERROR,
        _PLANNED,
        "dropDuplicates of a stream that has no watermark.",
        "Every key that was ever seen is kept, so that the state grows with the stream. Spark refuses"
        " dropDuplicatesWithinWatermark without one.",
        'declare a watermark, and write `.dropDuplicatesWithinWatermark(["id"])`',
        'once = events.dropDuplicates(["event_id"])',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicatesWithinWatermark(["event_id"])',
    ),
    Rule(
        "HF104",
        "dedupe-key-without-event-time",
        Severity.ERROR,
        _PLANNED,
        "dropDuplicates by columns without the one that the watermark is on.",
        "The watermark drops keys by their event time. A key that has none stays for ever, and the"
        " watermark before it does nothing.",
        'write `.dropDuplicatesWithinWatermark(["id"])`, which keeps a key until the watermark has passed it',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicates(["event_id"])',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicatesWithinWatermark(["event_id"])',
    ),
    Rule(
        "HF105",
        "dedupe-by-event-time",
        Severity.NOTE,
        _PLANNED,
        "dropDuplicates by an id and the column of the watermark.",
        "Two rows with one id and times that differ by a millisecond are two rows. A producer that sends"
        " again often sets the time again.",
        'where the time of a repeat may differ, write `.dropDuplicatesWithinWatermark(["id"])`',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicates(["event_id", "ts"])',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicatesWithinWatermark(["event_id"])',
    ),
    Rule(
        "HF106",
        "join-without-watermark",
        Severity.ERROR,
        _PLANNED,
        "A join of two streams of which one or both have no watermark.",
        "Rows wait in state for a partner. Without a watermark on both sides Spark cannot know that none"
        " will come, and keeps every row of at least one side for ever.",
        "declare a watermark on both sides, and bound the times in the condition; `hf.join_within`"
        " asks for both",
        'orders.join(payments, "order_id")',
        'hf.join_within(orders, payments, by="order_id", times=("ts", "ts"), bound="1 hour",'
        ' watermark="1 hour")',
    ),
    Rule(
        "HF107",
        "join-without-time-bound",
        Severity.ERROR,
        _PLANNED,
        "A join of two streams with watermarks whose condition does not bound the event times.",
        "A watermark alone drops nothing from a join: only a condition such as `paid_at <= ordered_at +"
        " interval 1 hour` tells how long a row can still find a partner.",
        "compare the event times of both sides in the condition, or join by a window of them",
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
        "Output mode complete on an aggregate that has keys.",
        "In this mode Spark ignores the watermark and drops no state, and each batch writes the whole"
        " result.",
        'write outputMode("update") into a sink that replaces by key, or "append" with windows',
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
        "collect_list, collect_set, array_agg or listagg in an aggregate of a stream.",
        "All values of a group are one value of state, which is read and written as a whole in each batch"
        " that touches the key. A hot key takes minutes, then the memory of its task.",
        "keep what the answer needs: a count, a sum, the greatest, `approx_count_distinct`; or write the rows"
        " and collect them where they are read",
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
        "An aggregate that groups by a number of chance, with no aggregate behind it.",
        "The parts of a key are never added up, so that each row of the result has a part of the answer. A"
        " batch that runs again draws other numbers, and counts rows twice.",
        "leave the salt out: Spark combines before the shuffle, so that a hot key sends one row from each"
        " task; see the guide on hot keys for what that does not help",
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
        "dropDuplicates without columns, or distinct, of a stream with four columns or more.",
        "The whole row is the key, so that each row is kept in full. A repeat that differs in anything,"
        " such as the time at which it was sent again, is no repeat.",
        'name the columns that tell rows apart: `.dropDuplicatesWithinWatermark(["id"])`',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicates()',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicatesWithinWatermark(["event_id"])',
    ),
    Rule(
        "HF112",
        "refused-by-spark",
        Severity.ERROR,
        (FindingEvidence.PLAN,),
        "A query that Spark would not start in its output mode.",
        "The driver starts, builds everything, and ends with an error; a supervisor cannot help that.",
        "write what the message asks for: mostly a watermark, or another output mode",
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
        "A call of withWatermark or dropDuplicates whose frame is not kept.",
        "A frame does not change: the call gives a new one. What is built on the old one has no watermark.",
        "assign what the call gives, and go on with that",
        'events.withWatermark("ts", "10 minutes")\nevents.select("ts").writeStream.format("noop")',
        'timed = events.withWatermark("ts", "10 minutes")\ntimed.select("ts").writeStream.format("noop")',
    ),
    Rule(
        "HF202",
        "window-over-other-column",
        Severity.ERROR,
        _PLANNED,
        "A window over a column that is not the one of the watermark.",
        "Spark drops windows by the column that the watermark is declared on. Another one, be it a copy or"
        " the same time parsed again, ends nothing.",
        "make the column first, declare the watermark on it, and put the window over the same column",
        'events.withWatermark("ts", "1 hour").groupBy(F.window("arrived_at", "5 minutes")).count()',
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "5 minutes")).count()',
    ),
    Rule(
        "HF203",
        "watermark-behind-aggregate",
        Severity.ERROR,
        _SOURCE,
        "A watermark that is declared behind the aggregate that needs it.",
        "It bounds only what comes after it. The aggregate before it keeps its state for ever.",
        "declare it before groupBy",
        'counts = events.groupBy(F.window("ts", "5 minutes")).count().withWatermark("window", "10 minutes")',
        'events.withWatermark("ts", "10 minutes").groupBy(F.window("ts", "5 minutes")).count()',
    ),
    Rule(
        "HF204",
        "long-watermark",
        Severity.WARNING,
        _PLANNED,
        "A watermark that waits longer than a day, before an operator with state.",
        "The state is that of all the time that it waits, and in output mode append no result comes before.",
        "wait as long as rows really are late (hf.late_rows counts them), and handle the few later"
        " ones apart",
        'events.withWatermark("ts", "30 days").groupBy(F.window("ts", "1 hour")).count()',
        'events.withWatermark("ts", "2 hours").groupBy(F.window("ts", "1 hour")).count()',
    ),
    Rule(
        "HF205",
        "watermark-declared-twice",
        Severity.ERROR,
        _SOURCE,
        "A second watermark on a stream that has one, with no stateful operator between them.",
        "Spark 4 refuses to start such a query, and in Spark 3 it is easy to take the wrong one for"
        " the one that counts.",
        "keep one of them",
        'events.withWatermark("ts", "1 hour").withWatermark("seen_at", "1'
        ' hour").groupBy(F.window("ts", "1 hour")).count()',
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "1 hour")).count()',
    ),
    Rule(
        "HF206",
        "several-watermarks",
        Severity.NOTE,
        _PLANNED,
        "An operator behind two streams or more that each have a watermark.",
        "Spark goes by the slowest one: a silent stream holds back all others, and their state grows."
        " A restart"
        " begins with the one watermark that was saved, so rows may be late that were not.",
        "see that each stream always has rows, such as heartbeats; watch the watermark's lag",
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
        "The fastest stream decides: rows of all slower ones are dropped as late, without an error.",
        "leave it at min, and give a silent stream heartbeats",
        'spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "max")',
        'spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "min")',
    ),
    Rule(
        "HF208",
        "watermark-left-behind",
        Severity.ERROR,
        _PLANNED,
        "A window over the watermark's column as it was before the watermark, or behind a cast or another"
        " function.",
        "Spark marks the column that withWatermark gives. A column of the frame before it (`events.ts`),"
        " a cast"
        " and a rounded time have no mark, so that no window ever ends.",
        "cast first, then declare the watermark, and name the column by its name",
        'timed = events.withWatermark("ts", "10 minutes")\n'
        'timed.groupBy(F.window(events.ts, "5 minutes")).count()',
        'timed = events.withWatermark("ts", "10 minutes")\ntimed.groupBy(F.window("ts", "5'
        ' minutes")).count()',
    ),
)
