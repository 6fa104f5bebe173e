"""Queries run beside themselves: the same input twice, and what differs is what the code does differently."""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody gives it

import holdfast as hf
from holdfast import savepoints
from holdfast.checkpoints import read
from holdfast.engine.described import sources_in
from holdfast.errors import Unsupported
from holdfast.jobs.trials.comparison import Outputs, compare_outputs
from holdfast.jobs.trials.state_diff import FinalStates, compare_states
from holdfast.storage.local import LocalStorage
from holdfast.stream.trials import QueryFailed, Trial, check_sources, chosen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "who string, amount long, ts timestamp"
START = datetime(2026, 3, 5, 8, tzinfo=timezone.utc)
BEFORE, FILES, ROWS = 2, 5, 5


@dataclass(frozen=True)
class Event:
    """A row of the input."""

    who: str
    amount: int
    minute: int


def events(number: int) -> list[Event]:
    """A file of the input: each is two minutes later."""
    return [Event(f"c{(number + each) % 4}", number * 10 + each, number * 2) for each in range(ROWS)]


def deliver(inputs: Path, numbers: range) -> None:
    inputs.mkdir(exist_ok=True)
    for number in numbers:
        rows = [
            {
                "who": each.who,
                "amount": each.amount,
                "ts": (START + timedelta(minutes=each.minute)).isoformat(),
            }
            for each in events(number)
        ]
        file = inputs / f"{number}.json"
        file.write_text("\n".join(map(json.dumps, rows)))
        # Spark takes files by their times, which may be the same for files of one moment.
        written = START.timestamp() + number
        os.utime(file, (written, written))


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    """The input of a folder as a stream, a file a batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").json(str(folder / "in"))


@pytest.fixture
def arrivals(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream of the first files."""
    deliver(tmp_path / "in", range(BEFORE))
    return stream(spark, tmp_path)


@dataclass(frozen=True)
class Original:
    """What the original code did from a savepoint on."""

    spark: SparkSession
    folder: Path
    mode: str
    savepoint: str
    batches: tuple[int, ...]

    def against(self, name: str, new: Query) -> tuple[Outputs, FinalStates]:
        """Run new code over the same input and compare."""
        savepoints.fork(self.savepoint, self.folder / name)
        trial = Trial(new(self), self.mode, str(self.folder / name), str(self.folder / f"{name}-out"))
        ran = tuple(each.batch_id for each in trial.repeat(self.storage("original")))
        assert ran == self.batches
        assert read(self.folder / name).batch_id == self.batches[-1]
        outputs = compare_outputs(self.storage("original-out"), self.storage(f"{name}-out"), ran, 3)
        return outputs, compare_states(self.storage("original"), self.storage(name), ran[-1], 3)

    def storage(self, name: str) -> LocalStorage:
        return LocalStorage(self.folder / name)

    def read(self) -> DataFrame:
        return stream(self.spark, self.folder)


Query = Callable[[Original], "DataFrame"]


@pytest.fixture(scope="module")
def original(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Query, str], Original]:
    """Run original code: some batches, a savepoint, and the batches behind it; each code once."""

    @functools.cache
    def run(query: Query, mode: str) -> Original:
        folder = tmp_path_factory.mktemp("original")
        deliver(folder / "in", range(BEFORE))
        one = Original(spark, folder, mode, "", ())
        Trial(query(one), mode, str(folder / "checkpoint"), None).run(20)
        saved = savepoints.take(folder / "checkpoint", folder / "catalog")
        deliver(folder / "in", range(BEFORE, FILES))
        savepoints.fork(saved.uri, folder / "original")
        ran = Trial(query(one), mode, str(folder / "original"), str(folder / "original-out")).run(20)
        batches = tuple(each.batch_id for each in ran)
        assert batches[0] == saved.manifest.batch_id + 1
        return Original(spark, folder, mode, saved.uri, batches)

    return run


def totals(one: Original) -> DataFrame:
    return summed(one.read())


def largest(one: Original) -> DataFrame:
    return one.read().groupBy("who").agg(F.max("amount").alias("amount"))


def windows(one: Original, keep: str = "true", delay: str = "1 minute") -> DataFrame:
    marked = one.read().where(keep).withWatermark("ts", delay)
    return marked.groupBy(F.window("ts", "2 minutes"), "who").agg(F.sum("amount").alias("amount"))


def joined(one: Original) -> DataFrame:
    left = one.read().withWatermark("ts", "1 minute")
    right = one.read().select(F.col("who").alias("other"), F.col("ts").alias("at"))
    near = F.expr("who = other and at between ts - interval 2 minutes and ts")
    return left.join(right.withWatermark("at", "1 minute"), near).select("who", "amount", "at")


@pytest.mark.parametrize(
    ("query", "mode"),
    [(totals, "update"), (windows, "append"), (joined, "append")],
    ids=["totals", "windows", "join"],
)
def test_the_same_code_gives_the_same(
    original: Callable[[Query, str], Original], query: Query, mode: str
) -> None:
    outputs, states = original(query, mode).against("same", query)
    assert outputs.equal
    assert states.equal
    # It compared something: every batch ran, and rows came out.
    assert len(outputs.batches) >= FILES - BEFORE
    assert outputs.new_rows > 0
    assert sum(each.second_rows for each in states.states) > 0


def test_another_aggregate_is_found_with_its_rows(original: Callable[[Query, str], Original]) -> None:
    outputs, states = original(totals, "update").against("largest", largest)
    sums = Counter({each.who: 0 for each in events(0)})
    for each in (each for number in range(BEFORE) for each in events(number)):
        sums[each.who] += each.amount
    most = Counter(sums)  # what was summed up is what the new code takes for the largest so far
    for batch, number in zip(outputs.batches, range(BEFORE, FILES), strict=True):
        for each in events(number):
            sums[each.who] += each.amount
            most[each.who] = max(most[each.who], each.amount)
        touched = {each.who for each in events(number)}
        different = {who for who in touched if sums[who] != most[who]}
        assert different
        assert (batch.original_rows, batch.new_rows) == (len(touched), len(touched))
        assert (batch.missing, batch.extra) == (len(different), len(different))
        if number == BEFORE:
            shown = {(sample.row["who"], sample.row["amount"]) for sample in outputs.missing}
            assert len(shown) == 3
            assert shown <= {(who, sums[who]) for who in different}
            shown = {(sample.row["who"], sample.row["amount"]) for sample in outputs.extra}
            assert len(shown) == 3
            assert shown <= {(who, most[who]) for who in different}
    assert not outputs.equal
    assert not outputs.same_rows
    (state,) = states.states
    assert (state.first_rows, state.second_rows, state.added, state.removed) == (4, 4, 0, 0)
    final = {who for who in sums if sums[who] != most[who]}
    assert state.changed == len(final)
    assert len(state.samples) == 3
    for sample in state.samples:
        who = sample.key["who"]
        assert (list(sample.first.values()), list(sample.second.values())) == ([sums[who]], [most[who]])
    assert states.reshaped == ()


def test_a_filter_upstream_is_found(original: Callable[[Query, str], Original]) -> None:
    outputs, states = original(windows, "append").against(
        "filtered", lambda one: windows(one, keep=f"amount <> {BEFORE * 10}")
    )
    # The filter takes one event of the first new file; its window has no other of the same customer.
    (gone,) = [each for each in events(BEFORE) if each.amount == BEFORE * 10]
    twice = [each for each in events(BEFORE) if each.who == gone.who]
    assert outputs.missing_rows == 1
    (sample,) = outputs.missing
    assert (sample.row["who"], sample.row["amount"]) == (gone.who, sum(each.amount for each in twice))
    assert outputs.extra_rows == (1 if len(twice) > 1 else 0)
    # Its window is over by the end, and what has been put out is kept no longer.
    assert states.equal


@pytest.mark.parametrize("source", ["rate", "rate-micro-batch"])
def test_generated_rows_are_the_same_for_both(spark: SparkSession, tmp_path: Path, source: str) -> None:
    options = {"rowsPerSecond": 1000} if source == "rate" else {"rowsPerBatch": 30}

    def generated(kept: str = "true") -> DataFrame:
        rows = spark.readStream.format(source).options(numPartitions=2, **options).load()
        by = F.concat(F.lit("c"), F.col("value") % 3).alias("who")
        return (
            rows.where(kept).groupBy(by).agg(F.sum("value").alias("amount"), F.max("timestamp").alias("at"))
        )

    def ran(name: str) -> list[int]:
        """Run until there was input: one of the sources gives some when a second is over."""
        trial = Trial(generated(), "update", str(tmp_path / name), str(tmp_path / f"{name}-out"))
        found = list(trial.run(1))
        while not sum(each.input_rows for each in found):
            found += trial.run(1)
        return [each.batch_id for each in found]

    ran("checkpoint")
    saved = savepoints.take(tmp_path / "checkpoint", tmp_path / "catalog").uri
    savepoints.fork(saved, tmp_path / "original")
    batches = ran("original")
    one = Original(spark, tmp_path, "update", saved, tuple(batches))
    verdicts = []
    codes: dict[str, Query] = {"same": lambda _: generated(), "other": lambda _: generated("value % 3 <> 1")}
    for name, code in codes.items():
        outputs, states = one.against(name, code)
        verdicts.append((outputs.equal, states.equal))
        assert outputs.original_rows > 0
    assert verdicts == [(True, True), (False, False)]


def summed(rows: DataFrame) -> DataFrame:
    return rows.groupBy("who").agg(F.sum("amount").alias("amount"))


def test_no_more_batches_run_than_were_asked_for(arrivals: DataFrame, tmp_path: Path) -> None:
    deliver(tmp_path / "in", range(FILES))
    ran = Trial(summed(arrivals), "update", str(tmp_path / "checkpoint"), str(tmp_path / "out")).run(3)
    assert [each.batch_id for each in ran] == [0, 1, 2]
    assert [each.input_rows for each in ran] == [ROWS] * 3
    assert read(tmp_path / "checkpoint").batch_id == 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0", "1", "2"]


def test_a_batch_without_input_loads_and_commits_the_state(arrivals: DataFrame, tmp_path: Path) -> None:
    trial = Trial(summed(arrivals), "update", str(tmp_path / "checkpoint"), None)
    trial.run(20)
    ran = trial.run_empty(1)
    assert (ran.batch_id, ran.input_rows) == (BEFORE, 0)
    assert ran.load_ms is not None
    assert read(tmp_path / "checkpoint").batch_id == BEFORE
    # The input that comes afterwards is read once, as ever.
    deliver(tmp_path / "in", range(BEFORE, BEFORE + 1))
    assert [each.input_rows for each in trial.run(20)] == [ROWS]


def test_a_query_that_fails_says_all_that_spark_says(arrivals: DataFrame, tmp_path: Path) -> None:
    Trial(summed(arrivals), "update", str(tmp_path / "checkpoint"), None).run(20)
    deliver(tmp_path / "in", range(FILES))
    wider = arrivals.groupBy("who", "amount").count()
    with pytest.raises(QueryFailed, match="STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"):
        Trial(wider, "update", str(tmp_path / "checkpoint"), None).run(20)


def test_a_sink_is_put_aside_and_its_mode_kept(arrivals: DataFrame, tmp_path: Path) -> None:
    plain = arrivals.writeStream.partitionBy("who").format("parquet").option("path", str(tmp_path / "table"))
    for sink in (
        hf.adopt(plain, name="plain"),
        hf.sink(arrivals, name="ledger").append("table", f"sqlite:///{tmp_path}/ledger.db"),
    ):
        trial = Trial.of(sink, str(tmp_path / f"{sink.name}-checkpoint"), str(tmp_path / "out"))
        assert [each.batch_id for each in trial.run(20)] == [0, 1]
    assert not (tmp_path / "table").exists()
    assert not (tmp_path / "ledger.db").exists()
    whole = hf.adopt(summed(arrivals).writeStream.outputMode("complete").format("console"))
    trial = Trial.of(whole, str(tmp_path / "whole-checkpoint"), None)
    assert [each.input_rows for each in trial.run(20)] == [ROWS] * BEFORE


def test_the_sink_of_a_savepoint_is_told_by_its_checkpoint(arrivals: DataFrame) -> None:
    sinks = [hf.sink(arrivals, name=name).console() for name in ("first", "second")]
    assert chosen(sinks, None, "file:///jobs/shop/second") is sinks[1]
    assert chosen(sinks, "first", "file:///jobs/shop/second") is sinks[0]
    assert chosen(sinks[:1], None, "file:///anywhere") is sinks[0]
    with pytest.raises(hf.Invalid, match="cannot determine which"):
        chosen(sinks, None, "file:///jobs/shop")


def test_sources_are_told_and_those_that_give_once_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    files = spark.readStream.schema("who string").option("cleanSource", "DELETE").json(str(tmp_path / "in"))
    rate = spark.readStream.format("rate").option("rowsPerSecond", "3").load()
    both_read = sources_in(files.crossJoin(rate).join(spark.range(3), F.col("id") == F.col("value")))
    assert [each.kind for each in both_read] == ["files", "rate"]
    assert both_read[0].options["cleansource"] == "DELETE"
    assert both_read[1].options == {"rowspersecond": "3"}
    with pytest.raises(Unsupported, match="delete or move the files"):
        check_sources(both_read)
    socket = spark.readStream.format("socket").option("host", "localhost").option("port", "1").load()
    with pytest.raises(Unsupported, match="cannot read this source a second time"):
        check_sources(sources_in(socket))
