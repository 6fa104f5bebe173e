"""New code of a query goes on with the state of the old: every number is that of a model in plain Python."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from grid import WHOLE
from grid_runs import PARTITIONS_KEY, PROVIDERS
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from typer.testing import CliRunner

import holdfast as hf
from holdfast import checkpoints
from holdfast.cli import app
from holdfast.engine.session.workers import ship_by_value
from holdfast.errors import Invalid
from holdfast.jobs.loader import load_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("guards_wait_no_time")]
ship_by_value(sys.modules[__name__])

VERSION = "spark.sql.streaming.aggregation.stateFormatVersion"
# Spark looks at the checksum of every row that it reads.
LOOK = {"spark.sql.streaming.stateStore.rowChecksum.readVerificationRatio": "1"}
Event = dict[str, Any]


def events(start: int, count: int) -> list[Event]:
    """Orders of a few customers in a few shops: a third comes twice, and two of each serial number."""
    ids = [number - number % 3 // 2 for number in range(start, start + count)]
    return [order(order_id) for order_id in ids]


def order(order_id: int) -> Event:
    """Orders of one serial number are alike, so that it does not matter which of them is dropped."""
    serial = order_id // 2
    return {
        "id": order_id,
        "serial": serial,
        "customer": f"c{serial * 7 % 5}",
        "shop": f"s{serial * 5 % 3}",
        "amount": serial * 13 % 11 - 4,
        "at": f"2026-03-05T08:{serial % 60:02d}:00Z",
    }


def write(folder: Path, number: int, rows: Iterable[Event]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))


class Query:
    """A query over the same files in its old and its new form, with what it puts out."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.files = 0

    def source(self, amount: str = "int", customer: str = "customer") -> DataFrame:
        schema = f"id long, serial long, customer string, shop string, amount {amount}, at timestamp"
        read = self.spark.readStream.schema(schema).json(str(self.folder / "in"))
        return read.withColumnRenamed("customer", customer)

    def add(self, rows: Iterable[Event]) -> None:
        write(self.folder / "in", self.files, rows)
        self.files += 1

    def rows(self, frame: DataFrame, checkpoint: str, mode: str) -> list[Event]:
        """Every row that a run puts out."""
        found: list[Event] = []

        def take(batch: DataFrame, _: int) -> None:
            found.extend(row.asDict() for row in batch.collect())

        writer = frame.writeStream.foreachBatch(take).outputMode(mode)
        place = str(self.folder / checkpoint)
        writer.option("checkpointLocation", place).trigger(availableNow=True).start().awaitTermination()
        return found

    def run(self, frame: DataFrame, checkpoint: str, mode: str = "update") -> dict[tuple[Any, ...], Event]:
        """The last row of each key that a run puts out."""
        keys = [name for name in frame.columns if name in ("customer", "who", "shop", "id", "region")]
        rows = self.rows(frame, checkpoint, mode)
        return {tuple(row[key] for key in keys): row for row in rows}


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


PLACES = list(PROVIDERS) if WHOLE else ["rocksdb2"]
FORMS = ["2", "1"] if WHOLE else ["2"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
def test_many_changes_in_one_query(
    query: Query, settings: Callable[[dict[str, str]], None], place: str, form: str
) -> None:
    settings({**PROVIDERS[place], **LOOK, PARTITIONS_KEY: "2", VERSION: form})
    before, after = events(0, 30), events(27, 30)
    query.add(before)
    old = (
        query.source()
        .dropDuplicates(["id"])
        .groupBy("customer", "shop")
        .agg(
            F.count("*").alias("n"),
            F.sum("amount").alias("total"),
            F.max("amount").alias("largest"),
            F.avg("amount").alias("mean"),
        )
    )
    query.run(old, "old")
    # An operator is inserted, another moves; a key is renamed, another goes; aggregates go, come and widen.
    new = (
        query.source("long", customer="who")
        .dropDuplicates(["id"])
        .dropDuplicates(["serial"])
        .groupBy("who")
        .agg(
            F.max("amount").alias("largest"),
            F.min("amount").alias("smallest"),
            F.count("*").alias("orders"),
            F.count("shop").alias("seen"),
            F.sum("amount").alias("total"),
        )
    )
    wanted: dict[str, Any] = {
        "to": new.writeStream.outputMode("update"),
        "old": old.writeStream.outputMode("update"),
        "rename": {"customer": "who"},
        "initial": {"seen": 100},
    }
    # Form 2 is converted in tasks.
    master = "local[2]" if form == "2" else None
    with pytest.raises(Invalid, match="rows would get the same key") as refused:
        hf.evolve(query.folder / "old", query.folder / "new", **wanted, master=master, stopped=True)
    pairs = {(event["customer"], event["shop"]) for event in before}
    shared = len(pairs) - len({customer for customer, _ in pairs})
    assert f"{shared} rows with the key of another row after dropping shop" in str(refused.value.found)
    assert not (query.folder / "new").exists()
    plan = hf.plan_evolve(query.folder / "old", query.folder / "new", **wanted, merge=True)
    told = [(each.change, each.before, each.after) for each in plan.operators]
    assert told == [
        ("changed", "0 aggregate by (customer string, shop string)", "0 aggregate by (who string)"),
        ("inserted", None, "1 dedupe_1 by (serial long)"),
        ("kept", "1 dedupe by (id long)", "2 dedupe_2 by (id long)"),
    ]
    columns = {each.column: (each.change, each.initial) for each in plan.operators[0].columns}
    assert columns == {
        "who": ("renamed", None),
        "largest": ("widened", None),
        "smallest": ("new", "null"),
        "orders": ("renamed", None),
        "seen": ("new", "100"),
        "total": ("kept", None),
        "shop": ("dropped", None),
        "mean.sum": ("dropped", None),
        "mean.count": ("dropped", None),
    }
    made = hf.evolve(
        query.folder / "old", query.folder / "new", **wanted, merge=True, master=master, stopped=True
    )
    assert made.merged == shared
    assert checkpoints.verify(query.folder / "new").problems == ()

    query.add(after)
    put_out = query.run(new, "new")
    assert put_out == model(before, after)
    [aggregate, serials, ids] = checkpoints.read(query.folder / "new").operators
    assert [aggregate.partitions, serials.name, ids.name] == [2, "dedupe", "dedupe"]


def model(before: list[Event], after: list[Event]) -> dict[tuple[Any, ...], Event]:
    ids = {event["id"] for event in before}
    kept: dict[str, list[Event]] = {}
    for event in {event["id"]: event for event in reversed(before)}.values():
        kept.setdefault(event["customer"], []).append(event)
    serials: set[int] = set()
    new: dict[str, list[Event]] = {}
    for event in after:
        if event["id"] not in ids and event["serial"] not in serials:
            ids.add(event["id"])
            serials.add(event["serial"])
            new.setdefault(event["customer"], []).append(event)
    return {
        (who,): {
            "who": who,
            "largest": max(event["amount"] for event in [*kept.get(who, []), *came]),
            "smallest": min(event["amount"] for event in came),
            "orders": len(kept.get(who, [])) + len(came),
            "seen": (100 if who in kept else 0) + len(came),
            "total": sum(event["amount"] for event in [*kept.get(who, []), *came]),
        }
        for who, came in new.items()
    }


JOB = """
import json
import holdfast as hf
from pyspark.sql import functions as F

def take(batch, batch_id):
    with open("out.jsonl", "a") as out:
        out.writelines(json.dumps(row.asDict()) + "\\n" for row in batch.collect())

@hf.job(name="orders", checkpoint="old", trigger=hf.available_now())
def orders(spark):
    seen = spark.readStream.schema("customer string, amount {type}").json("{folder}/in")
    return hf.sink(seen.groupBy("customer").agg({aggregates}), mode="update").foreach_batch(take)
"""
OLD = 'F.max("amount").alias("most"), F.sum("amount").alias("total"), F.sum(F.abs("amount")).alias("moved")'
NEW = (
    'F.sum(F.abs("amount")).alias("moved"), F.count("*").alias("n"), F.sum("amount").alias("sum"),'
    ' F.max("amount").alias("most")'
)


def test_the_command(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sums that Spark gives one name are told apart by the plan that Holdfast has noted."""
    monkeypatch.chdir(tmp_path)
    before, after = events(0, 12), events(12, 12)
    write(tmp_path / "in", 0, before)
    Path("old.py").write_text(JOB.format(folder=tmp_path, type="int", aggregates=OLD))
    Path("new.py").write_text(JOB.format(folder=tmp_path, type="long", aggregates=NEW))

    def started(file: str, checkpoint: str) -> dict[str, Event]:
        Path("out.jsonl").write_text("")
        query = load_job(file)(spark).start(checkpoint=str(tmp_path / checkpoint), trigger=hf.available_now())
        query.awaitTermination()
        rows = map(json.loads, Path("out.jsonl").read_text().splitlines())
        return {row["customer"]: row for row in rows}

    started("old.py", "old")
    run = CliRunner().invoke
    words = ["state", "migrate", "old", "new", "--code", "new.py", "--confirm-stopped"]
    unsaid = run(app, words)
    assert unsaid.exit_code == 2
    assert "found n long\n" in unsaid.stderr
    checked = run(app, ["check", "new.py", "--against", "old", "--json"])
    assert json.loads(checked.stdout)["verdict"] == "fails"
    shown = run(app, [*words, "--initial", "n=0", "--dry-run"])
    assert shown.exit_code == 0, shown.output
    assert "renamed" in shown.stdout
    assert not Path("new").exists()
    done = run(app, [*words, "--initial", "n=0", "--json"])
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    assert made["operation"] == "evolve"
    assert [(each["column"], each["change"]) for each in made["operators"][0]["columns"]] == [
        ("customer", "kept"),
        ("moved", "kept"),
        ("n", "new"),
        ("sum", "renamed"),
        ("most", "widened"),
    ]
    write(tmp_path / "in", 1, after)
    both: dict[str, list[int]] = {}
    for event in [*before, *after]:
        both.setdefault(event["customer"], []).append(event["amount"])
    came = {event["customer"] for event in after}
    wanted = {
        customer: {
            "customer": customer,
            "moved": sum(map(abs, amounts)),
            "n": sum(event["customer"] == customer for event in after),
            "sum": sum(amounts),
            "most": max(amounts),
        }
        for customer, amounts in both.items()
        if customer in came
    }
    assert started("new.py", "new") == wanted
    # The same with a different layout in one change: the query continues from that, too.
    layout = ["--initial", "n=0", "--partitions", "5", "--backend", "rocksdb"]
    done = run(
        app, ["state", "migrate", "old", "moved", "--code", "new.py", "--confirm-stopped", *layout, "--json"]
    )
    assert done.exit_code == 0, done.output
    changed = json.loads(done.stdout)
    assert changed["operation"] == "change"
    assert [step["step"] for step in changed["reports"]] == ["code", "layout"]
    assert started("new.py", "moved") == wanted
    [aggregate] = checkpoints.read("moved").operators
    assert aggregate.partitions == 5
    kept = json.loads(run(app, ["check", "new.py", "--against", "new", "--json"]).stdout)
    assert kept["verdict"] == "kept"


@dataclass(frozen=True)
class Change:
    """A query in two forms.

    Attributes:
        old: The old form.
        new: The new one.
        mode: The output mode.
        said: What a person says.
        end: What the new one has put out in the end, by the model: of all events before, and of those after.
    """

    old: Callable[[Query], DataFrame]
    new: Callable[[Query], DataFrame]
    said: dict[str, Any]
    end: Callable[[list[Event], list[Event]], dict[tuple[Any, ...], Event]]
    mode: str = "update"


def counted(query: Query, *keys: str) -> DataFrame:
    return query.source().groupBy(*keys).agg(F.count("*").alias("n"))


def per_customer(before: list[Event], after: list[Event], **more: Any) -> dict[tuple[Any, ...], Event]:
    came = {event["customer"] for event in after}
    every = [*before, *after]
    return {
        (customer,): {
            "customer": customer,
            "n": sum(event["customer"] == customer for event in every),
            **{name: make(customer) for name, make in more.items()},
        }
        for customer in came
    }


def in_all(before: list[Event], after: list[Event]) -> dict[tuple[Any, ...], Event]:
    return {(): {"n": len(before) + len(after)}}


def unseen(before: list[Event], after: list[Event]) -> dict[tuple[Any, ...], Event]:
    known = {event["id"] for event in before}
    return {(event["id"],): {"id": event["id"]} for event in after if event["id"] not in known}


def fresh(before: list[Event], after: list[Event]) -> dict[tuple[Any, ...], Event]:
    del before
    return per_customer([], after)


def by_region(before: list[Event], after: list[Event]) -> dict[tuple[Any, ...], Event]:
    """What came before is all of the first region; shops are the regions of what comes."""
    counts: dict[tuple[str, str], int] = {}
    for event in before:
        key = event["customer"], "s0"
        counts[key] = counts.get(key, 0) + 1
    came = set()
    for event in after:
        key = event["customer"], event["shop"]
        counts[key] = counts.get(key, 0) + 1
        came.add(key)
    return {
        key: {"customer": key[0], "region": key[1], "n": count}
        for key, count in counts.items()
        if key in came
    }


CHANGES = {
    "a key becomes none": Change(
        # No column says that it is the same operator; so a person does.
        lambda query: counted(query, "customer"),
        counted,
        {"merge": True, "rename": {"0": "0"}},
        in_all,
    ),
    "a key is added": Change(
        lambda query: counted(query, "customer"),
        lambda query: (
            query.source()
            .withColumnRenamed("shop", "region")
            .groupBy("customer", "region")
            .agg(F.count("*").alias("n"))
        ),
        {"initial": {"region": "s0"}},
        by_region,
    ),
    "a key of a dedupe goes": Change(
        lambda query: query.source().dropDuplicates(["id", "shop"]).select("id"),
        lambda query: query.source().dropDuplicates(["id"]).select("id"),
        {"merge": True},
        unseen,
        "append",
    ),
    "state where there was none": Change(
        lambda query: query.source().select("id"), lambda query: counted(query, "customer"), {}, fresh
    ),
    "a join is inserted and goes with all": Change(
        # Both read two sources: Spark takes no other number of them.
        lambda query: query.source().union(query.source()).dropDuplicates(["id"]).select("id"),
        lambda query: (
            query.source()
            .dropDuplicates(["id"])
            .alias("one")
            .join(query.source().alias("other"), F.expr("one.id = other.id"))
            .select("one.id")
        ),
        {},
        unseen,
        "append",
    ),
}
GRID = [(change, place) for change in CHANGES for place in PROVIDERS] if WHOLE else []


@pytest.mark.parametrize(("change", "place"), GRID)
def test_each_change(
    query: Query, settings: Callable[[dict[str, str]], None], change: str, place: str
) -> None:
    settings({**PROVIDERS[place], **LOOK, PARTITIONS_KEY: "2"})
    it = CHANGES[change]
    before, after = events(0, 30), events(30, 30)
    query.add(before)
    query.run(it.old(query), "old", it.mode)
    hf.evolve(
        query.folder / "old",
        query.folder / "new",
        to=it.new(query).writeStream.outputMode(it.mode),
        old=it.old(query).writeStream.outputMode(it.mode),
        stopped=True,
        **it.said,
    )
    assert checkpoints.verify(query.folder / "new").problems == ()
    query.add(after)
    assert query.run(it.new(query), "new", it.mode) == it.end(before, after)


def windows(query: Query, *more: Any) -> DataFrame:
    made = query.source().withWatermark("at", "1 minute").groupBy(F.window("at", "10 minutes"), "customer")
    return made.agg(*more, F.count("*").alias("n"))


def sessions(query: Query, *more: Any) -> DataFrame:
    made = query.source().withWatermark("at", "1 minute")
    return made.groupBy(F.session_window("at", "5 minutes"), "customer").agg(*more, F.count("*").alias("n"))


@pytest.mark.parametrize("place", PROVIDERS if WHOLE else [])
@pytest.mark.parametrize("build", [windows, sessions], ids=["windows", "sessions"])
def test_windows_that_were_open_go_on(
    query: Query, settings: Callable[[dict[str, str]], None], place: str, build: Callable[..., DataFrame]
) -> None:
    """Both append: what is put out is final. A new sum has what came since; a count has all."""
    settings({**PROVIDERS[place], **LOOK, PARTITIONS_KEY: "2"})
    before, after = events(0, 30), events(30, 30)
    late = [{**order(400), "at": "2026-03-05T12:00:00Z"}]
    query.add(before)
    old, new = build(query), build(query, F.sum("amount").alias("total"), F.max("amount").alias("most"))
    first = query.rows(old, "old", "append")
    hf.evolve(
        query.folder / "old",
        query.folder / "new",
        to=new.writeStream.outputMode("append"),
        old=old.writeStream.outputMode("append"),
        stopped=True,
    )
    query.add(after)
    query.add(late)
    rows = query.rows(new, "new", "append")
    counts: dict[str, int] = {}
    sums: dict[str, int] = {}
    for row in [*first, *rows]:
        counts[row["customer"]] = counts.get(row["customer"], 0) + row["n"]
        sums[row["customer"]] = sums.get(row["customer"], 0) + (row.get("total") or 0)
    wanted: dict[str, int] = {}
    for event in [*before, *after]:
        wanted[event["customer"]] = wanted.get(event["customer"], 0) + 1
    assert counts == wanted
    came: dict[str, int] = dict.fromkeys(wanted, 0)
    for event in after:
        came[event["customer"]] += event["amount"]
    assert sums == came
