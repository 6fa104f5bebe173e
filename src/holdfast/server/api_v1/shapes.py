"""Models of answers out of the dataclasses that are answered, with the descriptions of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from types import UnionType, new_class
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field

from holdfast.json_shapes import json_fields

_MODELS: Final[dict[type, type[BaseModel]]] = {}


class Shape(BaseModel):
    """What all shapes have in common: they are answers, and nobody changes them.

    `class Job(Shape, of=JobStatus)` has the fields of that dataclass's JSON, and those that it names itself.
    """

    model_config = ConfigDict(frozen=True)

    def __init_subclass__(cls, *, of: type | None = None, **rest: Any) -> None:
        """Take over the fields before the model is made of them."""
        super().__init_subclass__(**rest)
        if of is None:
            return
        own = dict(cls.__annotations__)
        cls.__annotations__.clear()
        cls.__annotations__.update({name: kind for name, kind in _annotations(of).items() if name not in own})
        cls.__annotations__.update(own)
        _MODELS[of] = cls


class Measured(Shape):
    """What measuring brings new fields to, which are passed on."""

    model_config = ConfigDict(frozen=True, extra="allow")


def _annotations(shape: type) -> dict[str, Any]:
    return {
        field.name: Annotated[
            _type_of(field.type),
            Field(description=field.description or None, deprecated=field.deprecated or None),
        ]
        for field in json_fields(shape)
    }


def _type_of(kind: Any) -> Any:
    """The type of JSON for a type of Python."""
    origin, parts = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _model_of(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return str
    if origin in (Union, UnionType):
        return Union[tuple(map(_type_of, parts))]  # noqa: UP007 - as many as there are
    if origin in (tuple, list):
        return list[tuple(_type_of(part) for part in parts if part is not ...)]  # type: ignore[misc]
    if origin in (dict, Mapping):
        return dict[parts[0], _type_of(parts[1])]  # type: ignore[valid-type,misc]
    return kind


def _model_of(shape: Any) -> type[BaseModel]:
    """The model of a dataclass: the one that was declared, or one of the same name."""
    if shape not in _MODELS:
        about = (shape.__doc__ or "").partition("\n")[0]
        new_class(shape.__name__, (Shape,), {"of": shape}, lambda names: names.update(__doc__=about))
    return _MODELS[shape]
