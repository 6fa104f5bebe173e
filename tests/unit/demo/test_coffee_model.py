"""The model of the coffee shop against cases worked out by hand."""

from __future__ import annotations

import ast
import json
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from holdfast.demo.coffee_shop import model
from holdfast.demo.coffee_shop.day import CoffeeDay
from holdfast.errors import Invalid, NotFound


def write(directory: Path, **streams: list[list[dict[str, Any]]]) -> Path:
    """Write streams of files of rows; a stream that is not given has empty files."""
    count = max(len(files) for files in streams.values())
    for name in ("arrivals", "orders", "payments"):
        (directory / name).mkdir(parents=True)
        files = streams.get(name, [])
        for number in range(count):
            rows = files[number] if number < len(files) else []
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (directory / name / f"{number:03d}.json").write_text(text)
    return directory


def arrival(name: str, ts: str, customer: str = "ann", seat: int = 1) -> dict[str, Any]:
    return {"arrival_id": name, "customer": customer, "seat": seat, "ts": ts}


def order(name: str, ts: str, customer: str = "ann", amount: int = 300) -> dict[str, Any]:
    return {"order_id": name, "customer": customer, "drink": "tea", "amount": amount, "ts": ts}


def payment(name: str, order_id: str, ts: str, customer: str = "ann", amount: int = 300) -> dict[str, Any]:
    return {"payment_id": name, "order_id": order_id, "customer": customer, "amount": amount, "ts": ts}


def answer(directory: Path, name: str) -> list[model.Row]:
    found = {each.name: each for each in model.answers(model.read_day(directory))}
    return sorted(found[name].rows, key=repr)


def test_visits_are_counted_per_customer_and_day_without_repeats(tmp_path: Path) -> None:
    write(
        tmp_path,
        arrivals=[
            [arrival("a1", "2026-03-05T09:00:00Z"), arrival("a2", "2026-03-05T09:01:00Z", "bob")],
            [arrival("a1", "2026-03-05T09:00:00Z"), arrival("a3", "2026-03-05T09:05:00Z")],
            [arrival("a4", "2026-03-06T08:00:00Z")],
        ],
    )
    assert answer(tmp_path, "visits") == [
        ("ann", "2026-03-05", 2),
        ("ann", "2026-03-06", 1),
        ("bob", "2026-03-05", 1),
    ]


def test_a_week_begins_on_monday_and_is_told_when_it_is_over(tmp_path: Path) -> None:
    write(
        tmp_path,
        payments=[
            [payment("p1", "o1", "2026-03-01T23:59:59Z", amount=100)],  # Sunday
            [payment("p2", "o2", "2026-03-02T00:00:00Z", amount=20)],  # Monday
            [payment("p3", "o3", "2026-03-08T23:59:59Z", amount=3)],
            [payment("p4", "o4", "2026-03-09T00:10:00Z", amount=7)],  # its week is not over
        ],
    )
    assert answer(tmp_path, "spend_week") == [("ann", "2026-02-23", 100, 1), ("ann", "2026-03-02", 23, 2)]


def test_a_week_is_not_told_a_second_too_early(tmp_path: Path) -> None:
    write(
        tmp_path,
        payments=[
            [payment("p1", "o1", "2026-03-05T09:00:00Z")],
            [payment("p2", "o2", "2026-03-09T00:09:59Z")],
        ],
    )
    assert answer(tmp_path, "spend_week") == []


def test_served_in_five_includes_both_ends(tmp_path: Path) -> None:
    write(
        tmp_path,
        arrivals=[[arrival("a1", "2026-03-05T09:00:00Z", seat=4), arrival("a2", "2026-03-05T09:02:00Z")]],
        orders=[
            [
                order("early", "2026-03-05T08:59:59Z"),
                order("at once", "2026-03-05T09:00:00Z"),
                order("both", "2026-03-05T09:05:00Z"),
                order("second", "2026-03-05T09:05:01Z"),
                order("bob's", "2026-03-05T09:03:00Z", "bob"),
            ]
        ],
    )
    pairs = [(row[0], row[1]) for row in answer(tmp_path, "served_in_five")]
    assert pairs == [("a1", "at once"), ("a1", "both"), ("a2", "both"), ("a2", "second")]
    assert answer(tmp_path, "served_in_five")[0] == (
        "a1",
        "at once",
        "ann",
        4,
        "tea",
        "2026-03-05T09:00:00Z",
        "2026-03-05T09:00:00Z",
    )


def test_unpaid_lists_both_sides_that_never_met(tmp_path: Path) -> None:
    end = "2026-03-10T00:00:00Z"
    write(
        tmp_path,
        orders=[
            [
                order("paid", "2026-03-05T09:00:00Z"),
                order("paid at the last moment", "2026-03-05T09:00:01Z"),
                order("paid too late", "2026-03-05T09:00:02Z", amount=250),
                order("never", "2026-03-05T09:00:03Z"),
            ],
            [order("closing", end)],
        ],
        payments=[
            [
                payment("p1", "paid", "2026-03-05T09:10:00Z"),
                payment("p1", "paid", "2026-03-05T09:10:00Z"),
                payment("p2", "paid at the last moment", "2026-03-05T09:30:01Z"),
                payment("p3", "paid too late", "2026-03-05T09:30:03Z", amount=260),
                payment("p4", "nobody's", "2026-03-05T09:12:00Z", "bob"),
            ],
            [payment("p5", "closing payment", end)],
        ],
    )
    assert answer(tmp_path, "unpaid") == [
        ("order", "never", None, "ann", 300, "2026-03-05T09:00:03Z"),
        ("order", "paid too late", None, "ann", 250, "2026-03-05T09:00:02Z"),
        ("payment", "nobody's", "p4", "bob", 300, "2026-03-05T09:12:00Z"),
        ("payment", "paid too late", "p3", "ann", 260, "2026-03-05T09:30:03Z"),
    ]


def test_a_regular_who_sits_without_an_order_is_told_with_the_week_before(tmp_path: Path) -> None:
    days = [
        arrival("first", "2026-03-01T09:00:00Z"),
        arrival("second", "2026-03-02T09:00:00Z"),
        arrival("second", "2026-03-02T09:00:00Z"),
        arrival("third", "2026-03-03T09:00:00Z"),
        arrival("fourth", "2026-03-03T16:00:00Z"),
        arrival("waited", "2026-03-08T10:00:00Z", seat=9),
        arrival("served", "2026-03-08T12:00:00Z"),
        arrival("no regular", "2026-03-08T12:00:00Z", "bob"),
        *(arrival(f"cyd's {n}", f"2026-03-0{n}T09:04:00Z", "cyd") for n in (1, 2, 3)),
        arrival("two days left", "2026-03-09T00:01:00Z", "cyd"),
        arrival("too near the end", "2026-03-09T00:02:00Z"),
        arrival("end", "2026-03-09T00:16:59Z", "bob"),
    ]
    drinks = [
        {**order(f"o{n}", f"2026-03-0{day}T09:01:00Z"), "drink": drink}
        for n, (day, drink) in enumerate([(1, "tea"), (2, "mocha"), (3, "tea"), (3, "mocha"), (8, "latte")])
    ]
    at_the_end = order("end", "2026-03-09T00:16:59Z", "bob")
    payments = [
        payment("p1", "o0", "2026-03-01T00:00:00Z", amount=100),
        payment("p1", "o0", "2026-03-01T00:00:00Z", amount=100),
        payment("p2", "o1", "2026-03-07T23:59:59Z", amount=20),
        payment("p3", "o4", "2026-03-08T00:00:00Z", amount=3),
        payment("end", "none", "2026-03-09T00:16:59Z", "bob"),
    ]
    served = order("in time", "2026-03-08T12:05:00Z")
    write(tmp_path, arrivals=[days], orders=[[*drinks, served, at_the_end]], payments=[payments])
    assert answer(tmp_path, "regulars") == [
        ("waited", "ann", 9, "2026-03-08T10:00:00Z", 3, 4, 120, "mocha"),
    ]


@pytest.mark.parametrize(("end", "told"), [("2026-03-04T09:14:59Z", 0), ("2026-03-04T09:15:00Z", 1)])
def test_a_wait_is_told_when_the_watermark_has_reached_its_end(tmp_path: Path, end: str, told: int) -> None:
    days = [arrival(f"a{n}", f"2026-03-0{n}T09:00:00Z") for n in (1, 2, 3, 4)]
    write(
        tmp_path,
        arrivals=[[*days, arrival("end", end, "bob")]],
        orders=[[order("served", f"2026-03-0{n}T09:01:00Z") for n in (1, 2, 3)] + [order("end", end, "bob")]],
        payments=[[payment("end", "none", end, "bob")]],
    )
    assert len(answer(tmp_path, "regulars")) == told


def test_a_row_far_behind_is_late_and_one_within_ten_minutes_is_not(tmp_path: Path) -> None:
    hours = [[arrival(f"a{n}", f"2026-03-05T{9 + n:02d}:00:00Z")] for n in range(7)]
    hours[6] += [
        arrival("just in time", "2026-03-05T13:50:01Z"),
        arrival("late", "2026-03-05T09:50:00Z"),
    ]
    write(tmp_path, arrivals=hours)
    assert answer(tmp_path, "visits") == [("ann", "2026-03-05", 8)]
    assert model.late_counts(model.read_day(tmp_path))["visits"] == 1


@pytest.mark.parametrize("ts", ["2026-03-05T13:50:00Z", "2026-03-05T09:50:01Z"])
def test_a_row_whose_fate_depends_on_batches_has_no_answer(tmp_path: Path, ts: str) -> None:
    hours = [[arrival(f"a{n}", f"2026-03-05T{9 + n:02d}:00:00Z")] for n in range(7)]
    hours[6].append(arrival("who knows", ts))
    write(tmp_path, arrivals=hours)
    with pytest.raises(Invalid, match="Spark's split of the files") as caught:
        model.answers(model.read_day(tmp_path))
    assert caught.value.where == "arrivals, file 6"


def test_a_query_of_two_streams_waits_for_the_slower_one(tmp_path: Path) -> None:
    hours = [[order(f"o{n}", f"2026-03-05T{9 + n:02d}:00:00Z")] for n in range(7)]
    hours[6].append(order("late", "2026-03-05T09:10:00Z"))
    payments = [[payment(f"p{n}", f"o{n}", f"2026-03-05T{9 + n:02d}:05:00Z")] for n in range(7)]
    write(tmp_path, orders=hours, payments=payments)
    assert model.late_counts(model.read_day(tmp_path))["unpaid"] == 1
    slow = [[payment(f"p{n}", f"o{n}", f"2026-03-05T09:{n:02d}:00Z")] for n in range(7)]
    write(tmp_path / "slow", orders=hours, payments=slow)
    assert model.late_counts(model.read_day(tmp_path / "slow"))["unpaid"] == 0


@pytest.mark.parametrize("seed", range(8))
def test_the_model_finds_every_late_row_that_was_made(tmp_path: Path, seed: int) -> None:
    day = CoffeeDay.make(seed, customers=150)
    day.write(tmp_path)
    counts = model.late_counts(model.read_day(tmp_path))
    assert counts == {
        "visits": day.late["arrivals"],
        "spend_week": day.late["payments"],
        "served_in_five": day.late["arrivals"] + day.late["orders"],
        "unpaid": day.late["orders"] + day.late["payments"],
        "regulars": sum(day.late.values()),
    }


def test_the_closing_events_are_in_no_answer(tmp_path: Path) -> None:
    CoffeeDay.make(1, customers=30).write(tmp_path)
    for each in model.answers(model.read_day(tmp_path)):
        assert each.rows
        assert "closing" not in repr(each.rows)
        assert all(len(row) == len(each.columns) for row in each.rows)


def test_compare_counts_rows_with_their_repeats() -> None:
    expected = model.QuestionAnswer("n", "?", ("a",), (("x",), ("x",), ("y",)))
    same = model.compare(expected, [("y",), ("x",), ("x",)])
    assert same == model.RowComparison("n", equal=3, missing=0, extra=0)
    assert same.exact
    twice = model.compare(expected, [("x",), ("y",), ("y",), ("z",)])
    assert twice == model.RowComparison("n", 2, 1, 2, (("x",),), (("y",), ("z",)))
    assert not twice.exact


def test_rows_are_read_in_the_order_of_the_columns() -> None:
    naive = datetime(2026, 3, 5, 9, 0)
    aware = datetime(2026, 3, 5, 9, 0, tzinfo=timezone.utc)
    records: list[dict[str, Any]] = [
        {"b": naive, "a": 1},
        {"a": None, "b": aware},
        {"a": "t", "b": date(2026, 3, 5)},
    ]
    assert model.rows_of(records, ("a", "b")) == [
        (1, "2026-03-05T09:00:00Z"),
        (None, "2026-03-05T09:00:00Z"),
        ("t", "2026-03-05"),
    ]
    with pytest.raises(Invalid, match="unsupported type"):
        model.rows_of([{"a": 1.5}], ("a",))


def test_a_day_without_a_stream_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no input files"):
        model.read_day(tmp_path)


def test_the_model_knows_neither_spark_nor_the_job_nor_the_generator() -> None:
    tree = ast.parse(Path(model.__file__).read_text())
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    assert {name for name in imported if "holdfast" in name} == {"holdfast.errors"}
    assert not any("spark" in name for name in imported)
