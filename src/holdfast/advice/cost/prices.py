"""What bytes and requests cost: a file of prices, or the defaults."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from holdfast.config.locations import SCHEME
from holdfast.errors import Invalid, NotFound
from holdfast.json_shapes import JsonShape

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

GB: Final = 10**9
HOURS_PER_MONTH: Final = 730.0
DAYS_PER_MONTH: Final = HOURS_PER_MONTH / 24
CURRENCY: Final = "currency"
# How much dearer a GB-month is than what the unit names.
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
_STORAGE: Final = ("local", "hdfs", "s3", "memory")
_REQUESTS: Final = ("writes", "lists", "reads", "deletes")
_OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "abfs", "abfss", "dbfs", "az", "wasb", "wasbs"})
_LARGEST_FILE: Final = 1 << 20
_SHAPE: Final = 's3 = { price = 0.023, per = "GB-month" }'


@dataclass(frozen=True, slots=True)
class Prices(JsonShape):
    """What is paid for bytes and requests.

    Attributes:
        currency: What the prices are in.
        local: A GB-month of local disk.
        hdfs: A GB-month of HDFS, copies of its blocks included.
        s3: A GB-month of object storage.
        memory: A GB-month of memory; None where nobody has said it.
        writes: A request that writes or copies an object; None where nobody has said it.
        lists: A request that lists; None where nobody has said it, and then it costs what a write does.
        reads: A request that reads an object, or asks about one; None where nobody has said it.
        deletes: A request that deletes; most object stores take nothing for it.
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
        """Whether requests have prices."""
        return self.writes is not None or self.reads is not None or self.lists is not None

    def storage(self, medium: str) -> float:
        """A GB-month of `local`, `hdfs` or `s3`."""
        return {"local": self.local, "hdfs": self.hdfs, "s3": self.s3}[medium]


def medium_of(uri: str) -> str:
    """What an address is on: `local`, `hdfs` or `s3`, which stands for every object store."""
    match = SCHEME.match(uri)
    scheme = "" if match is None else uri.partition(":")[0].lower()
    if scheme in _OBJECT_STORES:
        return "s3"
    return "hdfs" if scheme in ("hdfs", "webhdfs", "swebhdfs", "viewfs") else "local"


def read_prices(path: str | os.PathLike[str]) -> Prices:
    """Read a file of prices; what it does not name keeps its default.

    Each price is a table with `price` and `per`, as in `s3 = { price = 0.023, per = "GB-month" }`.

    Raises:
        NotFound: There is no such file.
        Invalid: It cannot be read, is not TOML, or has a name, number or unit that means nothing here.
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
            raise _wrong("this is no name of a price", f"{where}: {name}", repr(name), known)
    return prices


def _with(prices: Prices, name: str, price: float) -> Prices:
    changed: Any = {name: price}
    return replace(prices, **changed)


def _content(file: Path, where: str) -> dict[str, Any]:
    try:
        if not file.exists():
            raise NotFound(
                "there is no file of prices", where=where, hint="name a file, or leave --prices out"
            )
        if not file.is_file() or file.stat().st_size > _LARGEST_FILE:
            raise Invalid("this is no file of prices", where=where, expected="a small TOML file", hint=_HINT)
        content: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        # A mistake in TOML and in UTF-8 is a ValueError, and so is a name that no file can have.
        found = error.strerror if isinstance(error, OSError) else str(error)
        raise Invalid("the file of prices cannot be read", where=where, found=found, hint=_HINT) from error
    return content


_HINT: Final = f"write TOML such as {_SHAPE}"


def _currency(given: Any, where: str) -> str:
    if not isinstance(given, str) or not given.strip() or len(given) > 8 or not given.isprintable():
        raise _wrong("this is no currency", f"{where}: {CURRENCY}", repr(given), 'a short text such as "USD"')
    return given.strip()


def _price(given: Any, name: str, units: Mapping[str, float], where: str) -> float:
    place = f"{where}: {name}"
    if not isinstance(given, dict) or given.keys() != {"price", "per"}:
        raise _wrong("a price has an amount and a unit", place, repr(given), "`price` and `per`")
    amount, unit = given["price"], given["per"]
    is_number = isinstance(amount, (int, float)) and not isinstance(amount, bool)
    if not is_number or not math.isfinite(amount) or amount < 0:
        raise _wrong("a price is a number", f"{place}.price", repr(amount), "a number that is not negative")
    if not isinstance(unit, str) or unit not in units:
        raise _wrong("the unit of a price is unknown", f"{place}.per", repr(unit), ", ".join(units))
    return float(amount) * units[unit]


def _wrong(fact: str, where: str, found: str, expected: str) -> Invalid:
    return Invalid(fact, where=where, found=found, expected=expected, hint=_HINT)
