"""What a time to live, or another watermark delay, would free of a state that is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.at_rest.read.model import NamedState, StateAges, StateForm
from holdfast.at_rest.read.state_catalog import pick_operators
from holdfast.at_rest.read.state_reader import StateReader
from holdfast.checkpoints.values import ProgressCallback
from holdfast.errors import Invalid
from holdfast.json_shapes import JsonShape, json_as

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
# Where one bar of the histogram ends and the next begins.
_EDGES: Final = (
    ("1 min", _MINUTE),
    ("5 min", 5 * _MINUTE),
    ("15 min", 15 * _MINUTE),
    ("1 h", _HOUR),
    ("3 h", 3 * _HOUR),
    ("6 h", 6 * _HOUR),
    ("12 h", 12 * _HOUR),
    ("1 d", _DAY),
    ("2 d", 2 * _DAY),
    ("3 d", 3 * _DAY),
    ("7 d", 7 * _DAY),
    ("14 d", 14 * _DAY),
    ("30 d", 30 * _DAY),
    ("90 d", 90 * _DAY),
    ("365 d", 365 * _DAY),
)


@dataclass(frozen=True, slots=True)
class Bar(JsonShape):
    """Rows of about one age.

    Attributes:
        label: Its range, in words.
        from_ms: The least age in it; None for what lies ahead of the clock.
        to_ms: Where the next bar begins; None for the last.
        rows: How many rows.
        size_bytes: Their bytes.
    """

    label: str
    from_ms: int | None
    to_ms: int | None
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class WhatIf(JsonShape):
    """One state under the rule that was asked about.

    Attributes:
        operator_id: The operator's number.
        name: The state.
        form: What it holds for a key.
        rows: Its rows: keys, or elements and entries where a key has several.
        size_bytes: Their bytes.
        clock: By which clock its times go; None where it carries none.
        what: What its times are; or why the rule cannot be applied.
        now_ms: What that clock showed after the batch.
        timed_rows: Rows that carry a time.
        freed_rows: Rows that the rule would free; None where it cannot be applied.
        freed_bytes: Their bytes.
        histogram: Rows by age, from the youngest that there are to the oldest.
    """

    operator_id: int
    name: str = field(metadata=json_as("state"))
    form: StateForm
    rows: int
    size_bytes: int
    clock: str | None
    what: str
    now_ms: int | None
    timed_rows: int
    freed_rows: int | None
    freed_bytes: int | None
    histogram: tuple[Bar, ...]


def what_if(
    reader: StateReader,
    *,
    ttl_ms: int | None = None,
    watermark_ms: int | None = None,
    state: str | None = None,
    operator: str | int | None = None,
    by: str | None = None,
    current_ttl_ms: int | None = None,
    tell: ProgressCallback | None = None,
) -> tuple[WhatIf, ...]:
    """Apply a rule to the state that is there; nothing is changed.

    A time to live frees what is older by the clock of its state: the time of the newest batch where the state
    carries times of processing, the watermark where it carries event times. A watermark delay frees what the
    watermark would have passed had it had this delay; a longer one frees nothing.

    Cost: every row is read, about 2 microseconds each.

    Args:
        reader: The checkpoint or savepoint at its batch.
        ttl_ms: A time to live.
        watermark_ms: A delay of the watermark.
        state: Only this state; all by default.
        operator: Only this operator; all by default.
        by: A column of the state that has the time, where the state carries none of itself.
        current_ttl_ms: The time to live that a state of Spark's has now, where it cannot be worked out.
        tell: Called with stores done, stores in all, and what is being done.

    Raises:
        Invalid: Neither rule or both were given, or there is no such column of times.
        NotFound: There is no such state or operator, or a file that the batch needs is gone.
        Corrupt: A file or a row is damaged.
    """
    if (ttl_ms is None) == (watermark_ms is None):
        raise Invalid("ask about a time to live, or about a watermark's delay", hint="give one of the two")
    if by is not None and state is None:
        raise Invalid("a column is one of a certain state", found=by, hint="name the state too")
    asked: NamedState | None = None
    if state is None:
        operators = pick_operators(reader.operators, operator)
    else:
        chosen, asked = reader.pick(state, operator)
        operators = (chosen,)
    if asked is not None and asked.form is not StateForm.KEYED:
        parts = [asked]
    else:
        # What a keyed operator holds for a key is asked state by state.
        parts = [part for one in operators for part in one.states if part.source.has_ages(part)]
    return tuple(
        _applied(part.source.ages(part, by, current_ttl_ms, tell), ttl_ms, watermark_ms) for part in parts
    )


def _applied(aged: StateAges, ttl_ms: int | None, watermark_ms: int | None) -> WhatIf:
    cut, why = _cut(aged, ttl_ms, watermark_ms)
    freed = None if cut is None else aged.times <= cut
    return WhatIf(
        aged.state.operator_id,
        aged.state.full_name,
        aged.state.form,
        aged.rows,
        aged.size_bytes,
        aged.clock,
        why or aged.what,
        aged.now_ms,
        len(aged.times) if aged.clock is not None else 0,
        None if freed is None else int(freed.sum()),
        None if freed is None else int(aged.sizes[freed].sum()),
        _histogram(aged) if aged.clock is not None and aged.now_ms is not None else (),
    )


def _cut(aged: StateAges, ttl_ms: int | None, watermark_ms: int | None) -> tuple[int | None, str | None]:
    """The time up to which rows would be freed; or why there is none."""
    if aged.clock is None:
        return None, None
    if aged.now_ms is None:
        return None, "no watermark has been reached yet"
    if ttl_ms is not None:
        return aged.now_ms - ttl_ms, None
    if aged.clock != "event":
        return None, "its times are those of processing, which no watermark touches"
    if aged.delay_ms is None or watermark_ms is None:
        return None, "its files do not tell the delay that the watermark has now"
    return aged.now_ms + aged.delay_ms - watermark_ms, None


def _histogram(aged: StateAges) -> tuple[Bar, ...]:
    import numpy as np

    if not len(aged.times) or aged.now_ms is None:
        return ()
    old: NDArray[np.int64] = aged.now_ms - aged.times
    edges = [0, *(edge for _, edge in _EDGES)]
    place = np.searchsorted(np.array(edges), old, side="right")
    labels = ["ahead", *(f"under {label}" for label, _ in _EDGES), f"{_EDGES[-1][0]} and more"]
    bounds: list[int | None] = [None, *edges, None]
    bars = []
    for at in range(int(place.min()), int(place.max()) + 1):
        here = place == at
        size = int(aged.sizes[here].sum())
        bars.append(Bar(labels[at], bounds[at], bounds[at + 1], int(here.sum()), size))
    return tuple(bars)
