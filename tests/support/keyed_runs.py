"""Run a keyed operator over files in Spark, batch by batch, and read what Spark says of each batch."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from keyed_programs import OPS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
START = 1_700_000_000_000

# One checkpoint, or those of a query that has moved on, the oldest first.
Checkpoints = Path | Sequence[Path]


def program(seed: int, batches: int, events: int) -> list[list[dict[str, Any]]]:
    """A random program of `Everything`, whose event times move on and are sometimes late."""
    chance = random.Random(seed)
    ops = (*OPS, "add", "add", "read", "read", "read")
    made = [
        [
            {
                "who": chance.choice(["ann", "bob", "cyd", "dan", None]),
                "op": chance.choice(ops),
                "n": chance.randrange(12),
                "ts": START + number * 7_000 + chance.randrange(-9_000, 9_000, 500),
            }
            for _ in range(events)
        ]
        for number in range(batches)
    ]
    # A timer on the wall clock is due at once: with which batch a later one fires depends on how fast
    # batches follow one another, and on which groups have events in them.
    return [[{**each, "n": 0} if each["op"] == "clock" else each for each in batch] for batch in made]


def write_batch(folder: Path, number: int, events: Sequence[dict[str, Any]]) -> None:
    """A batch as a file that appears whole; times in epoch milliseconds become ISO text."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for event in events:
        moment = EPOCH + dt.timedelta(milliseconds=event["ts"])
        lines.append(json.dumps({**event, "ts": moment.isoformat()}) + "\n")
    beside = folder / f".{number:05}"
    beside.write_text("".join(lines), encoding="utf-8")
    # Spark reads files in the order of their times.
    os.utime(beside, (START // 1000 + number,) * 2)
    beside.rename(folder / f"{number:05}.json")


def ship() -> None:
    """Let Spark's workers have the processors of `keyed_programs`, which they cannot import."""
    import keyed_programs

    from holdfast.engine.session.workers import ship_by_value

    ship_by_value(keyed_programs)


def read_stream(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    """A file a batch, in the order of their names."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))


def run(
    frame: DataFrame, checkpoint: Path, mode: Literal["append", "update"] = "update"
) -> list[tuple[int, dict[str, Any]]]:
    """Run what there is to its end and return each row with the number of its batch."""
    rows: list[tuple[int, dict[str, Any]]] = []

    def take(batch: DataFrame, batch_id: int) -> None:
        rows.extend((batch_id, row.asDict(recursive=True)) for row in batch.collect())

    query = (
        frame.writeStream.outputMode(mode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(take)
        .start()
    )
    query.awaitTermination()
    return rows


def offset_logs(checkpoints: Checkpoints) -> list[Path]:
    """The files of Spark's offset log in the order of the batches.

    A query that has moved on from one checkpoint to another has its older batches in the first.
    """
    each_of = [checkpoints] if isinstance(checkpoints, Path) else checkpoints
    by_batch = {
        int(path.name): path for checkpoint in each_of for path in (checkpoint / "offsets").glob("[0-9]*")
    }
    return [path for _, path in sorted(by_batch.items())]


def clocks(checkpoints: Checkpoints) -> list[tuple[int, int, int]]:
    """Per batch, from Spark's offset log: the processing time, the watermark, and the files read so far."""
    found = []
    for path in offset_logs(checkpoints):
        _, facts, source, *_ = path.read_text(encoding="utf-8").splitlines()
        fields = json.loads(facts)
        read = json.loads(source)["logOffset"] + 1
        found.append((fields["batchTimestampMs"], fields["batchWatermarkMs"], read))
    return found


def batches_read(
    checkpoints: Checkpoints, files: Sequence[list[dict[str, Any]]]
) -> list[tuple[int, int, list[dict[str, Any]]]]:
    """Per batch that Spark ran: the processing time, the watermark, and the events of its files."""
    before = 0
    found = []
    for now, watermark, read in clocks(checkpoints):
        found.append((now, watermark, [event for file in files[before:read] for event in file]))
        before = read
    return found


def expected(
    checkpoints: Checkpoints,
    batches: Sequence[list[dict[str, Any]]],
    answer: Callable[[int, int | None, list[dict[str, Any]]], dict[str | None, list[Any]]],
) -> dict[int, dict[str | None, list[Any]]]:
    """What a model answers to the batches that Spark ran, by batch number."""
    read = batches_read(checkpoints, batches)
    return {number: answer(now, watermark, events) for number, (now, watermark, events) in enumerate(read)}


def by_batch_and_key(rows: Sequence[tuple[int, dict[str, Any]]]) -> dict[int, dict[str | None, list[Any]]]:
    """Rows as `expected` gives them."""
    found: dict[int, dict[str | None, list[Any]]] = {}
    for batch_id, row in rows:
        found.setdefault(batch_id, {}).setdefault(row["who"], []).append(tuple(row.values()))
    return found
