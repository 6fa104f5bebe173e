"""How Flink writes values, read as Holdfast keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from holdfast.config.checks import refused
from holdfast.config.units import exact_size, parse_duration, parse_size

Reader = Callable[[object, str], object]

# Flink's name for no limit, and the number that stands for it.
_NO_LIMIT = frozenset({"infinite", "2147483647"})


def text(value: object, key: str) -> str:
    """Read a value as text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise refused(key, value, "text")
    return value.strip()


def boolean(value: object, key: str) -> bool:
    """Read true or false, in any case."""
    word = str(value).strip().lower()
    if word not in ("true", "false"):
        raise refused(key, value, "true or false")
    return word == "true"


def number(value: object, key: str) -> int:
    """Read a whole number."""
    if not isinstance(value, bool) and isinstance(value, (int, str)):
        digits = str(value).strip()
        if digits.removeprefix("-").isascii() and digits.removeprefix("-").isdigit() and len(digits) < 19:
            return int(digits)
    raise refused(key, value, "a whole number")


def limit(value: object, key: str) -> int | None:
    """Read a whole number, or Flink's word for none."""
    return None if str(value).strip().lower() in _NO_LIMIT else number(value, key)


def decimal(value: object, key: str) -> float:
    """Read a number with a fraction."""
    if not isinstance(value, bool) and isinstance(value, (int, float, str)):
        try:
            return float(value)
        except ValueError:
            pass
    raise refused(key, value, "a number")


def positive(value: object, key: str) -> int:
    """Read a whole number of at least one."""
    whole = number(value, key)
    if whole < 1:
        raise refused(key, value, "a whole number of at least 1")
    return whole


def share(value: object, key: str) -> float:
    """Read a share between none and all."""
    part = decimal(value, key)
    if not 0 <= part <= 1:
        raise refused(key, value, "a number of at least 0 and at most 1")
    return part


def duration(value: object, key: str) -> int:
    """Read a duration as milliseconds; a bare number is milliseconds, and zero is left to the field."""
    if isinstance(value, (str, int, float, timedelta)):
        return parse_duration(value, key, allow_zero=True, bare_ms=True)
    raise refused(key, value, 'a duration, such as "10 s", or milliseconds')


def size(value: object, key: str) -> int:
    """Read a size as bytes; a bare number is bytes."""
    if isinstance(value, str) and not value.strip().isdecimal():
        return parse_size(value, key)
    return parse_size(number(value, key), key)


def managed(value: object, key: str) -> str | None:
    """Read whether RocksDB's memory is bounded: None for the profile's own budget."""
    return None if boolean(value, key) else "unbounded"


def words(allowed: Mapping[str, str]) -> Reader:
    """Read one of Flink's words, in any case, as Holdfast's own."""

    def read(value: object, key: str) -> str:
        word = allowed.get(str(value).strip().lower())
        if word is None:
            raise refused(key, value, "one of " + ", ".join(allowed))
        return word

    return read


mode: Final = words({"exactly_once": "exactly_once", "at_least_once": "at_least_once"})

# What cancel does to a checkpoint.
retention: Final = words(
    {
        "retain_on_cancellation": "retain",
        "delete_on_cancellation": "delete",
        "no_externalized_checkpoints": "delete",
    }
)

# Sets of RocksDB options that have names.
profile: Final = words(
    {
        "default": "ssd",
        "flash_ssd_optimized": "ssd",
        "spinning_disk_optimized": "spinning-disk",
        "spinning_disk_optimized_high_mem": "spinning-disk",
    }
)

elections: Final = words({"none": "none", "zookeeper": "zookeeper"})

_backends: Final = words(
    {
        "hashmap": "memory",
        "jobmanager": "memory",
        "filesystem": "memory",
        "rocksdb": "rocksdb",
        "forst": "rocksdb",
    }
)

_strategies: Final = words(
    {
        **dict.fromkeys(("none", "off", "disable"), "none"),
        **dict.fromkeys(("fixed-delay", "fixeddelay"), "fixed-delay"),
        **dict.fromkeys(("failure-rate", "failurerate"), "failure-rate"),
        **dict.fromkeys(("exponential-delay", "exponentialdelay"), "exponential-delay"),
    }
)


def backend(value: object, key: str) -> object:
    """Read the kind of state backend, by short name or by class."""
    name = text(value, key)
    if "." in name:
        return "rocksdb" if "rocksdb" in name.lower() or "forst" in name.lower() else "memory"
    return _backends(name, key)


def strategy(value: object, key: str) -> object:
    """Read the kind of restart strategy; YAML reads a bare `off` as false."""
    return "none" if value is False else _strategies(value, key)


def retained(value: object, key: str) -> int:
    """Read how many checkpoints stay; Flink's 1 becomes 2, the least that Spark can restart from."""
    count = number(value, key)
    return 2 if count == 1 else count


def kibibytes(value: object, key: str) -> int:
    """Read a size as whole KiB."""
    size_bytes = size(value, key)
    if size_bytes % 1024:
        raise refused(key, f"{value}, which is {exact_size(size_bytes)}", "whole KiB")
    return size_bytes // 1024
