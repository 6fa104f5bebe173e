"""What differs between two plans, by hand-made plans."""

from __future__ import annotations

import pytest

from holdfast.formats.logs.notes import PlanSink, PlanSource, PlanStep, QueryPlan
from holdfast.model import Effect, PlanChange
from holdfast.savepoints.plan_changes import compare_plans, format_change, moved_sources, pinned_changes


def step(kind: str, text: str, bare: str | None = None, *, stateful: bool = False) -> PlanStep:
    return PlanStep(kind, text, bare or text, stateful)


def source(name: str = "0", kind: str = "json", columns: str = "who", **options: str) -> PlanSource:
    return PlanSource(name, kind, options, dict.fromkeys(columns.split(), "STRING"))


COUNT = step("Aggregate", "[who], [who, count(1) AS n]", "[none#0], [none#0, count(1)]", stateful=True)
HIGH = step("Filter", "(amount > 10)", "(none#1 > 10)")
WATERMARK = step("EventTimeWatermark", "ts: timestamp, 1 minutes")
ONE = (source(path="/in"),)


def short(found: tuple[PlanChange, ...]) -> list[tuple[str, str | None, str | None, Effect]]:
    return [(each.what, each.before, each.after, each.effect) for each in found]


def test_the_same_plan_has_no_changes() -> None:
    plan = QueryPlan(ONE, (COUNT, WATERMARK), ("visits",), PlanSink("noop", "update"), "available now")
    assert compare_plans(plan, plan) == ()


def test_a_step_counts_before_state_and_changes_the_output_behind_it() -> None:
    plain = QueryPlan(ONE, (COUNT, WATERMARK))
    assert short(compare_plans(plain, QueryPlan(ONE, (COUNT, HIGH, WATERMARK)))) == [
        ("filter", None, "(amount > 10)", Effect.MEANING)
    ]
    assert short(compare_plans(plain, QueryPlan(ONE, (HIGH, COUNT, WATERMARK)))) == [
        ("filter", None, "(amount > 10)", Effect.OUTPUT)
    ]
    assert short(compare_plans(QueryPlan(ONE, (HIGH, COUNT)), QueryPlan(ONE, (COUNT,)))) == [
        ("filter", "(amount > 10)", None, Effect.OUTPUT)
    ]
    # A filter that moved from one side of the state to the other is fed to it or not.
    moved = compare_plans(QueryPlan(ONE, (HIGH, COUNT)), QueryPlan(ONE, (COUNT, HIGH)))
    assert Effect.MEANING in {each.effect for each in moved}


def test_a_change_affects_the_operators_that_its_rows_reach_later() -> None:
    """Spark counts operators from the last step: the count is 0, and the deduplication before it is 1."""
    first = step("Deduplicate", "[who]", stateful=True)
    plan = QueryPlan(ONE, (COUNT, first, WATERMARK))

    def found(*steps: PlanStep) -> list[tuple[str, int | None, tuple[int, ...] | None]]:
        changes = compare_plans(plan, QueryPlan(ONE, steps))
        return [(each.what, each.operator_id, each.affects) for each in changes]

    assert found(COUNT, first, HIGH, WATERMARK) == [("filter", None, (0, 1))]
    assert found(COUNT, HIGH, first, WATERMARK) == [("filter", None, (0,))]
    assert found(HIGH, COUNT, first, WATERMARK) == [("filter", None, ())]
    total = step("Aggregate", "[who], [who, sum(amount) AS n]", stateful=True)
    assert found(total, first, WATERMARK) == [("aggregation", 0, (0,))]
    later = step("Deduplicate", "[who, ts]", stateful=True)
    assert found(COUNT, later, WATERMARK) == [("deduplication", 1, (0, 1))]


def test_without_state_a_step_changes_the_output_alone() -> None:
    assert short(compare_plans(QueryPlan(ONE, ()), QueryPlan(ONE, (HIGH,)))) == [
        ("filter", None, "(amount > 10)", Effect.OUTPUT)
    ]


def test_another_name_is_no_change_and_another_column_is() -> None:
    renamed = step("Aggregate", "[who], [who, count(1) AS visits]", COUNT.bare, stateful=True)
    assert compare_plans(QueryPlan(ONE, (COUNT,)), QueryPlan(ONE, (renamed,))) == ()
    # Columns that a source has before others move their numbers, not what is done.
    moved = step("Aggregate", COUNT.text, "[none#3], [none#3, count(1)]", stateful=True)
    assert compare_plans(QueryPlan(ONE, (COUNT,)), QueryPlan(ONE, (moved,))) == ()
    other = step("Aggregate", "[shop], [shop, count(1) AS n]", "[none#1], [none#1, count(1)]", stateful=True)
    assert short(compare_plans(QueryPlan(ONE, (COUNT,)), QueryPlan(ONE, (other,)))) == [
        ("aggregation", COUNT.text, other.text, Effect.MEANING)
    ]


def test_the_delay_of_a_watermark() -> None:
    longer = step("EventTimeWatermark", "ts: timestamp, 2 hours")
    assert short(compare_plans(QueryPlan(ONE, (COUNT, WATERMARK)), QueryPlan(ONE, (COUNT, longer)))) == [
        ("watermark", "ts: timestamp, 1 minutes", "ts: timestamp, 2 hours", Effect.MEANING)
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (source(path="/a"), source(path="/b"), [("source 0, path", "/a", "/b", Effect.MEANING)]),
        (
            source(maxFilesPerTrigger="1"),
            source(maxfilespertrigger="9"),
            [("source 0, maxfilespertrigger", "1", "9", Effect.NONE)],
        ),
        (
            source(startingOffsets="latest"),
            source(),
            [("source 0, startingoffsets", "latest", None, Effect.IGNORED)],
        ),
        (
            source(columns="who"),
            source(columns="who what"),
            [("source 0, column what", None, "STRING", Effect.NONE)],
        ),
        (
            source(columns="who"),
            source(columns=""),
            [("source 0, column who", "STRING", None, Effect.MEANING)],
        ),
        (source(kind="json"), source(kind="kafka"), [("source 0", "json", "kafka", Effect.MEANING)]),
        (source(kind="json"), source(kind="JSON"), []),
    ],
)
def test_a_source(
    before: PlanSource, after: PlanSource, expected: list[tuple[str, str | None, str | None, Effect]]
) -> None:
    assert short(compare_plans(QueryPlan((before,), ()), QueryPlan((after,), ()))) == expected


def test_the_number_and_the_order_of_sources() -> None:
    one, other = source("0", path="/a"), source("1", path="/b")
    assert short(compare_plans(QueryPlan((one, other), ()), QueryPlan((one,), ()))) == [
        ("source 1", "json path=/b", None, Effect.MEANING)
    ]
    turned = (source("0", path="/b"), source("1", path="/a"))
    assert short(compare_plans(QueryPlan((one, other), ()), QueryPlan(turned, ()))) == [
        ("source order", "json path=/a; json path=/b", "json path=/b; json path=/a", Effect.MEANING)
    ]
    # Named sources are found by name, wherever they stand.
    named = (source("orders", path="/a"), source("returns", path="/b"))
    assert compare_plans(QueryPlan(named, ()), QueryPlan(named[::-1], ())) == ()


def test_sink_mode_and_trigger() -> None:
    before = QueryPlan(ONE, (), (), PlanSink("parquet", "append", "/a"), "every 1 minute")
    after = QueryPlan(ONE, (), (), PlanSink("delta", "complete", "/a"), None)
    assert short(compare_plans(before, after)) == [
        ("sink", "parquet /a", "delta /a", Effect.OUTPUT),
        ("output mode", "append", "complete", Effect.OUTPUT),
        ("trigger", "every 1 minute", None, Effect.NONE),
    ]


@pytest.mark.parametrize(
    ("path", "files", "effect"),
    [
        ("/new", ["file:///old/1.json"], Effect.FAILS),
        ("file:/new", ["file:///new/1.json"], Effect.MEANING),
        ("/new/", ["file:///new/day/1.json"], Effect.MEANING),
        ("/new", ["file:///newer/1.json"], Effect.FAILS),
        ("/new/*", ["file:///old/1.json"], Effect.MEANING),
        ("/new", [], Effect.MEANING),
        ("s3a://b/new", ["s3a://b/new/1.json"], Effect.MEANING),
    ],
)
def test_a_moved_file_source_fails_where_it_lacks_the_last_files(
    path: str, files: list[str], effect: Effect
) -> None:
    change = compare_plans(QueryPlan((source(path="/old"),), ()), QueryPlan((source(path=path),), ()))
    (found,) = moved_sources(change, {"0": files}.__getitem__)
    assert found.effect is effect


def test_a_job_goes_on_in_the_format_of_its_checkpoint() -> None:
    (change,) = format_change(1, 2, adopted=True)
    assert change.effect is Effect.IGNORED
    assert "plain Spark would fail with CANNOT_WRITE" in change.why
    assert format_change(2, 2, adopted=True) == ()


@pytest.mark.parametrize(("saved", "given"), [(1, 2), (2, 1)])
def test_spark_4_3_goes_on_in_the_format_of_the_checkpoint(saved: int, given: int) -> None:
    (change,) = format_change(saved, given, spark=(4, 3))
    assert change.effect is Effect.IGNORED
    assert change.why.startswith("Spark 4.3 keeps the format of the checkpoint")


def test_only_fixed_settings_that_differ_are_told() -> None:
    fixed = {"partitions": "4", "checksums": "true", "codec": "lz4"}
    found = pinned_changes(fixed, {"partitions": "8", "checksums": "TRUE", "other": "1"})
    assert short(found) == [("setting partitions", "4", "8", Effect.IGNORED)]


@pytest.mark.parametrize(
    ("saved", "given", "error"),
    [(None, 2, None), (2, 2, None), (2, 1, "CANNOT_LOAD"), (1, 2, "CANNOT_WRITE")],
)
def test_the_format_of_state(saved: int | None, given: int, error: str | None) -> None:
    found = format_change(saved, given)
    assert [each.effect for each in found] == ([] if error is None else [Effect.FAILS])
    assert all(each.why.startswith(error or "") for each in found)
