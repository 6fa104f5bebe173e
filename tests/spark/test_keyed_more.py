"""Keyed state in Spark: keys and types of all sorts, errors, timers on the wall clock, changed processors."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from keyed_programs import EVENTS, OUTPUT, Everything, Model
from keyed_runs import by_batch_and_key, expected, program, read_stream, run, ship, write_batch

import holdfast as hf
from holdfast.engine.session.workers import ship_by_value
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark
ship_by_value(sys.modules[__name__])
ship()

UTC = dt.timezone.utc
Rows = list[dict[str, Any]]


class Stage:
    """A stream of files, and queries that run to their end over one checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.sent: Counter[str] = Counter()
        self.query: StreamingQuery | None = None

    def send(self, *rows: dict[str, Any], into: str = "in") -> None:
        """Rows of the next batch."""
        place = self.folder / into
        place.mkdir(exist_ok=True)
        lines = "".join(json.dumps(row, default=str) + "\n" for row in rows)
        beside = place / f".{self.sent[into]:05}"
        beside.write_text(lines, encoding="utf-8")
        # Spark reads files in the order of their times.
        os.utime(beside, (1_700_000_000 + self.sent[into],) * 2)
        beside.rename(place / f"{self.sent[into]:05}.json")
        self.sent[into] += 1

    def stream(self, schema: str, into: str = "in") -> DataFrame:
        (self.folder / into).mkdir(exist_ok=True)
        return read_stream(self.spark, self.folder / into, schema)

    def run(self, frame: DataFrame) -> Rows:
        """What there is to its end; the rows that were put out."""
        rows: Rows = []

        def take(batch: DataFrame, _: int) -> None:
            rows.extend(row.asDict(recursive=True) for row in batch.collect())

        self.query = (
            frame.writeStream.outputMode("update")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(take)
            .start()
        )
        self.query.awaitTermination()
        return rows

    def fails(self, frame: DataFrame) -> str:
        """The words with which a run ends."""
        from pyspark.errors import StreamingQueryException

        with pytest.raises(StreamingQueryException) as caught:
            self.run(frame)
        return str(caught.value)

    def counts(self, name: str) -> dict[str, int]:
        """The operator's metrics over all batches of the last run."""
        assert self.query is not None
        total: Counter[str] = Counter()
        for each in self.query.recentProgress:
            row = each.observedMetrics.get(f"holdfast.{name}")
            if row is not None:
                total.update({key: value or 0 for key, value in row.counts.items()})
        return dict(total)


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path) -> Stage:
    return Stage(spark, tmp_path)


# Keys


class Pairs(hf.Keyed):
    """Counts the events of two streams."""

    left = hf.value("long", default=0)
    right = hf.value("long", default=0)

    def on_one(self, event: Any, state: Any, ctx: Any) -> tuple[Any, ...]:
        state.left += 1
        return (*ctx.key, state.left, state.right)

    def on_two(self, event: Any, state: Any, ctx: Any) -> tuple[Any, ...]:
        state.right += 1
        return (*ctx.key, state.left, state.right)


def test_two_streams_share_compound_keys_with_nulls_nan_and_zeros(stage: Stage) -> None:
    keys: list[tuple[str | None, str | None]] = [
        ("a", "NaN"), ("a", "0.0"), ("a", "-0.0"), (None, None), ("", None), (None, "NaN"), ("ü", "1.5"),
        ("a", "NaN"), ("null", None),
    ]  # fmt: skip
    for turn in range(2):
        stage.send(*({"who": who, "x": x} for who, x in keys), into="one")
        stage.send(*({"name": who, "y": x, "more": turn} for who, x in keys), into="two")
    one = stage.stream("who string, x string", "one").selectExpr("who", "cast(x as double) as x")
    two = stage.stream("more int, name string, y string", "two")
    two = two.selectExpr("more", "cast(y as double) as y", "name")
    keyed = hf.keyed(one, by=["who", "x"], name="one").connect(two, by=["name", "y"], name="two")
    rows = stage.run(keyed.process(Pairs(), output="who string, x double, l long, r long", name="pairs"))
    last = {(row["who"], str(abs(row["x"])) if row["x"] is not None else None): row for row in rows}
    counts = Counter((who, "0.0" if x == "-0.0" else x and x.lower()) for who, x in keys)
    expected = {key: 2 * count for key, count in counts.items()}
    assert {key: row["r"] for key, row in last.items()} == expected
    assert {key: row["l"] for key, row in last.items()} == expected
    # In each batch the first stream comes before the second: half of its events are in by then.
    first = [row for row in rows if (row["who"], row["x"]) == ("ü", 1.5)]
    assert [(row["l"], row["r"]) for row in first] == [(1, 0), (1, 1), (2, 1), (2, 2)]


class Totals(hf.KeyedTable):
    """A count and a sum for each key."""

    n = hf.value("long", default=0)
    total = hf.reducing("long", hf.add)

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:
        state.n += state.counts()
        state.total.add(events["amount"])
        return state.table(n=state.n.get(), total=state.total.get())


class CombinedTotals(hf.KeyedTable):
    """The same, with events merged before they travel."""

    combined = "shop string, day date, n long, amount long"
    n = hf.value("long", default=0)
    total = hf.reducing("long", hf.add)

    def combine(self, events: pa.Table) -> pa.Table:
        merged = events.group_by(["shop", "day"]).aggregate([([], "count_all"), ("amount", "sum")])
        return merged.rename_columns(["shop", "day", "n", "amount"])

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:
        state.n += state.sums("n")
        state.total.add(events["amount"])
        return state.table(n=state.n.get(), total=state.total.get())


@pytest.mark.parametrize("processor", [Totals(), CombinedTotals()], ids=["plain", "combined"])
def test_tables_count_and_sum_as_a_plain_loop_does(stage: Stage, processor: hf.KeyedTable) -> None:
    chance = random.Random(5)
    counts: Counter[tuple[Any, Any]] = Counter()
    sums: Counter[tuple[Any, Any]] = Counter()
    for size in (25_000, 3, 500):  # the first is more than one batch of Arrow's, by Spark's default
        rows: list[dict[str, Any]] = [
            {
                "shop": chance.choice(["east", "west", None]),
                "day": chance.choice(["2024-02-29", "1969-12-31", None]),
                "amount": chance.randrange(-50, 100),
            }
            for _ in range(size)
        ]
        stage.send(*rows)
        for row in rows:
            counts[row["shop"], row["day"]] += 1
            sums[row["shop"], row["day"]] += row["amount"]
    keyed = hf.keyed(stage.stream("shop string, day date, amount long"), by=["shop", "day"])
    rows = stage.run(keyed.process(processor, output="shop string, day date, n long, total long", name="t"))
    last = {(row["shop"], row["day"] and str(row["day"])): row for row in rows}
    assert {key: row["n"] for key, row in last.items()} == counts
    assert {key: row["total"] for key, row in last.items()} == sums
    assert stage.counts("t")["keys"] >= len(counts)
    assert stage.counts("t")["events"] == 25_503 or processor.combined


# Types


TYPES = (
    "k string, ts timestamp, d date, price decimal(20,4), raw binary, place struct<city: string, zip: int>, "
    "tags array<string>, days map<string, date>, local timestamp_ntz, small byte, flag boolean, f float"
)


class Everywhere(hf.Keyed):
    """Puts out what the event before had, through state."""

    ts = hf.value("timestamp")
    d = hf.value("date")
    price = hf.value("decimal(20,4)")
    raw = hf.value("binary")
    place = hf.value("struct<city: string, zip: int>")
    tags = hf.value("array<string>")
    days = hf.map("string", "date")
    local = hf.list("timestamp_ntz")
    small = hf.value("byte")
    flag = hf.value("boolean")
    f = hf.value("float")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        plain = ("ts", "d", "price", "raw", "place", "tags", "small", "flag", "f")
        row = {name: getattr(state, name) for name in plain}
        row |= {"k": event.k, "days": dict(state.days.items())}
        yield {**row, "local": state.local[0] if state.local else None}
        for name in plain:
            setattr(state, name, event[name])
        state.days.update(event.days or {})
        state.local.set([event.local] if event.local else [])


@pytest.fixture
def tokyo(settings: Callable[[dict[str, str]], None]) -> str:
    """The session in another time zone than UTC."""
    settings({"spark.sql.session.timeZone": "Asia/Tokyo"})
    return "Asia/Tokyo"


def test_every_type_passes_through_events_state_and_output(stage: Stage, tokyo: str) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    values = {
        "ts": "1969-12-31T23:59:59.999999Z",
        "d": "0001-01-01",
        "price": "-1234567890123456.7891",
        "place": {"city": "Köln", "zip": None},
        "tags": ["a", None, ""],
        "days": {"leap": "2024-02-29", "none": None},
        "local": "9999-12-31T23:59:59.999999",
        "small": -128,
        "flag": False,
        "f": 0.1,
    }
    later: dict[str, Any] = {
        **dict.fromkeys(values),
        "ts": "9999-12-31T23:59:59.999Z",
        "tags": [],
        "days": {},
    }
    for each in (values, later, {}):
        stage.send({"k": "a", **each})
    read = TYPES.replace("raw binary, ", "")
    raw = F.when(F.col("small").isNotNull(), F.encode("k", "UTF-8"))
    events = stage.stream(read).withColumn("raw", raw)
    frame = hf.keyed(events, by="k").process(Everywhere(), output=TYPES, name="types")
    # Times leave as text in UTC: as values they would take the zone of this process.
    shown = frame.withColumn("ts", F.expr("unix_micros(ts)")).withColumn(
        "local", F.col("local").cast("string")
    )
    rows = stage.run(shown)
    nothing = dict.fromkeys(("ts", "d", "price", "raw", "place", "tags", "local", "small", "flag", "f"))
    assert rows[0] == {"k": "a", **nothing, "days": {}}
    assert rows[1] == {
        "k": "a",
        "ts": -1,
        "d": dt.date(1, 1, 1),
        "price": Decimal("-1234567890123456.7891"),
        "raw": bytearray(b"a"),
        "place": {"city": "Köln", "zip": None},
        "tags": ["a", None, ""],
        "days": {"leap": dt.date(2024, 2, 29), "none": None},
        "local": "9999-12-31 23:59:59.999999",
        "small": -128,
        "flag": False,
        "f": pytest.approx(0.1),
    }
    assert rows[2] == {
        "k": "a",
        **nothing,
        "ts": 253_402_300_799_999_000,
        "tags": [],
        "days": {"leap": dt.date(2024, 2, 29), "none": None},
    }


class Clocks(hf.Keyed):
    """Timers in event time, whenever that is."""

    seen = hf.value("timestamp")

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        state.seen = event.ts
        ctx.timer(event.ts, "at")

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> tuple[str, int, str]:
        return (ctx.key.k, timer.at_ms, state.seen.isoformat())


def test_times_before_1970_and_of_the_last_years_make_no_trouble(stage: Stage, tokyo: str) -> None:
    output = "k string, at long, seen string"
    frame = stage.stream("k string, ts timestamp").withWatermark("ts", "1 second")
    stage.send({"k": "old", "ts": "1950-01-01T00:00:00Z"}, {"k": "young", "ts": "2024-02-29T12:00:00Z"})
    stage.send({"k": "end", "ts": "9999-12-31T23:00:00Z"})
    stage.send({"k": "last", "ts": "9999-12-31T23:59:59Z"})
    rows = stage.run(hf.keyed(frame, by="k").process(Clocks(), output=output, name="clocks"))
    assert [(row["k"], row["at"], row["seen"]) for row in rows] == [
        ("old", -631_152_000_000, "1950-01-01T00:00:00+00:00"),
        ("young", 1_709_208_000_000, "2024-02-29T12:00:00+00:00"),
        ("end", 253_402_297_200_000, "9999-12-31T23:00:00+00:00"),
    ]


# Errors and side outputs


class Fragile(hf.Keyed):
    """Fails for events that say so, after it has changed the state."""

    n = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        state.n += 1
        if event.op == "raise":
            raise ValueError(f"no {event.op} today")  # the line of the error
        if event.op == "wrong":
            return {"k": event.k, "n": "many"}
        if event.op == "missing":
            return {"k": event.k}
        return {"k": event.k, "n": state.n}


FRAGILE = "k string, op string, ts timestamp"


def at(seconds: int) -> str:
    return f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}Z"


def test_late_and_failed_events_are_counted_and_put_out_at_the_side(stage: Stage) -> None:
    stage.send({"k": "a", "op": "x", "ts": at(100)}, {"k": "a", "op": "raise", "ts": at(101)})
    stage.send({"k": "a", "op": "late", "ts": at(50)}, {"k": "a", "op": "x", "ts": at(102)})
    events = stage.stream(FRAGILE).withWatermark("ts", "10 seconds")
    frame = hf.keyed(events, by="k").process(
        Fragile(), output="k string, n long", name="fragile", on_error="dead-letter", side_outputs=True
    )
    rows = stage.run(frame)
    own = [(row["k"], row["n"]) for row in rows if row["side"] is None]
    assert own == [("a", 1), ("a", 2)]
    sides = {row["side"]: row for row in rows if row["side"] is not None}
    assert sorted(sides) == ["failed", "late"]
    assert json.loads(sides["late"]["side_event"])["op"] == "late"
    assert sides["late"]["side_stream"] == sides["failed"]["side_stream"] == "event"
    assert json.loads(sides["failed"]["side_event"])["op"] == "raise"
    assert "ValueError: no raise today" in sides["failed"]["side_error"]
    counts = stage.counts("fragile")
    assert (counts["events"], counts["late"], counts["failed"]) == (4, 1, 1)
    assert counts["change_bytes"] > 0


def test_an_error_names_operator_key_batch_and_line_and_the_query_goes_on_once_mended(stage: Stage) -> None:
    frame = hf.keyed(stage.stream(FRAGILE), by="k").process(
        Fragile(), output="k string, n long", name="frail"
    )
    stage.send({"k": "a", "op": "x"}, {"k": "b", "op": "x"})
    assert len(stage.run(frame)) == 2
    stage.send({"k": "a", "op": "x"}, {"k": "b", "op": "raise"})
    line = next(
        number
        for number, text in enumerate(Path(__file__).read_text(encoding="utf-8").splitlines(), start=1)
        if text.endswith("# the line of the error")
    )
    text = stage.fails(frame)
    assert "Fragile.on_event failed: ValueError: no raise today" in text
    assert f"operator frail, key k='b', stream event, batch 1, at {__file__}:{line}" in text
    frame = hf.keyed(stage.stream(FRAGILE), by="k").process(
        Fragile(), output="k string, n long", name="frail", on_error="dead-letter"
    )
    assert [(row["k"], row["n"]) for row in stage.run(frame)] == [("a", 2)]
    stage.send({"k": "b", "op": "wrong"})
    text = stage.fails(frame)
    assert "output column n" in text
    assert "found 'many', which is str, expected long" in text


def test_what_cannot_work_is_refused_before_anything_runs(stage: Stage) -> None:
    events = stage.stream("k string, x double, tags array<string>, place struct<a: int>")
    output = "k string, n long"
    with pytest.raises(Invalid, match="has no column") as missing:
        hf.keyed(events, by="who")
    assert "who" in str(missing.value)
    for key in ("tags", "place"):
        with pytest.raises(Invalid, match="cannot be a key"):
            hf.keyed(events, by=["k", key])
    with pytest.raises(Invalid, match="has a different type"):
        hf.keyed(events, by="k", name="one").connect(stage.stream("k long"), by="k", name="two")
    with pytest.raises(Invalid, match="have the same name"):
        hf.keyed(events, by="k", name="one").connect(events, by="k", name="one")
    once = hf.keyed(events.selectExpr("k", "k as op"), by="k").process(Fragile(), output=output, name="same")
    again = hf.keyed(once, by="k")
    with pytest.raises(Invalid, match="operators of a query have the same name"):
        again.process(Fragile(), output=output, name="same")
    again.process(Fragile(), output=output, name="samesame")
    locked = Fragile()
    locked.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(Invalid, match="pickled for Spark's workers") as unsendable:
        again.process(locked, output=output, name="locked")
    assert "Fragile.lock" in str(unsendable.value)
    with pytest.raises(Invalid, match="needs a processor with timers"):
        again.process(Fragile(), output=output, name="ticking", ticks=True)
    with pytest.raises(Invalid, match="name of a side output column"):
        again.process(Fragile(), output="side string", name="sides", side_outputs=True)
    for wrong in ("", "1st", "two words"):
        with pytest.raises(Invalid, match="invalid operator name"):
            again.process(Fragile(), output=output, name=wrong)


# Timers in processing time


class Alarm(hf.Keyed):
    """Sets a timer on the wall clock for a moment that is over when anybody looks again."""

    n = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> tuple[str, int]:
        state.n += 1
        ctx.timer(ctx.now_ms + 1, name="soon")
        return ("set", state.n)

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> tuple[str, int]:
        assert ctx.now_ms >= timer.at_ms
        return (timer.name, state.n)


def test_a_timer_on_the_wall_clock_fires_without_events_and_every_run_ends(stage: Stage) -> None:
    def alarm() -> DataFrame:
        keyed = hf.keyed(stage.stream("k string"), by="k", key_groups=4)
        return keyed.process(Alarm(), output="what string, n long", name="alarm")

    stage.send({"k": "a"})
    found = [tuple(row.values()) for row in stage.run(alarm())]
    assert found == [("set", 1)]
    # Ticks come once a second; a run that sees none yet ends as well.
    for _ in range(100):
        found += [tuple(row.values()) for row in stage.run(alarm())]
        if len(found) > 1:
            break
    assert found == [("set", 1), ("soon", 1)]
    assert stage.counts("alarm")["events"] == 0


class Reminded(hf.Keyed):
    """Is woken by the wall clock, beside a stream with a watermark."""

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        if event.wake:
            ctx.timer(ctx.now_ms + 1, name="tidy", clock="processing")

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> tuple[str]:
        return (ctx.key.who,)


def test_a_timer_of_the_wall_clock_needs_no_event_of_its_key_beside_a_watermark(stage: Stage) -> None:
    def run() -> list[str]:
        events = stage.stream("who string, wake boolean, ts timestamp").withWatermark("ts", "1 minute")
        reminded = hf.keyed(events, by="who").process(Reminded(), output="who string", name="reminded")
        return sorted(row["who"] for row in stage.run(reminded))

    names = sorted(f"c{number}" for number in range(40))
    at = "2026-03-05T08:00:00Z"
    stage.send(*({"who": name, "wake": True, "ts": at} for name in names))
    first = run()
    stage.send({"who": "other", "wake": False, "ts": at})
    assert (
        sorted([*first, *run()]) == names
    )  # where Spark adds a batch of its own, some fire in the first run
    stage.send({"who": "other", "wake": False, "ts": at})
    assert run() == []


def test_spark_in_processing_time_runs_batches_without_end(stage: Stage) -> None:
    """Why `hf.keyed` never uses Spark's own mode "ProcessingTime"; it would take no part in availableNow."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Nothing(StatefulProcessor):
        def init(self, handle: Any) -> None:
            pass

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
            yield from rows

        def close(self) -> None:
            pass

    stage.send({"k": "a"})
    grouped = stage.stream("k string").groupBy("k")
    raw = grouped.transformWithState(Nothing(), "k string", "Update", "ProcessingTime")
    seen: list[int] = []
    enough = threading.Event()

    def count(batch: DataFrame, batch_id: int) -> None:
        seen.append(len(batch.collect()))
        if len(seen) >= 6:
            enough.set()

    query = (
        raw.writeStream.outputMode("update")
        .option("checkpointLocation", str(stage.folder / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(count)
        .start()
    )
    assert enough.wait(120)
    assert query.isActive
    query.stop()
    assert seen[:6] == [1, 0, 0, 0, 0, 0]


# Changed processors


def processor(**states: Any) -> hf.Keyed:
    """A processor that counts what it can, and puts out all its states as text."""

    class Changing(hf.Keyed):
        def on_event(self, event: Any, state: Any, ctx: Any) -> tuple[str, str]:
            for name in states:
                if name in ("visits", "count"):
                    setattr(state, name, getattr(state, name) + event.n)
                elif name == "place" and event.city:
                    state.place = {"city": event.city}
                elif name == "past":
                    state.past.append(event.n)
            shown = {n: list(state.past) if n == "past" else getattr(state, n) for n in states}
            return (event.k, json.dumps(shown, default=str))

    for name, state in states.items():
        setattr(Changing, name, state)
        state.__set_name__(Changing, name)
    return Changing()


def test_a_change_that_loses_or_misreads_is_refused_and_the_old_version_runs_on(stage: Stage) -> None:
    def changing(made: hf.Keyed, key_groups: int = 4, drop: Sequence[str] = ()) -> DataFrame:
        keyed = hf.keyed(stage.stream("k string, n long, city string"), by="k", key_groups=key_groups)
        return keyed.process(made, output="k string, read string", name="changing", drop=drop)

    def read(frame: DataFrame) -> dict[str, Any]:
        return {row["k"]: json.loads(row["read"]) for row in stage.run(frame)}

    def old() -> hf.Keyed:
        place = hf.value("struct<city: string>")
        return processor(count=hf.value("long", default=0), place=place, past=hf.list("int"))

    stage.send({"k": "a", "n": 1, "city": "Bonn"}, {"k": "b", "n": 2, "city": "Rome"})
    assert read(changing(old()))["a"] == {"count": 1, "place": ["Bonn"], "past": [1]}
    stage.send({"k": "a", "n": 3})
    place = hf.value("struct<city: string>")
    past = hf.list("int")
    refused = {
        "key_groups=4": changing(old(), key_groups=5),
        'was="count"': changing(processor(visits=hf.value("long", default=0), place=place, past=past)),
        "new type is narrower": changing(processor(count=hf.value("int", default=0), place=place, past=past)),
    }
    for words, frame in refused.items():
        text = stage.fails(frame)
        assert words in text
        assert "operator changing" in text or "state count" in text
    assert read(changing(old())) == {"a": {"count": 4, "place": ["Bonn"], "past": [1, 3]}}
    # Renamed, widened, with a field more; then without one of them.
    stage.send({"k": "a", "n": 10}, {"k": "b", "n": 10})
    new = processor(
        visits=hf.value("decimal(38,0)", default=Decimal(0), was="count"),
        place=hf.value("struct<city: string, land: string>", field_defaults={"land": "somewhere"}),
        past=hf.list("long"),
    )
    found = read(changing(new))
    assert found["a"] == {"visits": "14", "place": ["Bonn", "somewhere"], "past": [1, 3, 10]}
    assert found["b"] == {"visits": "12", "place": ["Rome", "somewhere"], "past": [2, 10]}
    stage.send({"k": "a", "n": 1})
    dropped = processor(past=hf.list("long"))
    assert read(changing(dropped, drop=["visits", "count", "place"])) == {"a": {"past": [1, 3, 10, 1]}}


# Much of it


class Hoarder(hf.Keyed):
    """Keeps a list of any length, and says how much memory it took at most."""

    seen = hf.list("long")

    def on_start(self, ctx: Any) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # so that the peak is this task's own

    def on_event(self, event: Any, state: Any, ctx: Any) -> tuple[str, int, int]:
        result = 0
        if event.op == "extend":
            state.seen.extend(range(event.n))
        elif event.op == "append":
            state.seen.append(event.n)
        else:
            result = sum(state.seen) + len(state.seen)
        lines = Path("/proc/self/status").read_text().splitlines()
        peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        return (event.op, result, peak // 1024)


def test_a_list_of_a_million_elements_is_appended_to_without_reading_and_read_within_bounds(
    stage: Stage,
) -> None:
    quarter, steps = 250_000, 4
    for _ in range(steps):
        stage.send({"op": "extend", "n": quarter})
    stage.send({"op": "append", "n": 7})
    stage.send({"op": "read"})
    keyed = hf.keyed(stage.stream("k string, op string, n long"), by="k", key_groups=1)
    rows = stage.run(keyed.process(Hoarder(), output="op string, result long, peak_mb long", name="hoarder"))
    peaks = {row["op"]: row["peak_mb"] for row in rows}
    total = steps * quarter * (quarter - 1) // 2 + 7 + steps * quarter + 1
    assert rows[-1]["result"] == total
    assert peaks["append"] < 256 + 128  # Python and Arrow have about the second part before any state
    assert peaks["read"] < 256 + 128
    # With less memory it is not read, but appended to all the same.
    little = hf.keyed(stage.stream("k string, op string, n long"), by="k", key_groups=1)
    frame = little.process(
        Hoarder(), output="op string, result long, peak_mb long", name="hoarder", memory="16m"
    )
    stage.send({"op": "append", "n": 7})
    assert len(stage.run(frame)) == 1
    stage.send({"op": "read"})
    text = stage.fails(frame)
    assert "does not fit in the worker's memory" in text
    assert "state seen" in text


def test_a_partition_that_is_worked_off_in_many_passes_answers_the_same(stage: Stage) -> None:
    batches = program(9, batches=5, events=60)
    for number, batch in enumerate(batches):
        write_batch(stage.folder / "in", number, batch)
    events = stage.stream(EVENTS).withWatermark("ts", "5 seconds")
    # A sixteenth of the memory is for packets, so that each group is a pass of its own.
    frame = hf.keyed(events, by="who", key_groups=12).process(
        Everything(), output=OUTPUT, name="everything", memory="24k"
    )
    rows = run(frame, stage.folder / "checkpoint")
    wanted = expected(stage.folder / "checkpoint", batches, Model().batch)
    assert by_batch_and_key(rows) == {number: each for number, each in wanted.items() if each}
