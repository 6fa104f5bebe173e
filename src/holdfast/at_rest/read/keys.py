"""A key as a person gives it, brought into the types of the state's key columns."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.at_rest.read.model import type_text
from holdfast.errors import Invalid
from holdfast.formats.rows.spark_types import Array, DataType, Decimal, Map, Struct

_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64, "months": 32, "time": 64}
_FLOATS: Final = ("float", "double")
_TRUTH: Final = {"true": True, "false": False}
_UTC: Final = dt.timezone.utc
_EXACT: Final = decimal.Context(prec=80)


# Gives a key of the state as a person writes it.
Sample = Callable[[], "str | None"]


class _Unfit(ValueError):
    """A value that is not of its type: what was found, and what would fit."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(found)
        self.found = found
        self.expected = expected


def no_sample() -> str | None:
    """No key to show: none was asked for, or the state is empty."""
    return None


def typed_key(
    given: Any, columns: Struct, where: str, *, written: bool = False, sample: Sample = no_sample
) -> dict[str, Any]:
    """The values of a key given in Python or as JSON.

    Args:
        given: A dictionary by column, a list or tuple in the order of the columns, or the only one's value.
        columns: The columns of the key, with their types.
        where: The state, for messages.
        written: Whether text may stand for a value of any type, as on a command line.
        sample: Gives a key of the state as text, for messages.

    Raises:
        Invalid: It does not fit; the message has the columns.
    """
    if isinstance(given, Mapping):
        values = dict(given)
    elif isinstance(given, (list, tuple)) and len(given) == len(columns.names) and not _one_list(columns):
        values = dict(zip(columns.names, given, strict=True))
    elif len(columns.names) == 1:
        values = {columns.names[0]: given}
    else:
        raise refused("this is no key of the state", where, repr(given), columns, sample)
    if set(values) != set(columns.names):
        missing = [name for name in columns.names if name not in values]
        extra = [str(name) for name in values if name not in columns.names]
        fact = f"a key needs {', '.join(missing)}" if missing else f"a key has no {', '.join(extra)}"
        raise refused(fact, where, ", ".join(map(str, values)) or "no column", columns, sample)
    name = ""
    try:
        columns_of_key = {}
        for name, type_ in zip(columns.names, columns.types, strict=True):
            columns_of_key[name] = typed(values[name], type_, written=written)
    except _Unfit as unfit:
        raise Invalid(
            f"the key's {name} is not of its type",
            where=where,
            found=unfit.found,
            expected=unfit.expected,
            hint=key_hint(columns, sample),
        ) from unfit
    return columns_of_key


def _one_list(columns: Struct) -> bool:
    """Whether a list is the value of the only column, and not the columns' values."""
    return len(columns.types) == 1 and isinstance(columns.types[0], (Array, Struct))


def key_hint(columns: Struct, sample: Sample) -> str:
    """How a key of a state is written: a real one where there is one."""
    names = columns.names
    if not names:
        return "leave the key out: the state has one row for everything"
    text = sample()
    if text is not None:
        return f"a key of this state: {shlex.quote(text)}"
    example = f"{names[0]}=…" if len(names) == 1 else "{" + ", ".join(f'"{name}": …' for name in names) + "}"
    return f"write it as {example}"


def refused(fact: str, where: str, given: str, columns: Struct, sample: Sample) -> Invalid:
    """The error for a key that does not fit its columns."""
    return Invalid(
        fact, where=where, found=given[:200], expected=key_text(columns), hint=key_hint(columns, sample)
    )


def key_text(columns: Struct) -> str:
    """The columns of a key, for people."""
    named = [f"{name} {type_text(type_)}" for name, type_ in zip(columns.names, columns.types, strict=True)]
    return ", ".join(named) or "empty: the state has one row for everything"


def typed(value: Any, type_: DataType, *, written: bool = False) -> Any:
    """A value as rows of state have it, from what JSON or a person has.

    Raises:
        ValueError: It is not of the type.
    """
    if value is None:
        return None
    if isinstance(type_, Decimal):
        return _decimal(value, type_)
    if isinstance(type_, Struct):
        return _struct(value, type_, written)
    if isinstance(type_, Array):
        if not isinstance(value, (list, tuple)):
            raise _Unfit(repr(value), "a list")
        return [typed(element, type_.element, written=written) for element in value]
    if isinstance(type_, Map):
        pairs = value.items() if isinstance(value, Mapping) else value
        return {typed(key, type_.key, written=True): typed(element, type_.value) for key, element in pairs}
    return _atom(value, type_.name, written)


def _atom(value: Any, name: str, written: bool) -> Any:
    if name in ("string", "boolean"):
        return _text(value) if name == "string" else _truth(value, written)
    if name in _BITS:
        return _whole(value, name, written)
    if name in _FLOATS:
        return _real(value, written)
    return _bytes(value) if name == "binary" else _of_time(value, name, written)


def _of_time(value: Any, name: str, written: bool) -> Any:
    if name in ("date", "timestamp", "timestamp_ntz"):
        return _time(value, name)
    if name == "micros":
        return value if isinstance(value, dt.timedelta) else dt.timedelta(seconds=_real(value, written))
    if name == "calendar" and isinstance(value, (list, tuple)) and len(value) == 3:
        return tuple(_whole(number, "long", written) for number in value)
    raise _Unfit(repr(value), "null" if name == "void" else name)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Unfit(repr(value), "text, in quotes where it is JSON")
    return value


def _truth(value: Any, written: bool) -> bool:
    truth = _TRUTH.get(value.lower()) if isinstance(value, str) and written else value
    if not isinstance(truth, bool):
        raise _Unfit(repr(value), "true or false")
    return truth


def _whole(value: Any, name: str, written: bool) -> int:
    if isinstance(value, str) and written:
        try:
            value = int(value)
        except ValueError:
            raise _Unfit(repr(value), f"a whole number ({name})") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Unfit(repr(value), f"a whole number ({name})")
    bound = 1 << (_BITS[name] - 1)
    if not -bound <= value < bound:
        raise _Unfit(str(value), f"{name}: {-bound} to {bound - 1}")
    return value


def _real(value: Any, written: bool) -> float:
    # JSON has no infinity and no NaN; as text they are what `plain` makes of them.
    if isinstance(value, str) and (written or value.lower() in ("nan", "inf", "-inf")):
        try:
            value = float(value)
        except ValueError:
            raise _Unfit(repr(value), "a number") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Unfit(repr(value), "a number")
    # Both zeros are one key, and so are all NaNs: Spark groups them so.
    number = float(value)
    return math.nan if math.isnan(number) else number + 0.0


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, str) and value[:2].lower() == "0x":
        try:
            return bytes.fromhex(value[2:])
        except ValueError:
            pass
    raise _Unfit(repr(value), "bytes as hexadecimal text, such as 0x00ff")


def _time(value: Any, name: str) -> Any:
    expected = {
        "date": "a date, such as 2026-03-05",
        "timestamp": "a time, such as 2026-03-05T08:00:00Z",
        "timestamp_ntz": "a time without a zone, such as 2026-03-05T08:00:00",
    }[name]
    if isinstance(value, str):
        try:
            if name == "date":
                return dt.date.fromisoformat(value)
            # Python before 3.11 does not know the letter for UTC.
            value = dt.datetime.fromisoformat(value[:-1] + "+00:00" if value.endswith("Z") else value)
        except ValueError:
            raise _Unfit(repr(value), expected) from None
    if name == "date" and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return value  # what no calendar of Python's has: days or microseconds since 1970
    if name != "date" and isinstance(value, dt.datetime):
        if name == "timestamp":
            return value.astimezone(_UTC) if value.tzinfo else value.replace(tzinfo=_UTC)
        if value.tzinfo is None:
            return value
    raise _Unfit(repr(value), expected)


def _decimal(value: Any, type_: Decimal) -> decimal.Decimal:
    expected = f"decimal({type_.precision},{type_.scale})"
    if isinstance(value, bool) or not isinstance(value, (int, str, float, decimal.Decimal)):
        raise _Unfit(repr(value), expected)
    try:
        # A float of JSON is meant as it is written.
        exact = decimal.Decimal(repr(value) if isinstance(value, float) else value)
        scaled = exact.scaleb(type_.scale, _EXACT)
        if scaled != scaled.to_integral_value() or abs(scaled) >= 10**type_.precision:
            raise _Unfit(str(value), expected)
    except decimal.DecimalException:
        raise _Unfit(repr(value), expected) from None
    return exact.quantize(decimal.Decimal(1).scaleb(-type_.scale), context=_EXACT)


def _struct(value: Any, type_: Struct, written: bool) -> dict[str, Any]:
    if isinstance(value, (list, tuple)) and len(value) == len(type_.names):
        value = dict(zip(type_.names, value, strict=True))
    if not isinstance(value, Mapping) or set(value) != set(type_.names):
        raise _Unfit(repr(value), f"an object with {', '.join(type_.names)}")
    return {
        name: typed(value[name], part, written=written)
        for name, part in zip(type_.names, type_.types, strict=True)
    }
