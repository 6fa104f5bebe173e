"""Prices of storage and requests, and the money that bytes and requests cost."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from holdfast.advice.usage import Requests
from holdfast.config.checks import SCHEME
from holdfast.config.settings import read_toml
from holdfast.errors import Invalid, NotFound
from holdfast.json_shapes import JsonShape, in_json

GB: Final = 10**9
HOURS_PER_MONTH: Final = 730.0
DAYS_PER_MONTH: Final = HOURS_PER_MONTH / 24
CURRENCY: Final = "currency"
# The factor by which a price per unit is multiplied to get the price of a GB-month.
_STORAGE_UNITS: Final[Mapping[str, float]] = {
    "GB-month": 1.0,
    "GiB-month": GB / 2**30,
    "TB-month": 1 / 1000,
    "TiB-month": GB / 2**40,
    "GB-hour": HOURS_PER_MONTH,
    "GiB-hour": HOURS_PER_MONTH * GB / 2**30,
}
_REQUEST_UNITS: Final[Mapping[str, float]] = {
    "request": 1.0,
    "1000 requests": 1 / 1000,
    "10000 requests": 1 / 10_000,
    "1000000 requests": 1 / 1_000_000,
}
Medium: TypeAlias = Literal["local", "hdfs", "s3"]
_STORAGE: Final = ("local", "hdfs", "s3", "memory")
_REQUESTS: Final = ("writes", "lists", "reads", "deletes")
_OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "abfs", "abfss", "dbfs", "az", "wasb", "wasbs"})
_LARGEST_FILE: Final = 1 << 20
_SHAPE: Final = 's3 = { price = 0.023, per = "GB-month" }'


@dataclass(frozen=True, slots=True)
class Prices(JsonShape):
    """The prices of storage, requests and memory.

    Attributes:
        currency: The currency of the prices.
        local: Price of a GB-month of local disk.
        hdfs: Price of a GB-month of HDFS, including block replicas.
        s3: Price of a GB-month of object storage.
        memory: Price of a GB-month of memory; None if not given.
        writes: Price of a request that writes or copies an object; None if not given.
        lists: Price of a list request; None for the price of a write.
        reads: Price of a request that reads an object or its metadata; None if not given.
        deletes: Price of a delete request; zero for most object stores.

    Example:
        prices = hf.Prices(currency="EUR", s3=0.021, memory=4.5, writes=5e-6, reads=4e-7)
        report = hf.cost("checkpoints/visits", prices=prices)
        assert report.prices.currency == "EUR"
    """

    currency: str = "USD"
    local: float = 0.10
    hdfs: float = 0.03
    s3: float = 0.023
    memory: float | None = None
    writes: float | None = None
    lists: float | None = None
    reads: float | None = None
    deletes: float = 0.0

    @property
    def has_requests(self) -> bool:
        """Return whether requests have prices."""
        return self.writes is not None or self.reads is not None or self.lists is not None

    def storage(self, medium: Medium) -> float:
        """Return the price of a GB-month of `local`, `hdfs` or `s3`."""
        return {"local": self.local, "hdfs": self.hdfs, "s3": self.s3}[medium]


def medium_of(uri: str) -> Medium:
    """Return the medium of an address: `local`, `hdfs` or `s3`, which stands for every object store."""
    match = SCHEME.match(uri)
    scheme = "" if match is None else uri.partition(":")[0].lower()
    if scheme in _OBJECT_STORES:
        return "s3"
    return "hdfs" if scheme in ("hdfs", "webhdfs", "swebhdfs", "viewfs") else "local"


def read_prices(path: str | os.PathLike[str]) -> Prices:
    """Read a price file; names that are missing keep their defaults.

    Each price is a table with `price` and `per`, as in `s3 = { price = 0.023, per = "GB-month" }`.

    Raises:
        NotFound: The file does not exist.
        Invalid: The file cannot be read, is not TOML, or has an unknown name, an invalid number or an unknown
            unit.
    """
    where = os.fspath(path)
    content = _content(Path(where), where)
    prices = Prices()
    for name, given in content.items():
        if name == CURRENCY:
            prices = replace(prices, currency=_currency(given, where))
        elif name in _STORAGE:
            prices = _with(prices, name, _price(given, name, _STORAGE_UNITS, where))
        elif name in _REQUESTS:
            prices = _with(prices, name, _price(given, name, _REQUEST_UNITS, where))
        else:
            known = ", ".join((CURRENCY, *_STORAGE, *_REQUESTS))
            raise _wrong("unknown name in the price file", where, repr(name), known)
    return prices


def _with(prices: Prices, name: str, price: float) -> Prices:
    changed: Any = {name: price}
    return replace(prices, **changed)


def _content(file: Path, where: str) -> dict[str, Any]:
    try:
        if not file.exists():
            raise NotFound(
                "the price file does not exist",
                code="HF-E3004",
                where=where,
                hint="give the path of a price file, or omit --prices",
            )
        if not file.is_file() or file.stat().st_size > _LARGEST_FILE:
            raise Invalid(
                "the price file is too large" if file.is_file() else "the price file is not a regular file",
                code="HF-E2007",
                where=where,
                expected=f"a TOML file of at most {_LARGEST_FILE >> 20} MiB",
                hint="give the path of a price file, or omit --prices",
            )
        content = read_toml(file)
    except (OSError, ValueError) as error:
        # Errors in TOML and UTF-8 are ValueErrors, as is an impossible file name.
        found = error.strerror if isinstance(error, OSError) else str(error)
        raise Invalid(
            "cannot read the price file",
            code="HF-E2008",
            where=where,
            found=found,
            hint=f"give a readable TOML file with lines such as {_SHAPE}",
        ) from error
    return content


_HINT: Final = f"correct this entry; a valid price is, for example, {_SHAPE}"


def _currency(given: Any, where: str) -> str:
    if not isinstance(given, str) or not given.strip() or len(given) > 8 or not given.isprintable():
        raise _wrong(
            "invalid currency in the price file",
            f"{where}: {CURRENCY}",
            repr(given),
            'text of 1 to 8 characters, such as "USD"',
        )
    return given.strip()


def _price(given: Any, name: str, units: Mapping[str, float], where: str) -> float:
    place = f"{where}: {name}"
    if not isinstance(given, dict) or given.keys() != {"price", "per"}:
        raise _wrong(
            "invalid price in the price file",
            place,
            repr(given),
            "a table with exactly `price` and `per`",
        )
    amount, unit = given["price"], given["per"]
    is_number = isinstance(amount, (int, float)) and not isinstance(amount, bool)
    if not is_number or not math.isfinite(amount) or amount < 0:
        raise _wrong("invalid amount in the price file", f"{place}.price", repr(amount), "a number from 0")
    if not isinstance(unit, str) or unit not in units:
        raise _wrong("unknown unit in the price file", f"{place}.per", repr(unit), ", ".join(units))
    return float(amount) * units[unit]


def _wrong(fact: str, where: str, found: str, expected: str) -> Invalid:
    return Invalid(fact, code="HF-E2009", where=where, found=found, expected=expected, hint=_HINT)


# The smallest amount that is shown exactly.
_LEAST: Final = 0.0001


@dataclass(frozen=True, slots=True)
class Money(JsonShape):
    """The cost per month, in the currency of the prices.

    Attributes:
        local: Cost of bytes on local disk.
        checkpoint: Cost of the checkpoint's bytes, including older batches.
        savepoints: Cost of savepoint bytes.
        requests: Cost of requests to object storage; None without a price.
        memory: Cost of memory; None without a price, or if unknown.
        unpriced: Items used but not in the sum, because they have no price: `requests`, or `writes` and
            `reads` if only some requests have prices; `memory`.
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
        """Return the sum of all items that have a price."""
        return self.local + self.checkpoint + self.savepoints + (self.requests or 0.0) + (self.memory or 0.0)


def money_text(money: float) -> str:
    """Format an amount of money: to the cent, or with two significant digits if it is less than one."""
    if money == 0 or abs(money) >= 1:
        return f"{money:,.2f}"
    return f"{money:.2g}" if abs(money) >= _LEAST else f"< {_LEAST}"


def total_text(money: Money, currency: str) -> str:
    """Format the monthly sum, with the items that it does not include."""
    text = f"{money_text(money.total)} {currency}"
    return f"{text} without {' and '.join(money.unpriced)} (no price given)" if money.unpriced else text


def storage_money(prices: Prices, medium: Medium, size_bytes: float) -> float:
    """Return the monthly cost of bytes on `local`, `hdfs` or `s3`."""
    return prices.storage(medium) * size_bytes / GB


def request_money(prices: Prices, a_day: Requests) -> float | None:
    """Return the monthly cost of a day's requests; None if requests have no price."""
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
    """Return the monthly cost of memory; None if it has no price, or is unknown."""
    if prices.memory is None or memory_bytes is None:
        return None
    return prices.memory * memory_bytes / GB


def monthly(
    prices: Prices,
    medium: Medium,
    *,
    local_bytes: float = 0.0,
    checkpoint_bytes: float = 0.0,
    savepoint_bytes: float = 0.0,
    savepoint_medium: Medium | None = None,
    requests: Requests | None = None,
    memory_bytes: float | None = None,
) -> Money:
    """Return the cost per month.

    Args:
        prices: The prices.
        medium: The storage of the checkpoint; requests cost money only on `s3`.
        local_bytes: Bytes on the local disks of executors.
        checkpoint_bytes: Bytes in the checkpoint, including older batches.
        savepoint_bytes: Bytes in savepoints.
        savepoint_medium: The storage of savepoints; None for that of the checkpoint.
        requests: Requests per day; None if unknown.
        memory_bytes: Bytes in memory; None if unknown.
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
    """Return the kinds of requests that have no price."""
    if not prices.has_requests:
        return ("requests",) if a_day.total else ()
    lists_cost_writes = prices.lists is None and a_day.lists > 0
    return (
        *(("writes",) if prices.writes is None and (a_day.writes or lists_cost_writes) else ()),
        *(("reads",) if prices.reads is None and a_day.reads else ()),
    )
