"""The values of state as JSON types, for users and programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """Convert a value to JSON types.

    Bytes become hexadecimal strings after `0x`. Dates and timestamps become ISO 8601 strings. Decimals become
    strings, which keep all digits, as do NaN and infinite numbers. Intervals become seconds. The keys of a
    map become strings. Lists and structs keep their structure.
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        # A string that is not valid UTF-8 cannot be printed unchanged.
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
