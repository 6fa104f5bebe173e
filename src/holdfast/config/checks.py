"""Checks that several settings share, each with an error that says what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.errors import Invalid

# What a Spark setting of type int can hold.
MAX_INT = 2**31 - 1

# Takes a value and the name of its setting; gives the value as it is kept, or refuses it.
Check = Callable[[Any, str], object]


def check_fields(settings: object, owner: str, checks: Mapping[str, Check]) -> None:
    """Check fields of a frozen object that is being made, and keep what the checks give.

    Args:
        settings: The object.
        owner: What people make it with, for errors.
        checks: By field.

    Raises:
        Invalid: A value that does not fit.
    """
    for name, check in checks.items():
        object.__setattr__(settings, name, check(getattr(settings, name), f"{owner}({name}=…)"))


def check_periodic(owner: str, savepoints: object, every: object) -> None:
    """Refuse periodic savepoints of which only the directory or only the time is set.

    Raises:
        Invalid: One of both is.
    """
    if (savepoints is None) != (every is None):
        raise Invalid(
            "savepoints need a directory and a time",
            where=f"{owner}(…)",
            found=f"savepoints={savepoints!r}, savepoint_every={every!r}",
            hint='name both: savepoints="s3://bucket/sp", savepoint_every="1h"',
        )


def optional(check: Check) -> Check:
    """The same check for a setting that may be None."""
    return lambda value, setting: None if value is None else check(value, setting)


def whole(value: object, setting: str, *, least: int, most: int = MAX_INT) -> int:
    """Return a whole number within bounds.

    Raises:
        Invalid: It is a boolean, not an `int`, or out of bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        above = isinstance(value, int) and value > most
        upper = f" and at most {most:,}" if above or most != MAX_INT else ""
        raise refused(setting, value, f"a whole number of at least {least}{upper}")
    return value


def fraction(value: object, setting: str, *, least: float, most: float | None = None) -> float:
    """Return a finite number within bounds.

    Raises:
        Invalid: It is a boolean, not a number, NaN, infinite or out of bounds.
    """
    allowed = f"a number of at least {least:g}" + ("" if most is None else f" and at most {most:g}")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise refused(setting, value, allowed)
    if value < least or (most is not None and value > most):
        raise refused(setting, value, allowed)
    return float(value)


def flag(value: object, setting: str) -> bool:
    """Return a boolean.

    Raises:
        Invalid: It is anything else; the text "false" would otherwise count as true.
    """
    if not isinstance(value, bool):
        raise refused(setting, value, "True or False")
    return value


def one_of(value: object, setting: str, allowed: Sequence[str]) -> str:
    """Return a word out of a list.

    Raises:
        Invalid: It is not one of them.
    """
    if not isinstance(value, str) or value not in allowed:
        raise refused(setting, value, "one of " + ", ".join(f'"{word}"' for word in allowed))
    return value


def group_name(value: object, setting: str) -> str:
    """Return the name of a consumer group of Kafka.

    Raises:
        Invalid: It is empty, or no text.
    """
    if not isinstance(value, str) or not value.strip():
        raise refused(setting, value, "the name of a consumer group", hint="such as 'orders-spark'")
    return value


def refused(
    setting: str,
    value: object,
    expected: str,
    *,
    where: str | None = None,
    found: str | None = None,
    hint: str | None = None,
) -> Invalid:
    """Make the error for a value that a setting cannot take.

    Args:
        setting: Its name.
        value: The value.
        expected: What it takes.
        where: Where the value stands, if that is not the setting itself.
        found: The value in words, if it is not shown as it is.
        hint: What to do.
    """
    return Invalid(
        f"cannot use this value for {setting}",
        where=setting if where is None else where,
        found=repr(value) if found is None else found,
        expected=expected,
        hint=hint,
    )
