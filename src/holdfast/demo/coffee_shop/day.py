"""A generated day at a coffee shop, reproducible from a seed, as three streams of JSON files.

A camera at the entrance records arrivals, the till records orders, and the card terminal records payments.
Rows arrive out of order, some far too late. The camera and the terminal send some rows twice. Some orders are
never paid, and some payments belong to no order.

The answers are exact because the lateness of rows is bounded. On-time rows are delivered at most `DISORDER`
after their event time, which is less than the watermark's delay, so they are never dropped, however the files
are divided into batches. Late rows are delivered at least `FAR` files after the watermark has passed them, so
they are always dropped if a batch reads one or two files of each stream. No row is between these two cases.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime, time, timedelta, timezone
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final, TypeAlias

from holdfast.errors import Invalid

TODAY: Final = date(2026, 3, 5)  # a Thursday
DELAY: Final = timedelta(minutes=10)  # the watermark for which the day is generated
DISORDER: Final = timedelta(minutes=8)
FAR: Final = 5
STREAMS: Final = ("arrivals", "orders", "payments")
CLOSING: Final = "closing"

_OPEN = time(7, 0, tzinfo=timezone.utc)
_OPEN_SECONDS: Final = 10 * 3600 + 1800
_DAYS_BACK: Final = 10
_SEATS: Final = 24
_FEWEST_FILES: Final = 9
_MENU: Final = (
    ("espresso", 240),
    ("americano", 290),
    ("flat white", 380),
    ("cappuccino", 370),
    ("latte", 390),
    ("mocha", 430),
    ("tea", 260),
    ("hot chocolate", 410),
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event of the camera: a customer sat down."""

    arrival_id: str
    customer: str
    seat: int
    ts: datetime


@dataclass(frozen=True, slots=True)
class Order:
    """An event of the till: an order, with the amount in cents."""

    order_id: str
    customer: str
    drink: str
    amount: int
    ts: datetime


@dataclass(frozen=True, slots=True)
class Payment:
    """An event of the card terminal: a payment in cents, possibly with a tip."""

    payment_id: str
    order_id: str
    customer: str
    amount: int
    ts: datetime


Event: TypeAlias = "Arrival | Order | Payment"
Files: TypeAlias = tuple[tuple[Event, ...], ...]


@dataclass(frozen=True, slots=True)
class CoffeeDay:
    """The three streams of a day, divided into files in the order of delivery.

    Attributes:
        streams: The files of each stream, each a sequence of events.
        late: The number of events of each stream that were delivered after any watermark.
        repeated: The number of events of each stream that were delivered twice.
    """

    streams: Mapping[str, Files]
    late: Mapping[str, int]
    repeated: Mapping[str, int]

    @property
    def events(self) -> int:
        """Return the number of delivered events in all streams, including repetitions."""
        return sum(len(file) for files in self.streams.values() for file in files)

    @classmethod
    def make(cls, seed: int = 7, customers: int = 400, files: int = 10, today: date = TODAY) -> CoffeeDay:
        """Generate the day `today` and the ten days before it.

        A third of the files contain the days before, the others contain today. The last file of orders and of
        payments ends with an event of a later week, which moves the watermark past all other events.

        Args:
            seed: The seed of the random numbers.
            customers: The number of customers, with about 15 events each.
            files: The number of files per stream, which is the number of batches of a query.
            today: The day to which the questions refer.

        Raises:
            Invalid: The number of customers or files is too small.
        """
        for name, value, least in (("customers", customers, 1), ("files", files, _FEWEST_FILES)):
            if value < least:
                raise Invalid(
                    f"the day of the demo has too few {name}",
                    code="HF-E2175",
                    where=f"CoffeeDay.make({name}=…)",
                    found=str(value),
                    expected=f"at least {least}",
                    hint=f"use {name}={least}",
                )
        rng = Random(seed)  # noqa: S311 - a demo, not cryptography
        happened = _happened(rng, customers, today)
        return _delivered(rng, happened, _slots(today, files), today)

    def write(self, directory: Path) -> None:
        """Write each stream as a directory of newline-delimited JSON, one file per delivery.

        File names and modification times are in order, because Spark reads files by modification time. The
        times are one second apart, because Spark ignores a file that is seven days older than the newest.
        """
        for stream, files in self.streams.items():
            folder = directory / stream
            folder.mkdir(parents=True, exist_ok=True)
            for number, events in enumerate(files):
                path = folder / f"{number:03d}.json"
                path.write_text("".join(_line(event) for event in events), encoding="utf-8")
                modified = _EPOCH_OF_FILES + number
                os.utime(path, (modified, modified))


_EPOCH_OF_FILES: Final = int(datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp())


def _line(event: Event) -> str:
    fields = asdict(event)
    fields["ts"] = event.ts.strftime("%Y-%m-%dT%H:%M:%SZ")
    return json.dumps(fields) + "\n"


def _happened(rng: Random, customers: int, today: date) -> dict[str, list[Event]]:
    """Generate all events, unordered and without repetitions."""
    events: dict[str, list[Event]] = {stream: [] for stream in STREAMS}
    for back in range(_DAYS_BACK, -1, -1):
        opening = datetime.combine(today - timedelta(days=back), _OPEN)
        for number in range(1, customers + 1):
            for _ in range(_visits(rng, is_today=back == 0)):
                seated = opening + timedelta(seconds=rng.randrange(_OPEN_SECONDS))
                _visit(rng, events, f"c{number:04d}", seated)
    return events


def _visits(rng: Random, *, is_today: bool) -> int:
    if not is_today:
        return int(rng.random() < 0.3)
    return bisect_right((0.15, 0.60, 0.85), rng.random())


def _visit(rng: Random, events: dict[str, list[Event]], customer: str, seated: datetime) -> None:
    """Add the events of one visit: a customer sits down, may change seats, orders and pays."""
    arrivals, orders = events["arrivals"], events["orders"]
    arrivals.append(Arrival(f"a{len(arrivals):05d}", customer, 1 + rng.randrange(_SEATS), seated))
    if rng.random() < 0.04:
        moved = seated + timedelta(seconds=90)
        arrivals.append(Arrival(f"a{len(arrivals):05d}", customer, 1 + rng.randrange(_SEATS), moved))
    at = seated
    for nth in range(bisect_right((0.06, 0.76), rng.random())):
        at += timedelta(seconds=_until_order(rng) if nth == 0 else 600 + rng.randrange(1800))
        drink, price = _MENU[rng.randrange(len(_MENU))]
        order = Order(f"o{len(orders):05d}", customer, drink, price, at)
        orders.append(order)
        _pay(rng, events["payments"], order)


def _until_order(rng: Random) -> int:
    # Some customers order exactly five minutes after being seated, which is still within five minutes.
    kind = rng.random()
    if kind < 0.03:
        return 300
    return 30 + rng.randrange(270) if kind < 0.8 else 301 + rng.randrange(1200)


def _pay(rng: Random, payments: list[Event], order: Order) -> None:
    """Add the payment of an order, unless it stays unpaid, and sometimes a payment without an order."""
    kind = rng.random()
    paid: int | None = 20 + rng.randrange(1500)
    if kind < 0.05:
        paid = None
    elif kind < 0.08:
        paid = 1801 + rng.randrange(1200)
    elif kind < 0.09:
        paid = 1800
    if paid is not None:
        tip = (0, 0, 20, 50)[rng.randrange(4)]
        at = order.ts + timedelta(seconds=paid)
        name = f"p{len(payments):05d}"
        payments.append(Payment(name, order.order_id, order.customer, order.amount + tip, at))
    if rng.random() < 0.02:
        name = f"p{len(payments):05d}"
        at = order.ts + timedelta(seconds=rng.randrange(600))
        payments.append(Payment(name, f"unknown-{name}", order.customer, 500, at))


def _slots(today: date, files: int) -> list[datetime]:
    """Return the end times of the files: a third of the files covers the days before."""
    first = datetime.combine(today - timedelta(days=_DAYS_BACK), _OPEN)
    opening = datetime.combine(today, _OPEN)
    before = files // 3
    history = [first + (opening - first) * n / before for n in range(1, before + 1)]
    rest = files - before
    return history + [opening + timedelta(hours=12) * n / rest for n in range(1, rest)]


def _delivered(
    rng: Random, happened: dict[str, list[Event]], slots: list[datetime], today: date
) -> CoffeeDay:
    """Distribute events over files by delivery time, some twice, some far too late."""
    count = len(slots) + 1
    streams: dict[str, list[list[tuple[datetime, Event]]]] = {}
    tardy: dict[str, list[Event]] = {}
    repeated = dict.fromkeys(STREAMS, 0)
    for stream, events in happened.items():
        streams[stream] = [[] for _ in range(count)]
        tardy[stream] = []
        for event in events:
            if rng.random() < 0.02:
                tardy[stream].append(event)
                continue
            _deliver(rng, streams[stream], event, slots)
            # The till sends an order once; the camera and the terminal resend events if unsure.
            if stream != "orders" and rng.random() < 0.04:
                _deliver(rng, streams[stream], event, slots)
                repeated[stream] += 1
    passed = _passed(streams, count)
    late = dict.fromkeys(STREAMS, 0)
    for stream, held in tardy.items():
        for event in held:
            after = [n for n, moment in enumerate(passed) if moment is not None and event.ts <= moment]
            if not after:  # the event is too near the end of the day to be late
                _deliver(rng, streams[stream], event, slots)
                continue
            number = after[rng.randrange(len(after))]
            streams[stream][number].append((event.ts + timedelta(days=1), event))
            late[stream] += 1
    for closing in _closing(today):
        stream = "orders" if isinstance(closing, Order) else "payments"
        streams[stream][-1].append((closing.ts, closing))
    return CoffeeDay(
        MappingProxyType({stream: _ordered(files) for stream, files in streams.items()}),
        MappingProxyType(late),
        MappingProxyType(repeated),
    )


def _deliver(
    rng: Random, files: list[list[tuple[datetime, Event]]], event: Event, slots: list[datetime]
) -> None:
    delivered = event.ts + timedelta(seconds=rng.randrange(int(DISORDER.total_seconds())))
    files[bisect_right(slots, delivered)].append((delivered, event))


def _passed(streams: Mapping[str, list[list[tuple[datetime, Event]]]], count: int) -> list[datetime | None]:
    """Return, for each file, the time that every watermark has passed when the file is read.

    The times hold for any division into batches. A query may read any of the streams, and its watermark is
    that of the slowest stream.
    """
    passed: list[datetime | None] = []
    for number in range(count):
        newest = [
            max((event.ts for file in files[: max(0, number - FAR + 1)] for _, event in file), default=None)
            for files in streams.values()
        ]
        known = [moment for moment in newest if moment is not None]
        passed.append(min(known) - DELAY if len(known) == len(newest) else None)
    return passed


def _closing(today: date) -> list[Order | Payment]:
    monday = today + timedelta(days=7 - today.weekday())
    at = datetime.combine(monday + timedelta(days=1), _OPEN)
    return [
        Order(f"{CLOSING}-order", CLOSING, "none", 0, at),
        Payment(f"{CLOSING}-payment", f"{CLOSING}-none", CLOSING, 0, at),
    ]


def _ordered(files: Iterable[list[tuple[datetime, Event]]]) -> Files:
    return tuple(
        tuple(event for _, event in sorted(file, key=lambda delivery: delivery[0])) for file in files
    )
