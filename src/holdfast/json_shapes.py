"""The JSON form of dataclasses, used by the CLI, the REST API and the reference.

A field is written under its own name and is described in the class's docstring under `Attributes:`. The
metadata `json_as`, `json_spread` and `NOT_IN_JSON` change this for one field. A property marked `in_json` is
also written, and is described by its own docstring.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any, Final, TypeVar, get_type_hints

_KEY: Final = "json"
_SECTIONS: Final = ("Attributes:", "Args:")
_ENTRY: Final = re.compile(r"    (\w+): (.*)")
_Getter = TypeVar("_Getter", bound=Callable[[Any], Any])


@dataclass(frozen=True, slots=True)
class _Rule:
    """The rule for writing a field as JSON.

    Attributes:
        name: The name in JSON; None for the attribute's name.
        convert: The function that converts the value.
        says: The description in JSON, if it differs from the attribute's.
        spread: Whether the field is replaced by the fields of its value.
        only: The fields of the value to write when `spread` is set; empty for all.
        left_out: Whether the field is omitted.
    """

    name: str | None = None
    convert: Callable[[Any], Any] | None = None
    says: str | None = None
    spread: bool = False
    only: frozenset[str] = frozenset()
    left_out: bool = False


NOT_IN_JSON: Final[Mapping[str, Any]] = {_KEY: _Rule(left_out=True)}


def json_as(
    name: str | None = None,
    convert: Callable[[Any], Any] | None = None,
    says: str | None = None,
) -> Mapping[str, Any]:
    """Return metadata for a field written under a different name or with a different value.

    Args:
        name: The name in JSON.
        convert: The function that converts the value.
        says: The description, if it differs from the attribute's.
    """
    return {_KEY: _Rule(name, convert, says)}


def json_spread(*only: str) -> Mapping[str, Any]:
    """Return metadata for a field that is replaced by the fields of its value: those named, or all.

    If the value is None, these fields are null, except those that an earlier field has set.
    """
    return {_KEY: _Rule(spread=True, only=frozenset(only))}


def in_json(getter: _Getter) -> _Getter:
    """Mark the getter of a property to be written after the fields; apply it below `@property`."""
    return in_json_as()(getter)


def in_json_as(
    name: str | None = None,
    convert: Callable[[Any], Any] | None = None,
) -> Callable[[_Getter], _Getter]:
    """Mark the getter of a property with the options of `json_as`."""

    def marked(getter: _Getter) -> _Getter:
        setattr(getter, _KEY, _Rule(name, convert))
        return getter

    return marked


class JsonShape:
    """A dataclass that is written as JSON."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return _written(self)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        from holdfast.notebook import of_document

        return of_document(type(self).__name__, self.as_dict())


@functools.singledispatch
def json_value(value: Any) -> Any:
    """Return the JSON form of a value."""
    return _written(value) if is_dataclass(value) else value


@json_value.register(JsonShape)
def _(value: JsonShape) -> Any:
    return value.as_dict()


@json_value.register(Enum)
def _(value: Enum) -> Any:
    return value.value


@json_value.register(bytes)
def _(value: bytes) -> Any:
    return value.hex()


@json_value.register(PurePath)
def _(value: PurePath) -> Any:
    return str(value)


@json_value.register(Mapping)
def _(value: Mapping[Any, Any]) -> Any:
    return {name: json_value(part) for name, part in value.items()}


@json_value.register(Set)
@json_value.register(list)
@json_value.register(tuple)
def _(value: Collection[Any]) -> Any:
    return [json_value(part) for part in value]


def _written(value: Any, only: frozenset[str] = frozenset()) -> dict[str, Any]:
    shape: Any = type(value)
    written: dict[str, Any] = {}
    for attribute, name, rule in _outgoing(shape):
        if only and name not in only:
            continue
        part = getattr(value, attribute)
        if not rule.spread:
            written[name] = json_value(part if rule.convert is None else rule.convert(part))
        elif part is None:
            written = dict.fromkeys(_spread_names(shape, attribute)) | written
        else:
            written |= _written(part, rule.only) if rule.only else json_value(part)
    return written


@functools.cache
def _outgoing(shape: Any) -> tuple[tuple[str, str, _Rule], ...]:
    """Return the attributes that are written, with their names in JSON."""
    stored = [(field.name, field.metadata.get(_KEY, _Rule())) for field in fields(shape)]
    marked = {
        name: getattr(member.fget, _KEY)
        for base in reversed(shape.__mro__)
        for name, member in vars(base).items()
        if isinstance(member, property) and hasattr(member.fget, _KEY)
    }
    rules = [*stored, *marked.items()]
    return tuple((name, rule.name or name, rule) for name, rule in rules if not rule.left_out)


@functools.cache
def _spread_names(shape: Any, attribute: str) -> tuple[str, ...]:
    """Return the names of the fields that replace an attribute, for use when its value is None."""
    rule = next(rule for name, _, rule in _outgoing(shape) if name == attribute)
    return tuple(_described(_shape_in(_type_of_field(shape, attribute)), rule.only))


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field of JSON in the reference and in OpenAPI.

    Attributes:
        name: The name of the field.
        type: The type of the value.
        description: The description of the field; empty if it has none.
    """

    name: str
    type: Any
    description: str


def json_fields(shape: type[object]) -> tuple[JsonField, ...]:
    """Return the JSON fields of a class, in the order in which they are written."""
    return tuple(_described(shape, frozenset()).values())


def _described(shape: Any, only: frozenset[str]) -> dict[str, JsonField]:
    described: dict[str, JsonField] = {}
    descriptions = attribute_descriptions(shape)
    for attribute, name, rule in _outgoing(shape):
        if only and name not in only:
            continue
        getter = getattr(inspect.getattr_static(shape, attribute, None), "fget", None)
        kind = _type_of_field(shape, attribute) if getter is None else _returned(getter)
        if rule.spread:
            inner = _described(_shape_in(kind), rule.only)
            if not is_dataclass(kind):
                optional = {name: replace(part, type=part.type | None) for name, part in inner.items()}
                inner = optional | described
            described |= inner
            continue
        if rule.convert is not None:
            kind = _returned(rule.convert)
        text = descriptions.get(attribute, "") if getter is None else _text_of(getter)
        described[name] = JsonField(name, kind, re.sub(r"\bNone\b", "null", rule.says or text))
    return described


def _text_of(getter: Any) -> str:
    """Return the docstring of a getter as a field description, without a leading "Return"."""
    text = " ".join((getter.__doc__ or "").split()).removeprefix("Return ")
    return text[:1].upper() + text[1:]


def attribute_descriptions(shape: type[Any]) -> dict[str, str]:
    """Return the descriptions of a class's attributes, read from its docstring and those of its bases."""
    descriptions: dict[str, str] = {}
    for base in reversed(shape.__mro__):
        inside = False
        name = ""
        for line in inspect.cleandoc(base.__doc__ or "").splitlines():
            entry = _ENTRY.fullmatch(line)
            if line and not line.startswith(" "):
                inside = line in _SECTIONS
            elif inside and entry is not None:
                name = entry[1]
                descriptions[name] = entry[2]
            elif inside and line.strip():
                descriptions[name] += f" {line.strip()}"
    return descriptions


def _type_of_field(shape: type[Any], attribute: str) -> Any:
    owner = next(base for base in shape.__mro__ if attribute in vars(base).get("__annotations__", {}))
    return _resolved(owner.__annotations__[attribute], owner.__module__)


def _returned(function: Any) -> Any:
    if function is len:
        return int
    inner = inspect.unwrap(function)
    return _resolved(inner.__annotations__["return"], inner.__module__)


def _resolved(annotation: Any, module: str) -> Any:
    holder = SimpleNamespace(__annotations__={"type": annotation})
    try:
        return get_type_hints(holder, vars(sys.modules[module]))["type"]
    except NameError:
        return get_type_hints(holder, _names_with_types(module))["type"]


def _names_with_types(module: str) -> dict[str, Any]:
    """Return the names of a module, including those that it imports only for type checking."""
    names = dict(vars(sys.modules[module]))
    for block in ast.parse(inspect.getsource(sys.modules[module])).body:
        for statement in block.body if isinstance(block, ast.If) else ():
            if isinstance(statement, ast.ImportFrom):
                imported = importlib.import_module(statement.module or "")
                names |= {alias.name: getattr(imported, alias.name) for alias in statement.names}
    return names


def _shape_in(kind: Any) -> Any:
    """Return the dataclass of an annotation that may be optional."""
    return next(part for part in (kind, *getattr(kind, "__args__", ())) if is_dataclass(part))
