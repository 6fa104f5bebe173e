"""What the golden checkpoints must hold, worked out from their input in plain Python.

Twelve files of ten events, one a batch: see tests/golden/make.py.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

FILES = 12
BEGIN = dt.datetime(2026, 3, 5, 8, tzinfo=dt.timezone.utc)
MINUTE = dt.timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Event:
    customer: str
    amount: int
    ts: dt.datetime


def events(batch: int) -> list[Event]:
    """Of one file; the tenth is as old as the file before."""
    found = []
    for each in range(10):
        minute = batch - 1 if each == 9 and batch else batch
        ts = BEGIN + minute * MINUTE + dt.timedelta(seconds=5 * each)
        found.append(Event(f"c{(batch + each) % 10}", batch * 10 + each, ts))
    return found


def taken(checkpoint: Mapping[str, bytes]) -> list[int]:
    """The files in the order in which the query has taken them, which Spark may choose by itself."""
    found = {}
    source = min(path.split("/")[1] for path in checkpoint if path.startswith("sources/"))
    for path, data in checkpoint.items():
        if path.startswith(f"sources/{source}/") and not path.endswith(".crc"):
            for line in data.decode().splitlines()[1:]:
                entry = json.loads(line)
                found[entry["batchId"]] = int(PurePosixPath(entry["path"]).stem)
    return [found[batch] for batch in sorted(found)]


def all_events(files: Sequence[int] = range(FILES)) -> list[Event]:
    return [event for file in files for event in events(file)]


def watermark(files: Sequence[int] = range(FILES)) -> dt.datetime:
    """What they have moved it to, with a delay of a minute."""
    return max(event.ts for event in all_events(files)) - MINUTE


def aggregate(files: Sequence[int] = range(FILES)) -> dict[str, tuple[int, int]]:
    """Visits and spend by customer."""
    visits: Counter[str] = Counter()
    spend: Counter[str] = Counter()
    for event in all_events(files):
        visits[event.customer] += 1
        spend[event.customer] += event.amount
    return {customer: (visits[customer], spend[customer]) for customer in visits}


def amounts(files: Sequence[int]) -> dict[str, list[int]]:
    """Every amount by customer, as they came."""
    found: dict[str, list[int]] = defaultdict(list)
    for event in all_events(files):
        found[event.customer].append(event.amount)
    return dict(found)


def windows() -> dict[tuple[dt.datetime, str], int]:
    """Counts of the windows of two minutes that the watermark has not closed."""
    found: Counter[tuple[dt.datetime, str]] = Counter()
    for event in all_events():
        start = BEGIN + (event.ts - BEGIN) // (2 * MINUTE) * (2 * MINUTE)
        if start + 2 * MINUTE > watermark():
            found[start, event.customer] += 1
    return dict(found)


def sessions() -> set[tuple[str, dt.datetime]]:
    """Customer and start of the open sessions; nobody comes twice within half a minute."""
    half = dt.timedelta(seconds=30)
    return {(event.customer, event.ts) for event in all_events() if event.ts + half > watermark()}


def joinable() -> list[Event]:
    """Events of one side that one of the other side can still come for."""
    return [event for event in all_events() if event.ts >= watermark() - MINUTE]


def joinable_by_minute() -> list[Event]:
    """The same of a join whose times are whole minutes."""
    minutes = [replace(event, ts=event.ts.replace(second=0)) for event in all_events()]
    newest = max(event.ts for event in minutes)
    return [event for event in minutes if event.ts >= newest - 2 * MINUTE]


def seen_within_watermark(files: Sequence[int], batches: int) -> dict[str, dt.datetime]:
    """Customers that dropDuplicatesWithinWatermark still holds, with the time they are held until."""
    held: dict[str, dt.datetime] = {}
    for batch in range(batches):
        before = watermark(files[:batch]) if batch else dt.datetime.min.replace(tzinfo=dt.timezone.utc)
        for event in events(files[batch]) if batch < len(files) else []:
            if event.ts > before and event.customer not in held:
                held[event.customer] = event.ts + MINUTE
        held = {customer: until for customer, until in held.items() if until > before}
    return held
