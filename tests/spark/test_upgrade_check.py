"""What the check says of a change, beside what Spark really does with it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from grid import one_in
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from typer.testing import CliRunner

import holdfast as hf
from holdfast import savepoints
from holdfast.cli import app
from holdfast.config.spark_defaults import FORMAT_KEY, MEMORY_PROVIDER, PROVIDER_KEY, ROCKSDB_PROVIDER
from holdfast.config.spark_versions import minor
from holdfast.engine.queries import dry_run
from holdfast.engine.queries.watch import failure_text
from holdfast.engine.session.workers import ship_by_value
from holdfast.model import Effect, Verdict
from holdfast.stream.keyed_upgrades import note_verdicts
from holdfast.stream.operator_check import defined_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.spark
ship_by_value(sys.modules[__name__])

SCHEMA = "customer string, shop string, amount long, ts timestamp"
Build = Callable[["SparkSession", Path], "DataFrame"]


def orders(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).json(str(folder / "in"))


def totals(spark: SparkSession, folder: Path) -> DataFrame:
    return orders(spark, folder).groupBy("customer").agg(F.sum("amount").alias("total"))


@dataclass(frozen=True)
class Case:
    """A change of `totals`, and what is to be said of it.

    Attributes:
        build: The new query.
        verdicts: The verdict on each state.
        error: What Spark says, or None where it starts.
        changes: Further changes: what, and what it does.
        migration: What `state migrate --code` needs as well; None where it does not fix the refusal.
    """

    build: Build
    verdicts: list[Verdict]
    error: str | None = None
    changes: frozenset[tuple[str, Effect]] = frozenset()
    migration: str | None = None


def key_added(spark: SparkSession, folder: Path) -> DataFrame:
    return orders(spark, folder).groupBy("customer", "shop").agg(F.sum("amount").alias("total"))


def aggregate_added(spark: SparkSession, folder: Path) -> DataFrame:
    return orders(spark, folder).groupBy("customer").agg(F.sum("amount").alias("total"), F.count("*"))


def averaged(spark: SparkSession, folder: Path) -> DataFrame:
    return orders(spark, folder).groupBy("customer").agg(F.avg("amount").alias("total"))


def alias_renamed(spark: SparkSession, folder: Path) -> DataFrame:
    return orders(spark, folder).groupBy("customer").agg(F.sum("amount").alias("spent"))


def filtered(spark: SparkSession, folder: Path) -> DataFrame:
    return orders(spark, folder).where("amount > 0").groupBy("customer").agg(F.sum("amount").alias("total"))


def filtered_behind(spark: SparkSession, folder: Path) -> DataFrame:
    return totals(spark, folder).where("total > 10")


def other_key(spark: SparkSession, folder: Path) -> DataFrame:
    return orders(spark, folder).groupBy(F.col("shop").alias("customer")).agg(F.sum("amount").alias("total"))


def largest(spark: SparkSession, folder: Path) -> DataFrame:
    return orders(spark, folder).groupBy("customer").agg(F.max("amount").alias("total"))


def deduplicated(spark: SparkSession, folder: Path) -> DataFrame:
    return orders(spark, folder).dropDuplicates(["customer"])


def stateless(spark: SparkSession, folder: Path) -> DataFrame:
    return orders(spark, folder).select("customer")


def source_added(spark: SparkSession, folder: Path) -> DataFrame:
    other = spark.readStream.schema(SCHEMA).json(str(folder / "more"))
    return orders(spark, folder).union(other).groupBy("customer").agg(F.sum("amount").alias("total"))


def source_moved(spark: SparkSession, folder: Path) -> DataFrame:
    moved = spark.readStream.schema(SCHEMA).json(str(folder / "more"))
    return moved.groupBy("customer").agg(F.sum("amount").alias("total"))


CASES = {
    "nothing": Case(totals, [Verdict.MAP]),
    "a grouping key added": Case(
        key_added,
        [Verdict.INCOMPATIBLE],
        "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
        frozenset({("aggregation", Effect.FAILS)}),
        "give --initial shop=VALUE",
    ),
    "an aggregate added": Case(
        aggregate_added,
        [Verdict.INCOMPATIBLE],
        "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
        frozenset({("aggregation", Effect.FAILS)}),
        "give --initial 'count(1)=0'; new rows then update it",
    ),
    "sum to avg": Case(
        averaged,
        [Verdict.INCOMPATIBLE],
        "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
        frozenset({("aggregation", Effect.FAILS)}),
        "",
    ),
    "an alias renamed": Case(alias_renamed, [Verdict.MAP]),
    "a filter added": Case(filtered, [Verdict.REINTERPRET], None, frozenset({("filter", Effect.MEANING)})),
    "a filter behind": Case(filtered_behind, [Verdict.MAP], None, frozenset({("filter", Effect.OUTPUT)})),
    "another key of the same type": Case(
        other_key, [Verdict.REINTERPRET], None, frozenset({("aggregation", Effect.MEANING)})
    ),
    "another aggregate of the same type": Case(
        largest, [Verdict.REINTERPRET], None, frozenset({("aggregation", Effect.MEANING)})
    ),
    "an aggregation to a deduplication": Case(
        deduplicated,
        [Verdict.INCOMPATIBLE],
        "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
        frozenset({("aggregation", Effect.FAILS), ("deduplication", Effect.FAILS)}),
        "",
    ),
    "an aggregation to nothing": Case(
        stateless,
        [Verdict.INCOMPATIBLE],
        "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
        frozenset(
            {("aggregation", Effect.FAILS), ("columns", Effect.OUTPUT), ("output mode", Effect.OUTPUT)}
        ),
        "",
    ),
    "a source added": Case(
        source_added,
        [Verdict.REINTERPRET],
        "assertion failed: There are [1] sources in the checkpoint offsets",
        frozenset({("union", Effect.MEANING), ("source 1", Effect.MEANING), ("start", Effect.FAILS)}),
    ),
    "a source's path": Case(
        source_moved, [Verdict.MAP], "Wrong basePath", frozenset({("source 0, path", Effect.FAILS)})
    ),
}


def arrive(folder: Path, number: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "more").mkdir(exist_ok=True)
    rows = [
        {"customer": who, "shop": "s", "amount": 3, "ts": "2026-03-05T08:00:00Z"} for who in ("ann", "bob")
    ]
    (folder / "in" / f"{number}.json").write_text("\n".join(map(json.dumps, rows)) + "\n")


def writer_of(frame: DataFrame, mode: str = "update") -> DataStreamWriter:
    """A query into nothing, not started."""
    return frame.writeStream.outputMode(mode).format("noop").trigger(availableNow=True)


def run(frame: DataFrame, checkpoint: Path, mode: str = "update") -> str | None:
    """Run a query over what there is: the whole text of its error, or None."""
    query = hf.adopt(writer_of(frame, mode)).start(checkpoint=checkpoint.as_uri())
    try:
        query.awaitTermination()
    except StreamingQueryException:
        return failure_text(query)
    return None


@pytest.fixture(scope="module")
def saved(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a query that has run, and a savepoint of it."""
    folder = tmp_path_factory.mktemp("totals")
    arrive(folder, 0)
    assert run(totals(spark, folder), folder / "checkpoint") is None
    taken = savepoints.take(folder / "checkpoint", folder / "catalog")
    arrive(folder, 1)
    return folder, taken.uri


def files_below(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("change", one_in(3, list(CASES)))
def test_the_check_and_spark_agree(
    spark: SparkSession, saved: tuple[Path, str], tmp_path: Path, change: str
) -> None:
    folder, savepoint = saved
    case = CASES[change]
    frame = case.build(spark, folder)
    mode = "append" if change.endswith("nothing") and frame.columns == ["customer"] else "update"
    before = files_below(folder)
    found = hf.check(writer_of(frame, mode), against=savepoint)
    assert files_below(folder) == before
    assert [each.verdict for each in found.states] == case.verdicts
    assert {(each.what, each.effect) for each in found.changes} == case.changes, found.changes
    assert found.migration == case.migration
    savepoints.fork(savepoint, tmp_path / "fork")
    error = run(frame, tmp_path / "fork", mode)
    if case.error is None:
        assert error is None
        assert found.trial.spark_error is None
    else:
        assert error is not None
        assert case.error in error
        said = [found.trial.spark_error or "", *(each.why for each in found.changes)]
        assert any(case.error in each for each in said)
        assert found.exit_code == 2


def test_what_the_checkpoint_has_fixed_is_said_and_what_becomes_of_another_format(
    spark: SparkSession,
    saved: tuple[Path, str],
    tmp_path: Path,
    settings: Callable[[dict[str, str]], None],
) -> None:
    folder, savepoint = saved
    keeps_format = minor(spark.version) >= (4, 3)
    settings({"spark.sql.shuffle.partitions": "3", PROVIDER_KEY: MEMORY_PROVIDER, FORMAT_KEY: "1"})
    frame = totals(spark, folder)
    found = hf.check(writer_of(frame), against=savepoint)
    assert {(each.what, each.before, each.after, each.effect) for each in found.changes} == {
        ("setting spark.sql.shuffle.partitions", "2", "3", Effect.IGNORED),
        (f"setting {PROVIDER_KEY}", ROCKSDB_PROVIDER, MEMORY_PROVIDER, Effect.IGNORED),
        ("state-checkpoint format", "2", "1", Effect.IGNORED if keeps_format else Effect.FAILS),
    }
    savepoints.fork(savepoint, tmp_path / "fork")
    error = run(frame, tmp_path / "fork")
    if keeps_format:
        assert error is None
    else:
        assert error is not None
        assert next(each.why for each in found.changes if each.effect is Effect.FAILS).split(":")[0] in error
    # In the format that it has, the query goes on, with what the checkpoint has fixed.
    settings({FORMAT_KEY: "2"})
    assert hf.check(writer_of(frame), against=savepoint).verdict == "kept"
    savepoints.fork(savepoint, tmp_path / "again")
    assert run(frame, tmp_path / "again") is None


def by_hour(spark: SparkSession, folder: Path, delay: str) -> DataFrame:
    late = orders(spark, folder).withWatermark("ts", delay)
    return late.groupBy(F.window("ts", "1 hour")).count()


def test_another_delay_and_another_window(spark: SparkSession, tmp_path: Path) -> None:
    arrive(tmp_path, 0)
    assert run(by_hour(spark, tmp_path, "10 minutes"), tmp_path / "checkpoint") is None
    later = hf.check(writer_of(by_hour(spark, tmp_path, "2 hours")), against=tmp_path / "checkpoint")
    assert [each.verdict for each in later.states] == [Verdict.REINTERPRET]
    assert [(each.what, each.before, each.after, each.effect) for each in later.changes] == [
        ("watermark", "ts: timestamp, 10 minutes", "ts: timestamp, 2 hours", Effect.MEANING)
    ]
    assert later.exit_code == 1
    # A copy at an older batch is compared with the plan of its time, also after a start of other code.
    taken = savepoints.take(tmp_path / "checkpoint", tmp_path / "catalog")
    arrive(tmp_path, 1)
    assert run(by_hour(spark, tmp_path, "2 hours"), tmp_path / "checkpoint") is None
    assert hf.check(writer_of(by_hour(spark, tmp_path, "10 minutes")), against=taken.uri).verdict == "kept"
    now = hf.check(writer_of(by_hour(spark, tmp_path, "10 minutes")), against=tmp_path / "checkpoint")
    assert [each.what for each in now.changes] == ["watermark"]


def test_a_change_behind_an_operator_leaves_the_state_of_that_one_as_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The state of the deduplication was computed by the same code, that of the aggregation was not."""

    def first_of_each(amount: Column, condition: str = "true") -> DataFrame:
        frame = orders(spark, tmp_path).withWatermark("ts", "10 minutes").where(condition)
        return frame.dropDuplicatesWithinWatermark(["shop"]).groupBy("customer").agg(amount.alias("total"))

    arrive(tmp_path, 0)
    assert run(first_of_each(F.sum("amount")), tmp_path / "checkpoint") is None

    def found(frame: DataFrame) -> dict[str, Verdict]:
        report = hf.check(writer_of(frame), against=tmp_path / "checkpoint")
        return {each.operator_kind: each.verdict for each in report.states}

    assert found(first_of_each(F.max("amount"))) == {
        "aggregation": Verdict.REINTERPRET,
        "deduplication within watermark": Verdict.MAP,
    }
    assert set(found(first_of_each(F.sum("amount"), "amount > 0")).values()) == {Verdict.REINTERPRET}
    assert found(first_of_each(F.avg("amount"))) == {
        "aggregation": Verdict.INCOMPATIBLE,
        "deduplication within watermark": Verdict.MAP,
    }


def test_what_only_spark_ran_is_compared_with_the_old_code(spark: SparkSession, tmp_path: Path) -> None:
    arrive(tmp_path, 0)
    frame = orders(spark, tmp_path).select("customer")
    plain = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    plain.trigger(availableNow=True).start().awaitTermination()
    new = writer_of(totals(spark, tmp_path))
    blind = hf.check(new, against=tmp_path / "checkpoint")
    assert blind.compared_with is None
    assert len(blind.not_compared) == 1
    assert [(each.verdict, each.spark_error) for each in blind.states] == [
        (Verdict.INCOMPATIBLE, "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY")
    ]
    found = hf.check(new, against=tmp_path / "checkpoint", old=frame.writeStream.format("noop"))
    assert found.compared_with == "old code"
    assert ("aggregation", Effect.FAILS) in {(each.what, each.effect) for each in found.changes}
    arrive(tmp_path, 1)
    error = run(totals(spark, tmp_path), tmp_path / "checkpoint")
    assert error is not None
    assert "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY" in error


def both(spark: SparkSession, first: Path, second: Path) -> DataFrame:
    one, other = (spark.readStream.schema("customer string").json(str(each)) for each in (first, second))
    return one.union(other).groupBy("customer").count()


def test_sources_in_another_order_and_one_less(spark: SparkSession, tmp_path: Path) -> None:
    arrive(tmp_path, 0)
    here, there = tmp_path / "in", tmp_path / "more"
    assert run(both(spark, here, there), tmp_path / "checkpoint") is None
    found = hf.check(writer_of(both(spark, there, here)), against=tmp_path / "checkpoint")
    assert [(each.what, each.effect) for each in found.changes] == [("source order", Effect.MEANING)]
    one = spark.readStream.schema("customer string").json(str(here)).groupBy("customer").count()
    less = hf.check(writer_of(one), against=tmp_path / "checkpoint")
    assert less.exit_code == 2
    assert less.trial.spark_error is not None
    error = run(one, tmp_path / "checkpoint")
    assert error is not None
    assert less.trial.spark_error in error


def visits(spark: SparkSession, folder: Path, drop: list[str] | None = None, **states: Any) -> hf.Sink:
    def on_event(self: Any, event: Any, state: Any, ctx: Any) -> dict[str, Any]:
        state.same, state.wider, state.former = 1, 2, "three"
        if event.customer == "ann":
            state.gone.append("four")
        return {"customer": event.customer}

    processor: hf.Keyed = type("Visits", (hf.Keyed,), {**states, "on_event": on_event})()
    keyed = hf.keyed(orders(spark, folder), by="customer", key_groups=4)
    out = keyed.process(processor, output="customer string", name="visits", drop=drop or [])
    return hf.sink(out).parquet(folder / "out")


def test_the_states_of_a_keyed_operator_are_found_by_name(spark: SparkSession, tmp_path: Path) -> None:
    arrive(tmp_path, 0)
    first = visits(
        spark,
        tmp_path,
        same=hf.value("long"),
        wider=hf.value("int"),
        former=hf.value("string"),
        gone=hf.list("string"),
    )
    place = (tmp_path / "checkpoint").as_uri()
    first.start(checkpoint=place, trigger=hf.available_now()).awaitTermination()

    kept: dict[str, Any] = {
        "same": hf.value("long"),
        "wider": hf.value("long"),
        "name": hf.value("string", was="former"),
        "fresh": hf.map("string", "int"),
    }
    found = hf.check(visits(spark, tmp_path, drop=["gone"], **kept), against=tmp_path / "checkpoint")
    assert {(each.operator, each.state): (each.verdict, each.keys) for each in found.states} == {
        ("visits", "same"): (Verdict.MAP, 2),
        ("visits", "wider"): (Verdict.MIGRATE, 2),
        ("visits", "former"): (Verdict.MIGRATE, 2),
        ("visits", "gone"): (Verdict.DROP, 1),
        ("visits", "fresh"): (Verdict.NEW, None),
    }
    assert found.exit_code == 1

    refused = visits(spark, tmp_path, **{**kept, "same": hf.value("int")})
    assert refused.frame is not None
    note = json.loads((tmp_path / "checkpoint" / "_holdfast" / "operator-visits.json").read_text())
    lost = note_verdicts(defined_in(refused.frame)[0], note)
    assert {each.state for each in lost if each.verdict is Verdict.INCOMPATIBLE} == {"same", "gone"}
    with pytest.raises(hf.Invalid):
        refused.start(checkpoint=place, trigger=hf.available_now())


def twice(spark: SparkSession, folder: Path, names: tuple[str, str]) -> hf.Sink:
    frame = orders(spark, folder)
    for name in names:

        def on_event(self: Any, event: Any, state: Any, ctx: Any) -> dict[str, Any]:
            state.seen += 1
            return {"customer": event.customer}

        processor: hf.Keyed = type(
            "Seen", (hf.Keyed,), {"seen": hf.value("int", default=0), "on_event": on_event}
        )()
        keyed = hf.keyed(frame, by="customer", key_groups=2)
        frame = keyed.process(processor, output="customer string", name=name)
    return hf.sink(frame).parquet(folder / "out")


def test_keyed_operators_that_changed_places_are_seen(spark: SparkSession, tmp_path: Path) -> None:
    arrive(tmp_path, 0)
    place = (tmp_path / "checkpoint").as_uri()
    query = twice(spark, tmp_path, ("one", "two")).start(checkpoint=place, trigger=hf.available_now())
    query.awaitTermination()
    found = hf.check(twice(spark, tmp_path, ("two", "one")), against=tmp_path / "checkpoint")
    assert {(each.operator, each.verdict) for each in found.states} == {
        ("one", Verdict.INCOMPATIBLE),
        ("two", Verdict.INCOMPATIBLE),
    }
    with pytest.raises(hf.Invalid, match="keyed operators have changed places"):
        twice(spark, tmp_path, ("two", "one")).start(checkpoint=place, trigger=hf.available_now())


class Totals(StatefulProcessor):
    """A plain processor of Spark's with states of these names and types."""

    def __init__(self, **states: str) -> None:
        self.states = states

    def init(self, handle: Any) -> None:
        self.handles = [handle.getValueState(name, type_) for name, type_ in self.states.items()]

    def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Any:  # noqa: N802 - Spark's name
        for handle in self.handles:
            handle.update((len(list(rows)),))
        yield Row(customer=key[0])


def raw(spark: SparkSession, folder: Path, **states: str) -> DataFrame:
    grouped = orders(spark, folder).groupBy("customer")
    return grouped.transformWithState(Totals(**states), "customer string", "Update", "None")


def test_the_variables_of_transform_with_state(spark: SparkSession, tmp_path: Path) -> None:
    arrive(tmp_path, 0)
    assert run(raw(spark, tmp_path, a="c int", b="c int", same="c int"), tmp_path / "checkpoint") is None
    arrive(tmp_path, 1)
    other = raw(spark, tmp_path, a="c long", n="c int", same="c int")
    found = hf.check(writer_of(other), against=tmp_path / "checkpoint")
    assert {each.state: (each.verdict, each.spark_error) for each in found.states} == {
        "a": (Verdict.INCOMPATIBLE, "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"),
        "b": (Verdict.DROP, None),
        "n": (Verdict.NEW, None),
        "same": (Verdict.MAP, None),
    }
    savepoints.fork(savepoints.take(tmp_path / "checkpoint", tmp_path / "catalog").uri, tmp_path / "fork")
    error = run(other, tmp_path / "fork")
    assert error is not None
    assert "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE" in error
    # Without the type that changed, Spark drops one variable and begins another without a word.
    assert run(raw(spark, tmp_path, a="c int", n="c int", same="c int"), tmp_path / "checkpoint") is None


JOB = """
import holdfast as hf
from pyspark.sql import functions as F

@hf.job(name="totals", checkpoint={checkpoint!r})
def totals(spark):
    orders = spark.readStream.schema({schema!r}).json({inputs!r})
    totals = orders{filter}.groupBy("customer").agg(F.sum("amount").alias("total"))
    return hf.sink(totals, mode="update").console()
"""
SCRIPT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rates = spark.readStream.format("rate").load()
rates.writeStream.format("noop").option("checkpointLocation", {checkpoint!r}).start()
"""


def test_the_verb_says_it_with_its_exit_code(
    spark: SparkSession, saved: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, savepoint = saved
    facts = {"checkpoint": str(tmp_path / "c"), "schema": SCHEMA, "inputs": str(folder / "in")}
    (tmp_path / "job.py").write_text(JOB.format(**facts, filter=""))
    (tmp_path / "filtered.py").write_text(JOB.format(**facts, filter='.where("amount > 0")'))
    (tmp_path / "script.py").write_text(SCRIPT.format(**facts))
    home = ["--home", str(tmp_path / "home")]

    def check(*arguments: str) -> tuple[int, dict[str, Any]]:
        monkeypatch.setattr(sys, "argv", ["holdfast", "check", "--json"])
        done = CliRunner().invoke(app, ["check", *arguments, "--against", savepoint, "--json", *home])
        return done.exit_code, json.loads(done.stdout)

    code, kept = check(str(tmp_path / "job.py"), "--conf", f"{FORMAT_KEY}=2")
    assert (code, kept["verdict"]) == (0, "kept"), kept
    assert [(each["state"], each["verdict"]) for each in kept["states"]] == [("default", "MAP")]
    # The sink is another one, which is said and is no loss.
    assert {each["what"] for each in kept["changes"]} >= {"sink"}
    code, changed = check(f"{tmp_path}/filtered.py:totals", "--conf", f"{FORMAT_KEY}=2")
    assert (code, changed["verdict"]) == (1, "loses")
    # What fixes a refusal is in the answer, and works.
    (tmp_path / "averaged.py").write_text(JOB.format(**facts, filter="").replace("F.sum", "F.avg"))
    code, refused = check(str(tmp_path / "averaged.py"))
    assert (code, refused["verdict"], refused["migration"]) == (2, "fails", "")
    words = shlex.split(refused["next"])
    assert words[:3] == ["holdfast", "state", "migrate"]
    done = CliRunner().invoke(app, [*words[1:], "--json", *home])
    assert done.exit_code == 0, done.output
    # A script would have run on its real source: it is stopped before it does.
    code, refused = check(str(tmp_path / "script.py"))
    assert (code, refused["kind"]) == (2, "invalid")
    assert "verdict" not in refused
    assert not (tmp_path / "c").exists()
    assert not [query.name for query in spark.streams.active]


def test_a_stream_that_cannot_be_put_aside_is_judged_by_its_plan(
    spark: SparkSession, saved: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, savepoint = saved
    monkeypatch.setattr(dry_run, "RELATIONS", ())
    same = hf.check(writer_of(totals(spark, folder)), against=savepoint)
    assert [each.verdict for each in same.states] == [Verdict.MAP]
    assert not same.trial.ran
    assert same.not_compared == (f"the next batch in Spark, which could not be tried: {same.trial.message}",)
    other = hf.check(writer_of(key_added(spark, folder)), against=savepoint)
    assert [each.verdict for each in other.states] == [Verdict.INCOMPATIBLE]


def test_one_of_several_queries_of_a_job(spark: SparkSession, tmp_path: Path) -> None:
    arrive(tmp_path, 0)

    @hf.job(name="two", checkpoint=str(tmp_path / "checkpoints"), conf={FORMAT_KEY: "2"})
    def two(spark: SparkSession) -> list[hf.Sink]:
        return [
            hf.sink(totals(spark, tmp_path), name="totals", mode="update").console(),
            hf.sink(orders(spark, tmp_path).select("customer"), name="names").console(),
        ]

    place = (tmp_path / "checkpoints" / "totals").as_uri()
    query = hf.adopt(writer_of(totals(spark, tmp_path))).start(checkpoint=place)
    query.awaitTermination()
    found = hf.check(two, against=tmp_path / "checkpoints", query="totals", spark=spark)
    assert (found.query, found.verdict) == ("totals", "kept")
    with pytest.raises(hf.Invalid, match="several queries"):
        hf.check(two, against=tmp_path / "checkpoints" / "totals", spark=spark)
    with pytest.raises(hf.NotFound, match="unknown query"):
        hf.check(two, against=tmp_path / "checkpoints" / "totals", query="nobody", spark=spark)
