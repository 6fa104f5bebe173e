"""How the state of each operator grows, and when that meets a limit: by its bytes, and by its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

from holdfast.config.units import rounded_size
from holdfast.json_shapes import JsonShape
from holdfast.model import BatchProgress, OperatorProgress
from holdfast.observe.forecast import enough, full_in_ms, growth_per_ms
from holdfast.observe.operator_numbers import operator_bytes, state_bytes, stored_bytes
from holdfast.observe.totals import operator_label

DAY_MS: Final = 86_400_000


class Growing(str, Enum):
    """What is known of the growth of a state."""

    GROWS = "grows"
    DOES_NOT_GROW = "does_not_grow"
    TOO_LITTLE_SEEN = "too_little_seen"

    @property
    def words(self) -> str:
        """The same for people."""
        return self.value.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Growth(JsonShape):
    """How the state of one operator grows.

    There are two forecasts, and the sooner one counts. The trend is a line through the operator's sizes. Key
    arrival is a line through its keys, each with the size that a key has now: it sees growth that the files
    of a store do not show yet, and it stops where as many keys are removed as arrive.

    Attributes:
        operator: Its number in the plan, and what people call it.
        growing: `grows`, `does_not_grow` or `too_little_seen`.
        size_bytes: What it takes now.
        limit_bytes: How large it may become: what the query's limit leaves it beside the other operators;
            None where the query has no limit.
        bytes_a_day: How fast it grows by its trend; None where it does not.
        keys_a_day: Keys, or rows, that a day brings more than it removes; None where there are none.
        new_keys: Keys, or rows, that arrived in the batches that were looked at; None where not all of these
            are counted.
        removed_keys: Those that were removed in them.
        full_at_ms: When it meets its limit, if it grows on like that, in epoch milliseconds.
        by: Which forecast says so: `trend` or `key_arrival`.
    """

    operator: str
    growing: Growing
    size_bytes: int
    limit_bytes: int | None
    bytes_a_day: float | None
    keys_a_day: float | None
    new_keys: int | None
    removed_keys: int | None
    full_at_ms: int | None
    by: str | None

    @property
    def why(self) -> str:
        """What was seen, in a sentence."""
        if self.growing is Growing.TOO_LITTLE_SEEN:
            return (
                f"operator {self.operator}: there are fewer than ten batches, or they span under five minutes"
            )
        keys = "" if self.new_keys is None else f": {self.new_keys:,} keys came, {self.removed_keys:,} went"
        if self.growing is Growing.DOES_NOT_GROW:
            return f"operator {self.operator} does not grow{keys}"
        speeds = [
            *([] if self.bytes_a_day is None else [f"{rounded_size(self.bytes_a_day)} a day"]),
            *([] if self.keys_a_day is None else [f"{self.keys_a_day:,.0f} keys a day"]),
        ]
        return f"operator {self.operator} grows by {' and '.join(speeds)}{keys}"


def state_limit(thresholds: Mapping[str, float]) -> float | None:
    """How large the state of a query may be by the thresholds of a job's alerts."""
    return thresholds.get("state_size")


def growth(history: Sequence[BatchProgress], limit_bytes: float | None) -> tuple[Growth, ...]:
    """How each operator of a query grows.

    Args:
        history: The query's last batches, oldest first.
        limit_bytes: How large the state of the query may be; None if nothing says so.
    """
    if not history:
        return ()
    same = _same_plan(history)
    newest = same[-1]
    whole = state_bytes(newest)
    found = []
    for index, operator in enumerate(newest.operators):
        size = operator_bytes(operator)
        limit = None if limit_bytes is None else max(int(limit_bytes) - (whole - size), 0)
        found.append(_growth(same, index, limit))
    return tuple(found)


def state_full_in_ms(history: Sequence[BatchProgress], limit_bytes: float | None) -> float | None:
    """How long after the newest batch the state of a query meets its limit, by the sooner forecast.

    Returns:
        None where the state does not grow, where too little is known, and once it is that large.
    """
    if limit_bytes is None or not history or not history[-1].operators:
        return None
    same = _same_plan(history)
    size = state_bytes(same[-1])
    points = [(batch.committed_ms, float(state_bytes(batch))) for batch in same if _in_files(batch)]
    by_trend = full_in_ms(points, limit_bytes)
    per_ms = sum(_arrival(same, index) or 0.0 for index in range(len(same[-1].operators)))
    by_arrival = (limit_bytes - size) / per_ms if per_ms and size < limit_bytes else None
    known = [left for left in (by_trend, by_arrival) if left]
    return min(known) if known else None


def _growth(history: Sequence[BatchProgress], index: int, limit_bytes: int | None) -> Growth:
    operator = history[-1].operators[index]
    now_ms, size = history[-1].committed_ms, operator_bytes(operator)
    sizes = _sizes(history, index)
    trend = growth_per_ms(sizes)
    counted = _counted(history, index)
    keys = growth_per_ms(counted)
    new, removed = _came_and_went(history, index)
    full: dict[str, float] = {}
    if limit_bytes is not None:
        by_trend = full_in_ms(sizes, limit_bytes)
        arriving = _arrival(history, index)
        if by_trend is not None:
            full["trend"] = by_trend
        if arriving:
            full["key_arrival"] = max(limit_bytes - size, 0) / arriving
    by = min(full, key=full.__getitem__) if full else None
    grows = trend is not None or keys is not None
    seen = enough(sizes) or enough(counted)
    return Growth(
        operator_label(index, operator),
        Growing.GROWS if grows else Growing.DOES_NOT_GROW if seen else Growing.TOO_LITTLE_SEEN,
        size,
        limit_bytes,
        None if trend is None else trend * DAY_MS,
        None if keys is None else keys * DAY_MS,
        new,
        removed,
        None if by is None or not grows else now_ms + round(full[by]),
        by if grows else None,
    )


def _same_plan(history: Sequence[BatchProgress]) -> list[BatchProgress]:
    """The batches whose operators are those of the newest one."""
    number = len(history[-1].operators)
    return [batch for batch in history if len(batch.operators) == number]


def _in_files(batch: BatchProgress) -> bool:
    # Memory fills up to its bounds at first, which is no growth of state.
    return bool(batch.operators) and all(stored_bytes(operator) for operator in batch.operators)


def _sizes(history: Sequence[BatchProgress], index: int) -> list[tuple[int, float]]:
    found = ((batch.committed_ms, stored_bytes(batch.operators[index])) for batch in history)
    return [(at_ms, float(size)) for at_ms, size in found if size]


def _counted(history: Sequence[BatchProgress], index: int) -> list[tuple[int, float]]:
    found = ((batch.committed_ms, batch.operators[index].rows) for batch in history)
    return [(at_ms, float(rows)) for at_ms, rows in found if rows is not None]


def _arrival(history: Sequence[BatchProgress], index: int) -> float | None:
    """The bytes that keys bring in a millisecond, beyond those that are removed; None where they do not."""
    operator = history[-1].operators[index]
    size = stored_bytes(operator)
    keys = growth_per_ms(_counted(history, index))
    return None if keys is None or not operator.rows or not size else keys * size / operator.rows


def _came_and_went(history: Sequence[BatchProgress], index: int) -> tuple[int | None, int | None]:
    """Keys that arrived, and those that were removed, in all batches but the first."""
    pairs = [(former.operators[index], later.operators[index]) for former, later in pairwise(history)]
    new = [_new_keys(former, later) for former, later in pairs]
    known = [number for number in new if number is not None]
    if not known or len(known) < len(new):
        return None, None
    return sum(known), sum(later.removed for _, later in pairs)


def _new_keys(former: OperatorProgress, later: OperatorProgress) -> int | None:
    """Keys that a batch has brought; Spark counts those that it wrote, whether they were new or not."""
    if later.keyed is not None:
        return later.keyed.added
    if former.rows is None or later.rows is None:
        return None
    return max(later.rows - former.rows + later.removed, 0)
