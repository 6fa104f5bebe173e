"""Charts over time. All positions are worked out by hand: a chart is 600 wide and 120 high."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from served import NOW_MS, Served, batch

from holdfast.model import VERSIONS, Failure, JobState, PartitionPosition, SavepointNote, SourceProgress
from holdfast.observe.alerting import AlertStore
from holdfast.observe.metrics import sample
from holdfast.server.dashboard.chart_drawing import Drawing, drawing, marker_lines, ticks
from holdfast.server.dashboard.charts import (
    Marker,
    Threshold,
    TimeAxis,
    Timeline,
    chart,
    chart_table,
    time_axis,
    timeline,
)

# 2026-03-05 00:00:00 UTC.
MIDNIGHT = 1_772_668_800_000
SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NINE = MIDNIGHT + 9 * HOUR
PAGE = {"accept": "text/html"}
EVIL = "<script>alert(1)</script>"


@dataclass(frozen=True)
class Beat:
    """A batch with a time and a value."""

    number: int
    at_ms: int
    value: float | None


def over(*beats: tuple[int, float | None], name: str = "hour", end_ms: int = NINE) -> Timeline[Beat]:
    """A timeline of batches, each given by its time and value."""
    batches = [Beat(number, at_ms, value) for number, (at_ms, value) in enumerate(beats)]
    return timeline(batches, lambda beat: beat.at_ms, lambda beat: beat.number, name, end_ms)


def drawn(
    *beats: tuple[int, float | None],
    unit: str = "ms",
    thresholds: Sequence[Threshold] = (),
    markers: Sequence[Marker] = (),
    name: str = "hour",
) -> Drawing:
    shown = chart("k", "Batch duration", unit, over(*beats, name=name), lambda beat: beat.value, thresholds)
    result = drawing(shown, markers)
    assert result is not None
    return result


def test_three_batches_of_an_hour_are_at_their_times() -> None:
    # From 08:00 to 09:00 a quarter of an hour is 150 wide. Of 400 ms, 100 are 30 high and 370 are 111 high.
    found = drawn(
        (NINE - 45 * MINUTE, 100), (NINE - 30 * MINUTE, 370), (NINE - 15 * MINUTE, 100), name="hour"
    )
    assert found.line == "M150 90L300 9L450 90"
    assert found.area == "M150 90L300 9L450 90L450 120L150 120Z"
    assert (found.top, found.middle, found.end) == ("400 ms", "200 ms", (450, 90))
    assert [(tick.percent, tick.text) for tick in found.ticks] == [
        (0, "08:00"),
        (16.67, "08:10"),
        (33.33, "08:20"),
        (50, "08:30"),
        (66.67, "08:40"),
        (83.33, "08:50"),
        (100, "09:00"),
    ]
    # 15 minutes are the usual interval: each area reaches half-way to its neighbours, and 8 beyond the ends.
    assert [(area.x, area.width, area.text) for area in found.hits] == [
        (142, 83, "batch 0: 100 ms"),
        (225, 150, "batch 1: 370 ms"),
        (375, 83, "batch 2: 100 ms"),
    ]


def test_a_gap_in_time_is_a_gap_in_the_line() -> None:
    # A batch a minute, which is 10 wide, then nothing for 30 minutes, which is more than three intervals.
    times = (0, 1, 2, 32, 33)
    found = drawn(*((NINE - 50 * MINUTE + minute * MINUTE, 370) for minute in times))
    assert found.line == "M100 9L110 9L120 9M420 9L430 9"
    assert found.area.count("Z") == 2
    # Nothing is shown in the middle of the gap: the areas end 8 behind and begin 8 before it.
    assert (found.hits[2].x + found.hits[2].width, found.hits[3].x) == (128, 412)


def test_three_usual_intervals_are_not_a_gap_yet() -> None:
    times = (0, 1, 2, 5)
    found = drawn(*((NINE - 50 * MINUTE + minute * MINUTE, 370) for minute in times))
    assert found.line == "M100 9L110 9L120 9L150 9"


def test_a_batch_alone_is_a_dot() -> None:
    found = drawn((NINE - 30 * MINUTE, 370))
    assert (found.line, found.area, found.end) == ("M300 9h.01", "", (300, 9))


def test_a_batch_without_the_value_has_no_point() -> None:
    found = drawn((NINE - 30 * MINUTE, None), (NINE - 15 * MINUTE, 370))
    assert found.line == "M450 9h.01"


def test_batches_outside_the_range_are_not_shown_but_the_newest_value_is() -> None:
    line = over((NINE - 3 * HOUR, 7.0), (NINE - 2 * HOUR, 5.0))
    shown = chart("k", "K", "rows", line, lambda beat: beat.value)
    assert (shown.points, shown.newest, drawing(shown)) == ((), 5.0, None)
    line = over((NINE - 3 * HOUR, 7.0), (NINE - 2 * HOUR, 5.0), name="day")
    assert [point.value for point in chart("k", "K", "rows", line, lambda beat: beat.value).points] == [7, 5]


@pytest.mark.parametrize(
    ("name", "oldest_ms", "start_ms", "end_ms"),
    [
        # An hour in parts of 20 s, a day in parts of 10 min, a week in parts of an hour: at most 200 parts.
        ("hour", NINE, NINE - HOUR + 20 * SECOND, NINE + 20 * SECOND),
        ("day", NINE, NINE - DAY + 10 * MINUTE, NINE + 10 * MINUTE),
        ("week", NINE, NINE - 7 * DAY + HOUR, NINE + HOUR),
        # 100 min and 3 s need parts of a minute.
        ("all", NINE - 100 * MINUTE, NINE - 100 * MINUTE, NINE + MINUTE),
        # A range is at least a minute long, in parts of a second.
        ("all", None, NINE - 57 * SECOND, NINE + 3 * SECOND),
    ],
)
def test_the_edges_of_a_range_are_round(name: str, oldest_ms: int | None, start_ms: int, end_ms: int) -> None:
    assert time_axis(name, NINE + 3 * SECOND, oldest_ms) == TimeAxis(start_ms, end_ms)


def test_a_point_of_many_batches_is_their_largest() -> None:
    # 400 batches, one each 5 s, in 1995 s: parts of 10 s, so two batches in each.
    start = NINE - 1995 * SECOND
    beats = [(start + number * 5 * SECOND, float(number % 7)) for number in range(400)]
    shown = chart("k", "K", "rows", over(*beats, name="all"), lambda beat: beat.value)
    assert shown.folding == "largest"
    # 08:26:45 is alone in its part: the next one begins at 08:26:50.
    assert [(point.first, point.last, point.value) for point in shown.points[:4]] == [
        (0, 0, 0),
        (1, 2, 2),
        (3, 4, 4),
        (5, 6, 6),
    ]
    assert shown.points[4].value == 1  # batches 7 and 8: 0 and 1
    assert len(shown.points) == 201
    found = drawing(shown)
    assert found is not None
    assert found.line.count("M") == 1  # no gap


def test_ticks_of_days_are_dates() -> None:
    found = ticks(TimeAxis(NINE - 7 * DAY, NINE))
    # The first midnight is 15 hours after 26 February, 09:00: 15/168 of the width.
    assert [tick.text for tick in found] == ["02-27", "02-28", "03-01", "03-02", "03-03", "03-04", "03-05"]
    assert (found[0].percent, found[0].daily) == (8.93, True)
    (midnight,) = [tick for tick in ticks(TimeAxis(NINE - DAY, NINE)) if tick.text == "03-05"]
    assert (midnight.percent, midnight.daily) == (62.5, False)  # 15 of 24 hours


def test_ticks_of_seconds() -> None:
    assert [tick.text for tick in ticks(TimeAxis(NINE - MINUTE, NINE))] == [
        "08:59:00",
        "08:59:10",
        "08:59:20",
        "08:59:30",
        "08:59:40",
        "08:59:50",
        "09:00:00",
    ]


def test_a_threshold_is_a_line_with_a_label() -> None:
    limit = Threshold("checkpoint_duration", 300.0, "300 ms")
    # The axis ends at 400 ms, so 300 ms are at a quarter from the top.
    (line,) = drawn((NINE - 30 * MINUTE, 370), thresholds=[limit]).thresholds
    assert (line.percent, line.below, line.rule, line.text) == (
        25,
        False,
        "checkpoint_duration",
        "Alert above 300 ms",
    )


def test_a_threshold_near_the_values_extends_the_chart_and_a_far_one_does_not() -> None:
    near, far = Threshold("lag", 370.0, "370 ms"), Threshold("offsets_expiring", 401.0, "401 ms")
    found = drawn((NINE - 30 * MINUTE, 100), thresholds=[near, far])
    # Four times 100 ms are near: the axis ends at 400 ms, and 370 ms are 7.5 % below its end.
    assert found.top == "400 ms"
    assert [(line.percent, line.below) for line in found.thresholds] == [(7.5, True), (None, False)]
    assert found.thresholds[1].text == "Alert above 401 ms"


def test_markers_are_at_their_times() -> None:
    axis = TimeAxis(NINE - HOUR, NINE)
    found = marker_lines(
        [
            Marker("savepoint", NINE - 15 * MINUTE, "Savepoint of batch 3, 2.0 KiB"),
            Marker("restart", NINE - 45 * MINUTE, "Restart: attempt 2"),
            Marker("restart", NINE - 2 * HOUR, "Restart: attempt 1"),
        ],
        axis,
    )
    assert [(line.event, line.x, line.text) for line in found] == [
        ("restart", 150, "Restart: attempt 2 · 2026-03-05 08:15:00 UTC"),
        ("savepoint", 450, "Savepoint of batch 3, 2.0 KiB · 2026-03-05 08:45:00 UTC"),
    ]


def test_markers_that_are_very_close_are_one() -> None:
    half_past = NINE - 30 * MINUTE
    restarts = [Marker("restart", half_past + s * SECOND, f"Restart: attempt {s}") for s in (2, 3, 4)]
    (line,) = marker_lines(restarts, TimeAxis(NINE - HOUR, NINE))
    # A second is a sixth of a unit; the line is at the last of them.
    assert (line.x, line.text) == (
        300.67,
        "3 restarts, the last: Restart: attempt 4 · 2026-03-05 08:30:04 UTC",
    )


def test_the_label_has_the_range_the_newest_value_and_events() -> None:
    limit = Threshold("checkpoint_duration", 300.0, "300 ms")
    found = drawn(
        (NINE - 45 * MINUTE, 370),
        (NINE - 30 * MINUTE, 50),
        thresholds=[limit],
        markers=[Marker("restart", NINE - 40 * MINUTE, "r"), Marker("restart", NINE - 9 * HOUR, "r")],
    )
    assert found.label == (
        "Batch duration from 2026-03-05 08:00 to 2026-03-05 09:00 UTC."
        " Newest 50 ms, smallest 50 ms, largest 370 ms. Alert above 300 ms. 1 restart"
    )


@pytest.mark.parametrize(
    ("unit", "value", "top"),
    [
        ("bytes", 900 * 1024, "1000 KiB"),
        ("bytes", 1000 * 1024, "1.5 MiB"),
        ("ms", 90_000, "2 min 0 s"),
        ("rows", 0, "1"),
        ("rows/s", 0.2, "0.3"),
    ],
)
def test_edges_are_round_in_their_unit(unit: str, value: float, top: str) -> None:
    assert drawn((NINE - 30 * MINUTE, value), unit=unit).top == top


def test_half_of_a_few_rows_is_not_shown() -> None:
    def middle(unit: str, value: float) -> str:
        return drawn((NINE - 30 * MINUTE, value), unit=unit).middle

    assert (middle("rows", 2), middle("rows", 3), middle("ms", 2)) == ("", "2", "1.5 ms")


def test_the_table_has_a_column_for_each_chart() -> None:
    line = over((NINE - 30 * MINUTE, None), (NINE - 15 * MINUTE, 370))
    charts = [
        chart("a", "A", "ms", line, lambda beat: beat.value),
        chart("b", "B", "rows", line, lambda beat: beat.number + 1),
    ]
    assert [(row.batches, row.at_ms, row.values) for row in chart_table(charts)] == [
        ("1", NINE - 15 * MINUTE, ("370 ms", "2")),
        ("0", NINE - 30 * MINUTE, ("–", "1")),
    ]


def behind(next_: int, latest: int, unit: str = "records") -> SourceProgress:
    return SourceProgress(0, "KafkaV2[…]", 10, (PartitionPosition("orders", 0, next_, latest, unit),))


@pytest.fixture
def shop(tmp_path: Path) -> Served:
    served = Served(tmp_path)
    served.job(batches=0)
    return served


def charts_of(served: Served, query: str = "") -> dict[str, dict[str, Any]]:
    found = served.client().get(f"/ui/jobs/shop.json{query}").json()["query"]
    return {each["key"]: each for each in found["charts"]}


def test_charts_of_lag_and_watermark(shop: Served) -> None:
    # Batches are committed a second apart, the first at NOW - 60 s; each takes 50 ms.
    for number, (next_, latest) in enumerate([(100, 100), (150, 200), (200, 200)]):
        # 2026-03-05 08:40:40 is NOW - 60 s.
        mark = f"2026-03-05T08:40:{10 + number}.000Z"
        shop.registry.add_batch(
            "shop", 2, replace(batch(number), sources=(behind(next_, latest),), watermark=mark)
        )
    found = charts_of(shop)
    assert list(found) == [
        "duration",
        "rate",
        "lag_records",
        "lag",
        "watermark_lag",
        "state_rows",
        "state_bytes",
    ]
    assert [point["value"] for point in found["lag_records"]["points"]] == [0, 50, 0]
    # Record 150 arrived half-way between the plans of batches 0 and 1: 500 ms before the plan of batch 1, and
    # that is 50 ms before its commit.
    assert [point["value"] for point in found["lag"]["points"]] == [0, 550, 0]
    assert [point["value"] for point in found["watermark_lag"]["points"]] == [30_000, 30_000, 30_000]


def test_a_table_has_a_lag_in_versions(shop: Served) -> None:
    shop.registry.add_batch("shop", 2, replace(batch(0), sources=(behind(3, 5, VERSIONS),)))
    found = charts_of(shop)
    assert [point["value"] for point in found["lag_versions"]["points"]] == [2]
    assert "lag_records" not in found


def test_sources_without_positions_have_no_charts_of_lag(shop: Served) -> None:
    shop.registry.add_batch("shop", 2, replace(batch(0), sources=(SourceProgress(0, "files", 1),)))
    assert list(charts_of(shop)) == ["duration", "rate", "state_rows", "state_bytes"]


def test_thresholds_are_those_of_the_job(shop: Served) -> None:
    shop.registry.add_batch("shop", 2, batch(0))
    # Never watched: the defaults, a minute and 10 GB.
    found = charts_of(shop)
    assert [each["value"] for each in found["duration"]["thresholds"]] == [60_000]
    assert [each["text"] for each in found["duration"]["thresholds"]] == ["1 min"]
    numbers = [sample("holdfast_alert_threshold", 0.1, "shop", "checkpoint_duration")]
    AlertStore(shop.home.path).save("shop", NOW_MS, samples=numbers, totals={}, standing={})
    found = charts_of(shop)
    assert [(each["rule"], each["value"]) for each in found["duration"]["thresholds"]] == [
        ("checkpoint_duration", 100)
    ]
    assert found["state_bytes"]["thresholds"] == []  # this job has switched the rule off
    source = shop.client().get("/ui/jobs/shop", headers=PAGE).text
    assert "Alert above 100 ms</text>" in source


def test_restarts_and_savepoints_are_marked(shop: Served) -> None:
    shop.registry.add_batch("shop", 2, batch(0))
    shop.savepoint("file:///backups/savepoints/s1", 7)
    failed = SavepointNote("visits", NOW_MS - 20_000, None, None, None, None, None, EVIL)
    shop.registry.add_savepoint("shop", failed)
    shop.registry.add_savepoint("shop", replace(failed, query="another query"))
    found = shop.client().get("/ui/jobs/shop.json").json()["query"]["markers"]
    # The second driver began 84 s ago, after the first had failed.
    assert [(each["event"], each["at_ms"]) for each in found] == [
        ("restart", NOW_MS - 84_000),
        ("savepoint-failed", NOW_MS - 20_000),
        ("savepoint", NOW_MS - 500),
    ]
    assert found[0]["text"].startswith("Restart: attempt 2 after query visits: ZeroDivisionError")
    assert found[2]["text"] == "Savepoint of batch 7, 2 KiB"
    with shop.supervised():
        source = shop.client().get("/ui/jobs/shop?range=hour", headers=PAGE).text
    assert EVIL not in source
    assert "Savepoint failed: &lt;script&gt;" in source
    assert re.findall('<g class="marker ([a-z-]+)"><title>', source)[:3] == [
        "restart",
        "savepoint-failed",
        "savepoint",
    ]


def test_a_driver_without_a_failure_is_a_restart_too(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.job()
    served.registry.end_attempt("shop", 2, "stopped", None, NOW_MS - 30_000)
    served.registry.start_attempt("shop", 9, NOW_MS - 20_000, recovers=False)
    markers = served.client().get("/ui/jobs/shop.json").json()["query"]["markers"]
    assert markers[-1] == {"event": "restart", "at_ms": NOW_MS - 20_000, "text": "Restart: attempt 3"}


def test_a_reader_chooses_the_range(shop: Served) -> None:
    for number in range(3):
        shop.registry.add_batch("shop", 2, batch(number))
    client = shop.client()
    for name, length in (("hour", HOUR), ("day", DAY), ("week", 7 * DAY)):
        source = client.get(f"/ui/jobs/shop?range={name}", headers=PAGE).text
        assert f'?range={name}" data-focus="range-{name}" aria-current="true"' in source
        shown = charts_of(shop, f"?range={name}")["duration"]
        assert shown["end_ms"] - shown["start_ms"] == length
    kept = charts_of(shop)["duration"]
    assert kept == charts_of(shop, "?range=all")["duration"]
    assert len(kept["points"]) == 3
    answer = client.get("/ui/jobs/shop?range=year", headers=PAGE)
    assert answer.status_code == 400
    assert "hour, day, week, all" in answer.text


def test_a_range_stays_when_a_query_is_chosen(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.job(queries=("visits", "drinks"))
    source = served.client().get("/ui/jobs/shop?range=day&query=drinks", headers=PAGE).text
    assert "?query=visits&amp;range=day" in source
    assert "?query=drinks&amp;range=week" in source


def test_a_range_without_batches_says_so(shop: Served) -> None:
    shop.registry.add_batch("shop", 2, replace(batch(0), committed_ms=NOW_MS - 2 * HOUR))
    with shop.supervised():
        source = shop.client().get("/ui/jobs/shop?range=hour", headers=PAGE).text
    assert "No value in this range." in source
    assert (
        shop.client().get("/ui/jobs/shop?range=day", headers=PAGE).text.count('role="img" data-focus') == 3
    )  # a rate needs two batches


def test_each_chart_is_an_image_with_a_label(shop: Served) -> None:
    for number in range(3):
        shop.registry.add_batch("shop", 2, batch(number))
    with shop.supervised():
        source = shop.client().get("/ui/jobs/shop", headers=PAGE).text
    labels = re.findall(r'class="plot"[^>]* role="img"[^>]* aria-label="([^"]*)"', source)
    # From the first batch at 08:40:40 to now, which is 08:41:40.
    assert labels[0].startswith(
        "Batch duration from 2026-03-05 08:40 to 2026-03-05 08:41 UTC. Newest 50 ms, smallest 50 ms"
    )
    assert len(labels) == source.count('<figure class="chart"') == 4


def test_a_thousand_batches_are_200_points(shop: Served) -> None:
    start = NOW_MS - 2_000_000
    rows = []
    for number in range(1000):
        kept = replace(batch(number, took_ms=number), committed_ms=start + number * 2000)
        rows.append(("shop", "visits", number, 2, json.dumps(asdict(kept))))
    with closing(sqlite3.connect(shop.home.registry)) as db, db:
        db.executemany("INSERT INTO batches VALUES (?, ?, ?, ?, ?)", rows)
    points = charts_of(shop)["duration"]["points"]
    # 1000 batches in 2000 s are five in each part of 10 s; the longest of the first five took 4 ms.
    assert len(points) == 200
    assert (points[0]["first"], points[0]["last"], points[0]["value"]) == (0, 4, 4)
    source = shop.client().get("/ui/jobs/shop", headers=PAGE).text
    assert source.count('class="hit"') == 4 * 200
    assert source.count('<tr><th scope="row">') < 300


def test_jobs_are_filtered_by_state_and_name(tmp_path: Path) -> None:
    served = Served(tmp_path)
    for name, state in (
        ("shop", JobState.RUNNING),
        ("shop-2", JobState.RESTARTING),
        ("till", JobState.FAILED),
        ("old-shop", JobState.FINISHED),
    ):
        served.job(name, state=state)
    client = served.client()
    with served.supervised("shop"), served.supervised("shop-2"):

        def names(query: str) -> list[str]:
            return [job["name"] for job in client.get(f"/ui/jobs.json{query}").json()["jobs"]]

        assert sorted(names("")) == ["old-shop", "shop", "shop-2", "till"]
        assert names("?state=running") == ["shop"]
        assert names("?state=changing") == ["shop-2"]
        assert names("?state=failing") == ["till"]
        assert names("?state=ended") == ["old-shop"]
        assert sorted(names("?name=SHOP")) == ["old-shop", "shop", "shop-2"]
        assert names("?name=shop&state=ended") == ["old-shop"]
        assert names("?name=&state=") == names("")
        found = client.get("/ui/jobs.json?state=ended").json()
        assert [(each["value"], each["jobs"]) for each in found["filters"]] == [
            ("running", 1),
            ("changing", 1),
            ("failing", 1),
            ("ended", 1),
        ]
        assert found["all_jobs"] == 4
        source = client.get("/?state=failing&name=ti", headers=PAGE).text
        assert '<option value="failing" selected>Failing</option>' in source
        assert 'name="name" value="ti"' in source
        assert "All 4 jobs" in source
        evil = client.get("/", params={"name": f'"{EVIL}'}, headers=PAGE).text
        assert EVIL not in evil
        assert "No job matches the filter." in evil
        assert "no job matches the filter" in client.get("/?name=x").text
        assert client.get("/?state=lost", headers=PAGE).status_code == 400


def test_a_failure_in_a_marker_is_short(shop: Served) -> None:
    shop.registry.add_batch("shop", 2, batch(0))
    shop.registry.end_attempt("shop", 2, "failed", Failure("query", "E", "x" * 5000), NOW_MS - 3000)
    shop.registry.start_attempt("shop", 9, NOW_MS - 2000, recovers=True)
    (*_, last) = shop.client().get("/ui/jobs/shop.json").json()["query"]["markers"]
    assert len(last["text"]) < 250
