"""Values of state as JSON has them, for people and programs to read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """Convert a value to types that JSON has.

    Bytes become hexadecimal text after `0x`; dates and timestamps ISO 8601 text; decimals text, to keep all
    digits, as do NaN and infinite numbers; intervals become seconds. Keys of a map become text. Lists and
    structs keep their shape.
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        # Text that is no UTF-8 cannot be printed as it is.
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(element) for element in value]
    return _text(value)


def _text(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"0x{bytes(value).hex()}"
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value / timedelta(seconds=1)
    return str(value) if isinstance(value, Decimal) else repr(value)
