"""A query that writes to a topic, with a batch that runs again; prints what stands there, as several read it.

The first argument is JSON: the broker, a topic, a folder, settings, three batches of rows.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holdfast as hf
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "customer string, amount long"


class Topic:
    """A query over a folder of JSON into a topic."""

    def __init__(self, spark: SparkSession, address: str, topic: str, folder: Path) -> None:
        self.spark = spark
        self.address = address
        self.topic = topic
        self.orders = folder / "orders"
        self.orders.mkdir(exist_ok=True)
        self.checkpoint = folder / "checkpoint"

    def make(self) -> None:
        """Write a record of somebody else's: the broker makes the topic."""
        rows = self.spark.createDataFrame([("foreign",)], "value string")
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", self.address)
        writer.option("topic", self.topic).save()

    def put(self, name: str, rows: list[Any]) -> None:
        lines = [json.dumps({"customer": customer, "amount": amount}) for customer, amount in rows]
        (self.orders / f"{name}.json").write_text("\n".join(lines))

    def stream(self) -> DataFrame:
        return self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.orders))

    def run(self, checkpoint: Path | None = None, **how: Any) -> None:
        sink = hf.sink(self.stream()).kafka(self.address, self.topic, key="customer", **how)
        query = sink.start(checkpoint=str(checkpoint or self.checkpoint), trigger=hf.available_now())
        query.awaitTermination()

    def forget_last_commit(self) -> None:
        """As if the driver had died after the batch and before Spark noted it."""
        commits = self.checkpoint / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def read(self, *, stream: bool = False) -> DataFrame:
        reader: Any = self.spark.readStream if stream else self.spark.read
        reader = reader.format("kafka").option("kafka.bootstrap.servers", self.address)
        reader = reader.option("subscribe", self.topic).option("startingOffsets", "earliest")
        # Of few records each: a repeat is in another batch of the reader than its record.
        reader = reader.option("maxOffsetsPerTrigger", 3) if stream else reader
        return reader.option("includeHeaders", "true").load()  # type: ignore[no-any-return]

    def streamed(self, folder: Path) -> DataFrame:
        """What a stream without repeats has put out, over two runs of it."""
        for _ in range(2):
            out = hf.sink(hf.without_repeats(self.read(stream=True))).parquet(folder / "streamed")
            out.start(checkpoint=str(folder / "reader"), trigger=hf.available_now()).awaitTermination()
        return self.spark.read.parquet(str(folder / "streamed"))


def counted(frame: DataFrame) -> dict[str, int]:
    """How often each record is there, by key and value."""
    rows = frame.selectExpr("cast(key as string) k", "cast(value as string) v").collect()
    return dict(sorted(Counter(f"{row.k} {row.v}" for row in rows).items()))


def by_consumer(frame: DataFrame) -> dict[str, int]:
    """The same for a consumer without Spark, which starts again after each record, with what it has seen."""
    found: Counter[str] = Counter()
    state = None
    for row in frame.orderBy("partition", "offset").collect():
        seen = hf.RepeatFilter(state)
        headers = [(header["key"], bytes(header["value"])) for header in row.headers or ()]
        if seen.is_new(row.topic, row.partition, headers):
            found[f"{row.key and bytes(row.key).decode()} {bytes(row.value).decode()}"] += 1
        state = json.loads(json.dumps(seen.state()))
    return dict(sorted(found.items()))


def refused(start: Callable[[], object]) -> str:
    """The words of a refusal."""
    try:
        start()
    except HoldfastError as error:
        return f"{error.kind}: {error.fact}"
    return "nothing"


def main(asked: dict[str, Any]) -> None:
    folder = Path(asked["folder"])
    spark = hf.session("sent", home=folder / "home", master="local[2]", conf=asked["conf"])
    topic = Topic(spark, asked["address"], asked["topic"], folder)
    found: dict[str, Any] = {}
    first, second, third = asked["batches"]
    topic.put("0", first)
    found["no_topic"] = refused(topic.run)
    topic.make()
    topic.put("1", second)
    topic.run()
    topic.forget_last_commit()
    topic.put("2", third)
    # The batch runs again in another order, and in other tasks.
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    topic.run()
    found["raw"] = counted(topic.read())
    found["batch"] = counted(hf.without_repeats(topic.read()))
    found["consumer"] = by_consumer(topic.read())
    found["stream"] = counted(topic.streamed(folder))
    found["put_back"] = refused(lambda: put_back(topic))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        topic.run(folder / "fork")
    found["warned"] = [
        str(each.message).partition("\n")[0] for each in heard if each.category is hf.ForkWarning
    ]
    found["forked"] = counted(hf.without_repeats(topic.read()))
    print(json.dumps(found))  # noqa: T201 - the answer
    spark.stop()


def put_back(topic: Topic) -> None:
    """Start from a checkpoint of the same query that knows of its first batch alone."""
    for folder in ("offsets", "commits"):
        for file in (topic.checkpoint / folder).iterdir():
            if file.name not in ("0", ".0.crc"):
                file.unlink()
    topic.run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
