"""Conversion of JSON values into dataclasses, by the declared types of the fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Reader = Callable[[Any], Any]

# The metadata key of a field with its own reader.
READ: Final = "read"


def from_plain(kind: type[T], values: Mapping[str, Any]) -> T:
    """Build a dataclass from the result of `dataclasses.asdict`, or from its JSON.

    Fields may be dataclasses and enumerations, tuples and mappings of them, or None; any other value is used
    unchanged. `metadata={READ: function}` reads a field with that function.

    Raises:
        TypeError: A field is missing or unknown, or has the wrong type.
        ValueError: A value is not a member of its enumeration.
        AttributeError: A value is not a mapping.
    """
    readers = _readers(kind)  # type: ignore[arg-type]  # a class can be hashed
    return kind(**{name: readers.get(name, _as_it_is)(value) for name, value in values.items()})


def from_known(kind: type[T], values: Mapping[str, Any]) -> T:
    """Build a dataclass like `from_plain`, but ignore unknown fields of other versions.

    Raises:
        As for `from_plain`.
    """
    known = _readers(kind)  # type: ignore[arg-type]  # as above
    return from_plain(kind, {name: values[name] for name in known if name in values})


def wrong_fields(kind: type[Any], values: Mapping[str, Any]) -> list[str]:
    """Describe the missing and the unknown fields of a dataclass; empty if there are none."""
    items = {item.name: item for item in fields(kind)}
    missing = [
        name
        for name, item in items.items()
        if name not in values and item.default is MISSING and item.default_factory is MISSING
    ]
    return [f"no {name}" for name in missing] + [f"unknown {name}" for name in values if name not in items]


@cache
def _readers(kind: Any) -> dict[str, Reader]:
    hints = get_type_hints(kind)
    return {item.name: item.metadata.get(READ) or _reader(hints[item.name]) for item in fields(kind)}


def _reader(hint: Any) -> Reader:
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(from_plain, hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    if origin is tuple:
        return partial(_tuple, _reader(inner[0]))
    if origin is Mapping:
        return partial(_mapping, _reader(inner[1]))
    if origin in (Union, UnionType):
        (reader,) = {_reader(choice) for choice in inner if choice is not type(None)}
        return partial(_optional, reader)
    return _as_it_is


def _tuple(reader: Reader, values: Any) -> tuple[Any, ...]:
    return tuple(reader(value) for value in values)


def _mapping(reader: Reader, values: Any) -> dict[str, Any]:
    return {name: reader(value) for name, value in values.items()}


def _optional(reader: Reader, value: Any) -> Any:
    return None if value is None else reader(value)


def _as_it_is(value: Any) -> Any:
    return value
