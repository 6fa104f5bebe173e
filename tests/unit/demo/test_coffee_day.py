"""The made-up day: the same for a seed, as untidy as it says, and late whatever the batches are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from holdfast.demo.coffee_shop.day import DELAY, STREAMS, Arrival, CoffeeDay, Event, Files, Order
from holdfast.errors import Invalid


def test_a_seed_makes_one_day() -> None:
    assert CoffeeDay.make(3, customers=30) == CoffeeDay.make(3, customers=30)
    assert CoffeeDay.make(3, customers=30) != CoffeeDay.make(4, customers=30)


def test_the_default_day_has_thousands_of_events_in_ten_files() -> None:
    day = CoffeeDay.make()
    assert day.events > 5_000
    assert {name: len(files) for name, files in day.streams.items()} == dict.fromkeys(STREAMS, 10)
    assert all(file for files in day.streams.values() for file in files)


def test_the_day_is_untidy() -> None:
    day = CoffeeDay.make()
    for stream, files in day.streams.items():
        times = [event.ts for file in files for event in file]
        assert times != sorted(times)
        assert day.late[stream] > 0
        events = [event for file in files for event in file]
        assert len(events) - len(set(events)) == day.repeated[stream]
    assert day.repeated["arrivals"] > 0
    assert day.repeated["payments"] > 0
    assert day.repeated["orders"] == 0


def test_some_customers_come_several_times_today() -> None:
    day = CoffeeDay.make()
    arrivals = [e for file in day.streams["arrivals"] for e in file if isinstance(e, Arrival)]
    newest = max(event.ts for event in arrivals).date()
    today = [event.customer for event in arrivals if event.ts.date() == newest]
    assert max(today.count(customer) for customer in set(today)) >= 3


def test_orders_and_payments_close_in_a_later_week_and_arrivals_do_not() -> None:
    day = CoffeeDay.make(customers=20)
    newest = {name: max(e.ts for file in files for e in file) for name, files in day.streams.items()}
    assert newest["orders"] == newest["payments"]
    assert newest["orders"] - newest["arrivals"] > timedelta(days=4)
    # Monday 2 to Sunday 8 March is the week of the day; it must be over.
    assert newest["orders"] - DELAY > datetime.fromisoformat("2026-03-09T00:00:00+00:00")


def test_files_are_written_in_the_order_that_spark_reads_them(tmp_path: Path) -> None:
    day = CoffeeDay.make(customers=20)
    day.write(tmp_path)
    for stream, files in day.streams.items():
        written = sorted((tmp_path / stream).iterdir())
        assert [path.name for path in written] == [f"{n:03d}.json" for n in range(len(files))]
        moments = [path.stat().st_mtime for path in written]
        assert moments == sorted(set(moments))
        for path, events in zip(written, files, strict=True):
            assert len(path.read_text().splitlines()) == len(events)


def test_a_line_holds_whole_cents_and_a_time_in_utc(tmp_path: Path) -> None:
    day = CoffeeDay.make(customers=20)
    day.write(tmp_path)
    order = day.streams["orders"][0][0]
    assert isinstance(order, Order)
    line = (tmp_path / "orders" / "000.json").read_text().splitlines()[0]
    assert json.loads(line) == {
        "order_id": order.order_id,
        "customer": order.customer,
        "drink": order.drink,
        "amount": order.amount,
        "ts": order.ts.isoformat().replace("+00:00", "Z"),
    }


@pytest.mark.parametrize(("customers", "files"), [(0, 10), (10, 8)])
def test_a_day_that_is_too_small_is_refused(customers: int, files: int) -> None:
    with pytest.raises(Invalid, match="has too few"):
        CoffeeDay.make(1, customers=customers, files=files)


@pytest.mark.parametrize("seed", range(6))
def test_the_same_rows_are_late_however_files_are_cut_into_batches(seed: int) -> None:
    day = CoffeeDay.make(seed, customers=120)
    rng = Random(seed)
    pairs = (("arrivals", "orders"), ("orders", "payments"))
    for names in (("arrivals",), ("payments",), *pairs, ("arrivals", "orders", "payments")):
        streams = [day.streams[name] for name in names]
        expected = sum(day.late[name] for name in names)
        for _ in range(20):
            assert len(_dropped(streams, rng)) == expected


def _dropped(streams: Sequence[Files], rng: Random) -> list[Event]:
    """Drop rows as a micro-batch engine does, for one random way of cutting the files.

    A batch drops rows at or below the watermark that came of the batch before the last one. It takes a
    file or two of each stream, and once a stream gets a file ahead, as after a crash at a bad moment.
    """
    ahead, when = rng.randrange(len(streams)), rng.randrange(4)
    taken = [0] * len(streams)
    newest: list[datetime | None] = [None] * len(streams)
    watermarks: list[datetime | None] = [None, None]
    dropped: list[Event] = []
    batch = 0
    while any(done < len(files) for done, files in zip(taken, streams, strict=True)):
        step = 1 + rng.randrange(2)
        limit = watermarks[-2]
        for number, files in enumerate(streams):
            size = step + (number == ahead and batch == when)
            for event in [e for file in files[taken[number] : taken[number] + size] for e in file]:
                if limit is not None and event.ts <= limit:
                    dropped.append(event)
                known = newest[number]
                newest[number] = event.ts if known is None else max(known, event.ts)
            taken[number] += size
        seen = [moment for moment in newest if moment is not None]
        watermarks.append(min(seen) - DELAY if len(seen) == len(newest) else None)
        batch += 1
    return dropped
