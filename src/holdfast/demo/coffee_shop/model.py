"""The expected answers of the coffee shop, computed in plain Python from the files alone.

The model is independent of Spark, the job and the generator of the day. It reads the streams in the order
of their files and applies the documented rules:

- **Repeats.** Rows with the same `arrival_id` (or `payment_id`) are one event.
- **Late rows.** A query's watermark is ten minutes behind the newest time that it has read; with two streams,
  the slower one counts. A row at or before the watermark is dropped. The watermark moves between batches, and
  the division of files into batches may change when a driver dies. A row therefore counts as on time only if
  no division can drop it, and as late only if every division drops it (with at most two files of a stream per
  batch). Any other row has no defined answer and raises an error.
- **Held rows.** A week is reported once the watermark has passed its end. An order or payment without a
  match is reported once the watermark excludes a later match, and so is a customer who has sat for five
  minutes without an order.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast.errors import Invalid, NotFound

Value: TypeAlias = "str | int | None"
Row: TypeAlias = tuple[Value, ...]

_DELAY_MINUTES: Final = 10
_DELAY: Final = timedelta(minutes=_DELAY_MINUTES)
_SEATED_TO_ORDER: Final = timedelta(minutes=5)
_ORDER_TO_PAYMENT: Final = timedelta(minutes=30)
# A regular visited on at least this many of this many days before.
_REGULAR_DAYS: Final = 3
_REGULAR_OF: Final = 7
# A batch drops late rows by the watermark of the second-to-last batch. With two files per batch, the nearest
# file that certainly counts is this number of files back.
_SURE: Final = 5
_SAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """A question and its answer.

    Attributes:
        name: The name of the sink.
        question: The question as text.
        columns: The names of the columns.
        rows: The answer, in no particular order.
    """

    name: str
    question: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class RowComparison:
    """The difference between actual and expected rows; duplicate rows are counted.

    Attributes:
        equal: The number of rows in both.
        missing: The number of expected rows that were not found.
        extra: The number of rows found that were not expected.
        missing_samples: The first few of the missing rows.
        extra_samples: The first few of the extra rows.
    """

    name: str
    equal: int
    missing: int
    extra: int
    missing_samples: tuple[Row, ...] = ()
    extra_samples: tuple[Row, ...] = ()

    @property
    def exact(self) -> bool:
        """Return whether no row is missing or extra."""
        return not self.missing and not self.extra


@dataclass(frozen=True, slots=True)
class ShopEvent:
    """A row of a stream: its fields, its event time, and its file."""

    fields: Mapping[str, Any]
    at: datetime
    file: int


@dataclass(frozen=True, slots=True)
class ShopStream:
    """The rows of one stream, and the newest time in its first files.

    Attributes:
        reach: The newest time in the files read, by the number of files; None before the first row.
    """

    name: str
    events: tuple[ShopEvent, ...]
    reach: tuple[datetime | None, ...]


def read_day(directory: Path) -> dict[str, ShopStream]:
    """Read the three streams under a directory, in the order of their files' names.

    Raises:
        NotFound: A stream has no files.
    """
    return {name: _read_stream(directory / name) for name in ("arrivals", "orders", "payments")}


def answers(day: Mapping[str, ShopStream]) -> tuple[QuestionAnswer, ...]:
    """Return the five answers that the job must give once it has read all input.

    Raises:
        Invalid: A row is neither late nor on time for every division into batches.
    """
    return (_visits(day), _spend_week(day), _served_in_five(day), _unpaid(day), _regulars(day))


def late_counts(day: Mapping[str, ShopStream]) -> dict[str, int]:
    """Return the number of late rows for each question."""
    sources = {
        "visits": ("arrivals",),
        "spend_week": ("payments",),
        "served_in_five": ("arrivals", "orders"),
        "unpaid": ("orders", "payments"),
        "regulars": ("arrivals", "orders", "payments"),
    }
    counts = {}
    for question, names in sources.items():
        streams = [day[name] for name in names]
        counts[question] = sum(_is_late(event, own, streams) for own in streams for event in own.events)
    return counts


def compare(expected: QuestionAnswer, found: Iterable[Row]) -> RowComparison:
    """Compare rows as multisets: the order is ignored, and duplicates are counted."""
    wanted, got = Counter(expected.rows), Counter(found)
    missing, extra = wanted - got, got - wanted
    return RowComparison(
        name=expected.name,
        equal=sum((wanted & got).values()),
        missing=sum(missing.values()),
        extra=sum(extra.values()),
        missing_samples=_samples(missing),
        extra_samples=_samples(extra),
    )


def rows_of(records: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[Row]:
    """Return rows of a table in the model's format: times as ISO text in UTC, in the order of `columns`.

    A time without a zone is UTC, as a session in UTC writes it.
    """
    return [tuple(_plain(record[column]) for column in columns) for record in records]


def _read_stream(folder: Path) -> ShopStream:
    files = sorted(folder.glob("*.json"))
    if not files:
        raise NotFound(
            "the demo stream has no input files",
            code="HF-E3032",
            where=str(folder),
            expected="*.json",
            hint="generate the input first: CoffeeDay.make().write(directory)",
        )
    events: list[ShopEvent] = []
    reach: list[datetime | None] = [None]
    for number, path in enumerate(files):
        for line in path.read_text(encoding="utf-8").splitlines():
            fields = json.loads(line)
            # Python 3.10 does not parse the Z.
            at = datetime.fromisoformat(fields["ts"].replace("Z", "+00:00"))
            events.append(ShopEvent(fields, at, number))
        reach.append(max((event.at for event in events), default=None))
    return ShopStream(folder.name, tuple(events), tuple(reach))


def _is_late(event: ShopEvent, own: ShopStream, streams: Sequence[ShopStream]) -> bool:
    # The watermark cannot be later than the earlier rows of this stream, nor than those of all other streams.
    furthest = [own.reach[event.file], *(stream.reach[-1] for stream in streams if stream is not own)]
    if any(moment is None or event.at > moment - _DELAY for moment in furthest):
        return False
    read = max(0, event.file - _SURE + 1)
    surely = [stream.reach[min(read, len(stream.reach) - 1)] for stream in streams]
    if all(moment is not None and event.at <= moment - _DELAY for moment in surely):
        return True
    raise Invalid(
        (
            "the expected result cannot be computed, because Spark's split of the files into"
            " batches decides whether a row is late"
        ),
        code="HF-E2176",
        where=f"{own.name}, file {event.file}",
        found=json.dumps(dict(event.fields)),
        expected=f"a timestamp less than {_DELAY_MINUTES} minutes before the newest earlier"
        f" row, or a late row at least {_SURE} files after the rows that make it late",
        hint="generate the input with CoffeeDay.make().write(directory)",
    )


def _on_time(day: Mapping[str, ShopStream], *names: str) -> list[list[ShopEvent]]:
    """Return the rows of each stream that a query over all streams does not drop."""
    streams = [day[name] for name in names]
    return [[event for event in own.events if not _is_late(event, own, streams)] for own in streams]


def _once(events: Iterable[ShopEvent], key: str) -> list[ShopEvent]:
    """Return the events without duplicates of a key."""
    return list({event.fields[key]: event for event in events}.values())


def _final_watermark(day: Mapping[str, ShopStream], *names: str) -> datetime:
    newest = [day[name].reach[-1] for name in names]
    known = [moment for moment in newest if moment is not None]
    if len(known) < len(newest):
        return datetime.min.replace(tzinfo=timezone.utc)
    return min(known) - _DELAY


def _visits(day: Mapping[str, ShopStream]) -> QuestionAnswer:
    (arrivals,) = _on_time(day, "arrivals")
    counts = Counter((e.fields["customer"], e.at.date().isoformat()) for e in _once(arrivals, "arrival_id"))
    return QuestionAnswer(
        "visits",
        "How many times has each customer been here today?",
        ("customer", "day", "visits"),
        tuple((customer, on, count) for (customer, on), count in counts.items()),
    )


def _spend_week(day: Mapping[str, ShopStream]) -> QuestionAnswer:
    (payments,) = _on_time(day, "payments")
    watermark = _final_watermark(day, "payments")
    spent: dict[tuple[str, date], list[int]] = defaultdict(list)
    for event in _once(payments, "payment_id"):
        monday = event.at.date() - timedelta(days=event.at.weekday())
        spent[event.fields["customer"], monday].append(event.fields["amount"])
    return QuestionAnswer(
        "spend_week",
        "How much did each customer spend this week?",
        ("customer", "week", "cents", "payments"),
        tuple(
            (customer, monday.isoformat(), sum(amounts), len(amounts))
            for (customer, monday), amounts in spent.items()
            if _midnight(monday + timedelta(days=7)) <= watermark
        ),
    )


def _served_in_five(day: Mapping[str, ShopStream]) -> QuestionAnswer:
    arrivals, orders = _on_time(day, "arrivals", "orders")
    seated: dict[str, list[ShopEvent]] = defaultdict(list)
    for arrival in _once(arrivals, "arrival_id"):
        seated[arrival.fields["customer"]].append(arrival)
    rows: list[Row] = []
    for order in orders:
        for arrival in seated[order.fields["customer"]]:
            if timedelta(0) <= order.at - arrival.at <= _SEATED_TO_ORDER:
                seen, asked = arrival.fields, order.fields
                rows.append(
                    (
                        seen["arrival_id"],
                        asked["order_id"],
                        asked["customer"],
                        seen["seat"],
                        asked["drink"],
                        _plain(arrival.at),
                        _plain(order.at),
                    )
                )
    return QuestionAnswer(
        "served_in_five",
        "What did each customer order within five minutes of being seated?",
        ("arrival_id", "order_id", "customer", "seat", "drink", "seated_at", "ordered_at"),
        tuple(rows),
    )


def _unpaid(day: Mapping[str, ShopStream]) -> QuestionAnswer:
    orders, payments = _on_time(day, "orders", "payments")
    payments = _once(payments, "payment_id")
    watermark = _final_watermark(day, "orders", "payments")
    ordered: dict[str, list[ShopEvent]] = defaultdict(list)
    paid: dict[str, list[ShopEvent]] = defaultdict(list)
    for order in orders:
        ordered[order.fields["order_id"]].append(order)
    for payment in payments:
        paid[payment.fields["order_id"]].append(payment)

    def met(order: ShopEvent, payment: ShopEvent) -> bool:
        return timedelta(0) <= payment.at - order.at <= _ORDER_TO_PAYMENT

    rows: list[Row] = []
    for order in orders:
        alone = not any(met(order, payment) for payment in paid[order.fields["order_id"]])
        if alone and order.at + _ORDER_TO_PAYMENT <= watermark:
            rows.append(_unmatched("order", order, None))
    for payment in payments:
        alone = not any(met(order, payment) for order in ordered[payment.fields["order_id"]])
        if alone and payment.at <= watermark:
            rows.append(_unmatched("payment", payment, payment.fields["payment_id"]))
    return QuestionAnswer(
        "unpaid",
        "Which orders and payments have no match?",
        ("what", "order_id", "payment_id", "customer", "cents", "at"),
        tuple(rows),
    )


def _regulars(day: Mapping[str, ShopStream]) -> QuestionAnswer:
    arrivals, orders, payments = _on_time(day, "arrivals", "orders", "payments")
    arrivals, payments = _once(arrivals, "arrival_id"), _once(payments, "payment_id")
    watermark = _final_watermark(day, "arrivals", "orders", "payments")
    came, ordered, paid = _by_customer(arrivals), _by_customer(orders), _by_customer(payments)
    rows: list[Row] = []
    for seated in arrivals:
        customer = seated.fields["customer"]
        served = any(timedelta(0) <= order.at - seated.at <= _SEATED_TO_ORDER for order in ordered[customer])
        if served or seated.at + _SEATED_TO_ORDER > watermark:
            continue
        visits, drinks, bills = (_week_before(seated, all_[customer]) for all_ in (came, ordered, paid))
        days = len({visit.at.date() for visit in visits})
        if days < _REGULAR_DAYS:
            continue
        taken = Counter(order.fields["drink"] for order in drinks)
        rows.append(
            (
                seated.fields["arrival_id"],
                customer,
                seated.fields["seat"],
                _plain(seated.at),
                days,
                len(visits),
                sum(bill.fields["amount"] for bill in bills),
                next((drink for drink in sorted(taken) if taken[drink] == max(taken.values())), None),
            )
        )
    return QuestionAnswer(
        "regulars",
        "Which regulars sat for five minutes without an order?",
        ("arrival_id", "customer", "seat", "seated_at", "days", "visits", "cents", "usual"),
        tuple(rows),
    )


def _by_customer(events: Iterable[ShopEvent]) -> dict[str, list[ShopEvent]]:
    by_customer: dict[str, list[ShopEvent]] = defaultdict(list)
    for event in events:
        by_customer[event.fields["customer"]].append(event)
    return by_customer


def _week_before(event: ShopEvent, others: Iterable[ShopEvent]) -> list[ShopEvent]:
    """Return the events of the seven days before the day of `event`."""
    midnight = _midnight(event.at.date())
    return [other for other in others if midnight - timedelta(days=_REGULAR_OF) <= other.at < midnight]


def _unmatched(what: str, event: ShopEvent, payment_id: str | None) -> Row:
    fields = event.fields
    return (what, fields["order_id"], payment_id, fields["customer"], fields["amount"], _plain(event.at))


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=timezone.utc)


def _plain(value: Any) -> Value:
    if isinstance(value, datetime):
        utc = value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value.astimezone(timezone.utc)
        return utc.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if value is None or isinstance(value, (str, int)):
        return value
    raise Invalid(
        "an answer of the demo contains a value of an unsupported type",
        code="HF-E2177",
        found=type(value).__name__,
        expected="text, an integer, a date or a time",
        hint="convert the column in the job, or extend the model",
    )


def _samples(rows: Counter[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows.elements(), key=repr)[:_SAMPLES])
