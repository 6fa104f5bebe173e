"""What bytes and requests come to in a month."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.advice.cost.prices import DAYS_PER_MONTH, GB, Prices
from holdfast.advice.cost.requests import Requests
from holdfast.json_shapes import JsonShape, in_json

# Less than this is as good as nothing.
_LEAST: Final = 0.0001


@dataclass(frozen=True, slots=True)
class Money(JsonShape):
    """What is paid in a month, in the currency of the prices.

    Attributes:
        local: For what is on local disk.
        checkpoint: For the bytes of the checkpoint, older batches included.
        savepoints: For the bytes of savepoints.
        requests: For requests to object storage; None where they have no price.
        memory: For memory; None where it has no price, or is not known.
        unpriced: What is used and not in the sum, for want of a price: `requests`, or `writes` and `reads`
            where only some requests have prices; `memory`.
    """

    local: float = 0.0
    checkpoint: float = 0.0
    savepoints: float = 0.0
    requests: float | None = None
    memory: float | None = None
    unpriced: tuple[str, ...] = ()

    @property
    @in_json
    def total(self) -> float:
        """All that has a price."""
        return self.local + self.checkpoint + self.savepoints + (self.requests or 0.0) + (self.memory or 0.0)


def money_text(money: float) -> str:
    """Money as people read it: to the cent, or with two digits where it is less than one."""
    if money == 0 or abs(money) >= 1:
        return f"{money:,.2f}"
    return f"{money:.2g}" if abs(money) >= _LEAST else f"< {_LEAST}"


def total_text(money: Money, currency: str) -> str:
    """The sum of a month as people read it, with what it leaves out."""
    text = f"{money_text(money.total)} {currency}"
    return f"{text} without {' and '.join(money.unpriced)} (no price given)" if money.unpriced else text


def storage_money(prices: Prices, medium: str, size_bytes: float) -> float:
    """What bytes cost for a month on `local`, `hdfs` or `s3`."""
    return prices.storage(medium) * size_bytes / GB


def request_money(prices: Prices, a_day: Requests) -> float | None:
    """What the requests of a day cost in a month; None where requests have no price."""
    if not prices.has_requests:
        return None
    writes = prices.writes or 0.0
    lists = writes if prices.lists is None else prices.lists
    a_day_costs = (
        a_day.writes * writes
        + a_day.lists * lists
        + a_day.reads * (prices.reads or 0.0)
        + a_day.deletes * prices.deletes
    )
    return a_day_costs * DAYS_PER_MONTH


def memory_money(prices: Prices, memory_bytes: float | None) -> float | None:
    """What memory costs in a month; None where it has no price, or is not known."""
    if prices.memory is None or memory_bytes is None:
        return None
    return prices.memory * memory_bytes / GB


def monthly(
    prices: Prices,
    medium: str,
    *,
    local_bytes: float = 0.0,
    checkpoint_bytes: float = 0.0,
    savepoint_bytes: float = 0.0,
    savepoint_medium: str | None = None,
    requests: Requests | None = None,
    memory_bytes: float | None = None,
) -> Money:
    """What a month costs.

    Args:
        prices: What is paid.
        medium: What the checkpoint is on; requests cost something on `s3` alone.
        local_bytes: On the disks of executors.
        checkpoint_bytes: In the checkpoint, older batches included.
        savepoint_bytes: In savepoints.
        savepoint_medium: What those are on; None for where the checkpoint is.
        requests: Of a day; None where they are not known.
        memory_bytes: In memory; None where that is not known.
    """
    asked = requests if medium == "s3" else None
    unpriced = () if asked is None else _unpriced(prices, asked)
    return Money(
        local=storage_money(prices, "local", local_bytes),
        checkpoint=storage_money(prices, medium, checkpoint_bytes),
        savepoints=storage_money(prices, savepoint_medium or medium, savepoint_bytes),
        requests=None if asked is None else request_money(prices, asked),
        memory=memory_money(prices, memory_bytes),
        unpriced=(*unpriced, *(("memory",) if memory_bytes and prices.memory is None else ())),
    )


def _unpriced(prices: Prices, a_day: Requests) -> tuple[str, ...]:
    """The requests of a day that have no price."""
    if not prices.has_requests:
        return ("requests",) if a_day.total else ()
    lists_cost_writes = prices.lists is None and a_day.lists > 0
    return (
        *(("writes",) if prices.writes is None and (a_day.writes or lists_cost_writes) else ()),
        *(("reads",) if prices.reads is None and a_day.reads else ()),
    )
