"""Lint on the plans that Spark makes: what it shows of each query, and that nothing of it is started."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import holdfast as hf
from holdfast.advice.findings import FindingEvidence, Severity
from holdfast.advice.plan_checks import SETTINGS, plan_hits
from holdfast.advice.rules import RULES
from holdfast.demo.coffee_shop.day import CoffeeDay
from holdfast.engine.planned_state import planned
from holdfast.errors import HoldfastError, Invalid
from holdfast.jobs.loader import load_job
from holdfast.jobs.processes.planned_lint import refuse_errors
from holdfast.jobs.processes.user_query import sinks_of_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
Frame = Callable[["SparkSession"], "DataFrame"]


def rows(spark: SparkSession, time: str = "ts", name: str = "k") -> DataFrame:
    rate = spark.readStream.format("rate").load()
    return rate.selectExpr(f"value AS {name}", f"timestamp AS {time}", "value % 3 AS n", "'x' AS text")


def timed(spark: SparkSession, time: str = "ts", name: str = "k") -> DataFrame:
    return rows(spark, time, name).withWatermark(time, "10 minutes")


def window(time: str = "ts") -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    return F.window(time, "5 minutes")


def joined(condition: str) -> Frame:
    from pyspark.sql import functions as F  # noqa: N812

    return lambda spark: timed(spark).join(timed(spark, "seen", "j").drop("n", "text"), F.expr(condition))


def by(column: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    return F.expr(column)


def sql(text: str) -> Frame:
    def made(spark: SparkSession) -> DataFrame:
        timed(spark).createOrReplaceTempView("linted")
        return spark.sql(text)

    return made


def old_column(spark: SparkSession) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    before = rows(spark)
    return before.withWatermark("ts", "10 minutes").groupBy(F.window(before.ts, "5 minutes")).count()


def collected(spark: SparkSession) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return timed(spark).groupBy(window()).agg(F.collect_list(F.struct("k", "text")))


# The rules, worked out by hand from what Spark's documentation says of each operator.
CASES: dict[str, tuple[Frame, str, set[str]]] = {
    "nothing": (rows, "append", set()),
    "window": (lambda s: timed(s).groupBy(window(), "k").count(), "append", set()),
    "session": (
        lambda s: timed(s).groupBy(by("session_window(ts, '1 minute')"), "k").count(),
        "append",
        set(),
    ),
    "all rows": (lambda s: rows(s).groupBy().count(), "update", set()),
    "few keys": (lambda s: rows(s).groupBy(by("k % 8")).count(), "update", set()),
    "window alone": (lambda s: rows(s).groupBy(window()).count(), "update", {"HF101"}),
    "refused": (lambda s: rows(s).groupBy(window()).count(), "append", {"HF101", "HF112"}),
    "keys": (lambda s: rows(s).groupBy("k").count(), "update", {"HF102"}),
    "keys in small letters": (lambda s: rows(s).groupBy(by("lower(text)")).count(), "update", {"HF102"}),
    "keys with a watermark": (lambda s: timed(s).groupBy("k").count(), "update", {"HF102"}),
    "complete": (lambda s: timed(s).groupBy(window(), "k").count(), "complete", {"HF108"}),
    "other column": (
        lambda s: timed(s).withColumn("at", by("ts")).groupBy(window(by("cast(n as timestamp)"))).count(),
        "update",
        {"HF202"},
    ),
    "old column": (old_column, "update", {"HF208"}),
    "cast": (lambda s: timed(s).groupBy(window(by("date_trunc('hour', ts)"))).count(), "update", {"HF208"}),
    "renamed": (
        lambda s: timed(s).withColumnRenamed("ts", "at").groupBy(window("at")).count(),
        "append",
        set(),
    ),
    "long wait": (
        lambda s: rows(s).withWatermark("ts", "3 days").groupBy(window()).count(),
        "append",
        {"HF204"},
    ),
    "collected": (collected, "append", {"HF109"}),
    "dedupe": (lambda s: rows(s).dropDuplicates(["k"]), "append", {"HF103"}),
    "dedupe by id": (lambda s: timed(s).dropDuplicates(["k"]), "append", {"HF104"}),
    "dedupe by id and time": (lambda s: timed(s).dropDuplicates(["k", "ts"]), "append", {"HF105"}),
    "dedupe within": (lambda s: timed(s).dropDuplicatesWithinWatermark(["k"]), "append", set()),
    "dedupe of rows": (lambda s: timed(s).dropDuplicates(), "append", {"HF111"}),
    # It is an aggregate in Spark, which needs the event time among its keys in append mode.
    "distinct in SQL": (sql("select distinct k from linted"), "append", {"HF104", "HF112"}),
    "query in SQL": (sql("select k, count(*) from (select * from linted) group by k"), "update", {"HF102"}),
    "join without a watermark": (
        lambda s: rows(s).join(rows(s, "seen", "j"), by("k = j")),
        "append",
        {"HF106", "HF412"},
    ),
    "join without a bound": (joined("k = j"), "append", {"HF107", "HF206", "HF412"}),
    "join with half a bound": (joined("k = j and seen > ts"), "append", {"HF107", "HF206", "HF412"}),
    "join with a bound": (
        joined("k = j and seen between ts and ts + interval 1 hour"),
        "append",
        {"HF206", "HF412"},
    ),
    "join by the time": (joined("k = j and ts = seen"), "append", {"HF206", "HF412"}),
    "join with a table": (lambda s: rows(s).join(s.range(9), by("k = id")), "append", set()),
    "sorted": (lambda s: rows(s).orderBy("k"), "append", {"HF112"}),
}


def seen(frame: DataFrame, mode: str, cores: int | None = None) -> set[str]:
    query = planned(frame, mode, SETTINGS)
    assert query is not None
    return {hit.rule for hit in plan_hits(query, cores)}


@pytest.mark.parametrize("name", CASES)
def test_a_plan_shows_what_it_keeps(spark: SparkSession, name: str) -> None:
    make, mode, rules = CASES[name]
    assert seen(make(spark), mode) == rules


def test_every_rule_of_plans_is_tried() -> None:
    tried = {rule for _, _, rules in CASES.values() for rule in rules}
    settings = {"HF207", "HF301", "HF303", "HF305", "HF306", "HF307", "HF308", "HF309", "HF311", "HF312"}
    groups = {"HF501", "HF502"}
    wanted = {rule.id for rule in RULES.values() if FindingEvidence.PLAN in rule.evidence}
    assert wanted == tried | settings | groups


def test_old_stateful_functions_are_seen(spark: SparkSession) -> None:
    def count(key: Any, batches: Any, state: Any) -> Any:
        yield from batches

    for timeout, rules in (("NoTimeout", {"HF501", "HF502"}), ("ProcessingTimeTimeout", {"HF501"})):
        grouped = rows(spark).groupBy("k")
        made = grouped.applyInPandasWithState(count, "k long", "n long", "append", timeout)
        assert seen(made, "append") == rules


def test_settings_of_the_session_are_seen(spark: SparkSession) -> None:
    own = spark.newSession()
    store = "spark.sql.streaming.stateStore"
    given = {
        "spark.sql.streaming.multipleWatermarkPolicy": "max",
        "spark.sql.streaming.minBatchesToRetain": "1",
        "spark.sql.streaming.statefulOperator.useStrictDistribution": "false",
        f"{store}.rocksdb.boundedMemoryUsage": "false",
        f"{store}.rocksdb.changelogCheckpointing.enabled": "false",
        f"{store}.rowChecksum.enabled": "false",
        "spark.sql.shuffle.partitions": "200",
    }
    for key, value in given.items():
        own.conf.set(key, value)
    frame = timed(own).join(timed(own, "seen", "j").drop("n", "text"), by("k = j and ts = seen"))
    own.conf.set(
        f"{store}.providerClass", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
    expected = {"HF207", "HF303", "HF305", "HF307", "HF308", "HF309", "HF206", "HF412"}
    assert seen(frame, "append") == expected
    assert seen(frame, "append", cores=8) == expected | {"HF312"}
    assert seen(frame, "append", cores=25) == expected
    heap = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    own.conf.set(f"{store}.providerClass", heap)
    assert seen(frame, "append") == expected - {"HF303", "HF308"} | {"HF301"}


def test_operators_of_holdfast_have_no_error(spark: SparkSession) -> None:
    class Visits(hf.Keyed):
        visits = hf.value("long", default=0, ttl="24h")

        def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
            state.visits += 1
            yield {"k": event.k, "visits": state.visits}

    other = timed(spark, "seen").drop("n", "text")
    frames = [
        hf.dedupe(rows(spark), by="k", time="ts", watermark="1 hour"),
        hf.join_within(timed(spark), other, by="k", times=("ts", "seen"), bound="1 minute"),
        hf.keyed(rows(spark), by="k").process(Visits(), output="k long, visits long", name="visits"),
    ]
    for frame in frames:
        found = seen(frame, "update" if frame is frames[2] else "append")
        assert {rule for rule in found if RULES[rule].severity is Severity.ERROR} == set()


JOB = """
from pyspark.sql import functions as F  # noqa: N812

import helper
import holdfast as hf

EVENTS = "events"


@hf.job(name="visits", checkpoint="checkpoints/visits", strict=True)
def visits(spark, delay="10 minutes"):
    events = spark.readStream.schema("id string, user string, ts timestamp").json(EVENTS)
    timed = helper.timed(events, delay)
    once = timed.dropDuplicates(["id"])
    counts = once.groupBy("user", F.window("ts", "1 hour")).count()
    return hf.sink(counts).foreach_batch(
        lambda batch, batch_id: batch.write.mode("overwrite").save(str(batch_id))
    )
"""
HELPER = """
def timed(frame, delay):
    return frame.withWatermark("ts", delay)
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events").mkdir()
    (tmp_path / "events/1.json").write_text(
        json.dumps({"id": "e", "user": "u", "ts": "2026-03-05T09:00:00Z"})
    )
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "visits.py").write_text(JOB.replace("events", str(tmp_path / "events"), 1))
    monkeypatch.delitem(__import__("sys").modules, "helper", raising=False)
    return tmp_path / "visits.py"


def test_a_plan_shows_what_another_module_hides(spark: SparkSession, job: Path) -> None:
    assert hf.lint(job).counted == ()  # what helper.timed gives is not known
    report = hf.lint(job, plan=True, spark=spark)
    (finding,) = report.counted
    assert (finding.rule, finding.line, finding.evidence) == ("HF104", 14, (FindingEvidence.PLAN,))
    assert report.evidence == (FindingEvidence.SOURCE, FindingEvidence.PLAN)
    assert not (job.parent / "checkpoints").exists()
    assert spark.streams.active == []


def test_what_both_show_is_one_finding(spark: SparkSession, job: Path) -> None:
    job.write_text(
        job.read_text().replace("helper.timed(events, delay)", 'events.withWatermark("ts", delay)')
    )
    (finding,) = hf.lint(job, plan=True, spark=spark).counted
    assert (finding.rule, finding.line) == ("HF104", 14)
    assert finding.evidence == (FindingEvidence.SOURCE, FindingEvidence.PLAN)
    assert finding.seen == "dropDuplicates by `id` does not include the event time"
    assert finding.in_plan == "none of the keys `id` is the event time"


def test_a_comment_suppresses_what_the_plan_shows(spark: SparkSession, job: Path) -> None:
    line = 'once = timed.dropDuplicates(["id"])'
    job.write_text(
        job.read_text().replace(line, f"{line}  # holdfast: ignore[HF104] ids are reused each day")
    )
    report = hf.lint(job, plan=True, spark=spark)
    assert (report.counted, report.errors) == ((), 0)
    assert [finding.suppressed for finding in report.findings] == ["ids are reused each day"]


def test_a_parameter_changes_the_plan(spark: SparkSession, job: Path) -> None:
    report = hf.lint(job, plan=True, spark=spark, overrides={"delay": "5 days"})
    assert [finding.rule for finding in report.counted] == ["HF204", "HF104"]


def test_a_strict_job_is_refused_with_its_errors(spark: SparkSession, job: Path) -> None:
    made = load_job(str(job))
    assert made.strict
    sinks = sinks_of_job(made, spark)
    with pytest.raises(Invalid) as caught:
        refuse_errors(made, str(job), sinks, 2)
    assert caught.value.fact == "the job is strict, and lint found 1 error"
    assert caught.value.found == "line 14: HF104 none of the keys `id` is the event time"
    (job.parent / "pyproject.toml").write_text('[tool.holdfast.lint]\nseverity = { HF104 = "warning" }\n')
    refuse_errors(made, str(job), sinks, 2)


def test_a_job_that_starts_its_query_is_refused(spark: SparkSession, job: Path) -> None:
    job.write_text(
        job.read_text().replace(
            "return hf.sink(counts)", 'counts.writeStream.format("noop").start()\n    return hf.sink(counts)'
        )
    )
    with pytest.raises(HoldfastError, match="starts the query instead of returning it"):
        hf.lint(job, plan=True, spark=spark)
    assert spark.streams.active == []


def test_the_demo_has_no_error(spark: SparkSession, tmp_path: Path) -> None:
    CoffeeDay.make(11, customers=9, files=9).write(tmp_path / "day")
    given = {"day": str(tmp_path / "day"), "out": str(tmp_path / "tables")}
    report = hf.lint(ROOT / "src/holdfast/demo/coffee_shop/job.py", plan=True, spark=spark, overrides=given)
    assert [finding for finding in report.counted if finding.severity is Severity.ERROR] == []
