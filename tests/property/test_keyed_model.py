"""A processor run without Spark puts out what the rules say, through restarts and any number of groups."""

from __future__ import annotations

import datetime as dt
from typing import Any

from grid import WHOLE
from hypothesis import given, settings
from hypothesis import strategies as st
from keyed_programs import EVENTS, OPS, OUTPUT, Everything, Model

from holdfast.testing import Harness

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
START = 1_000_000

EVENT = st.fixed_dictionaries(
    {
        "who": st.sampled_from(["ann", None]),
        "op": st.sampled_from((*OPS, "add", "add", "read", "read", "read")),
        "n": st.integers(0, 8),
        "ts": st.sampled_from(range(START, START + 60_000, 2_000)),
    }
)
BATCH = st.fixed_dictionaries(
    {
        "events": st.lists(EVENT, max_size=6),
        "now": st.sampled_from([0, 1_000, 2_000, 5_000, 10_000]),
        "watermark": st.sampled_from([0, 2_000, 6_000, 20_000]),
        "restart": st.booleans(),
    }
)


def in_time(ms: int) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=ms)


# Clocks move in few and round steps, so that they meet the ends of lives and timers exactly.
@settings(max_examples=300 if WHOLE else 25)
@given(st.lists(BATCH, min_size=4, max_size=12), st.integers(1, 9))
def test_a_processor_follows_the_rules(batches: list[dict[str, Any]], key_groups: int) -> None:
    now, watermark = START, START - 20_000
    harness = Harness(
        Everything(), by="who", events=EVENTS, output=OUTPUT, time="ts", now=now, key_groups=key_groups
    )
    model = Model()
    for batch in batches:
        if batch["restart"]:
            harness.restart(Everything())
        now, watermark = now + batch["now"], watermark + batch["watermark"]
        harness.set_clocks(now=now, watermark=watermark)
        rows: dict[str | None, list[Any]] = {}
        for row in harness.send(*({**event, "ts": in_time(event["ts"])} for event in batch["events"])):
            rows.setdefault(row["who"], []).append(tuple(row.values()))
        assert rows == model.batch(now, watermark, batch["events"])
        assert len(harness.late_events) == model.late
