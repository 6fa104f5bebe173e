"""Rules of checkpoints and sinks, as code names them."""

from __future__ import annotations

from typing import Final

from holdfast.advice.findings import Evidence, Rule, Severity
from holdfast.config.spark_defaults import ABORTABLE_MANAGER

_SOURCE: Final = (Evidence.SOURCE,)
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
        (Evidence.PLAN,),
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
        (Evidence.FACTS,),
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
        (Evidence.FACTS,),
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
