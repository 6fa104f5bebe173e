"""One source of JSON: what a dataclass says of itself goes out, and is described."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import MappingProxyType

from holdfast.json_shapes import (
    NOT_IN_JSON,
    JsonShape,
    in_json,
    in_json_as,
    json_as,
    json_fields,
    json_spread,
    json_value,
)


class Colour(str, Enum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Place:
    """A place.

    Attributes:
        street: Its street.
        town: Its town, which
            may have a long name.
    """

    street: str
    town: str = field(metadata=json_as("city"))


@dataclass(frozen=True, slots=True)
class Shop(JsonShape):
    """A shop.

    Attributes:
        place: Where it is.
        branch: Another one; None without one.
        doors: Its doors.
        size_bytes: Its size.
        colour: Its colour.
        secret: Nobody is told.
    """

    place: Place = field(metadata=json_spread("city"))
    branch: Place | None
    doors: tuple[str, ...] = field(metadata=json_as("door_count", len, "How many doors."))
    size_bytes: int
    colour: Colour = Colour.RED
    secret: str = field(default="", metadata=NOT_IN_JSON)

    @property
    @in_json
    def large(self) -> bool:
        """Whether it is large."""
        return self.size_bytes > 10

    @property
    @in_json_as("of", len)
    def letters(self) -> str:
        """How many letters."""
        return "abc"


@dataclass(frozen=True)
class Note(JsonShape):
    """A note of a shop."""

    shop: Shop | None = field(metadata=json_spread())
    other: Place | None = field(metadata=json_spread("street"))


SHOP = Shop(Place("High Street", "Rye"), Place("Low Street", "Hythe"), ("a", "b"), 12)


def test_fields_and_marked_properties_go_out() -> None:
    assert SHOP.as_dict() == {
        "city": "Rye",
        "branch": {"street": "Low Street", "city": "Hythe"},
        "door_count": 2,
        "size_bytes": 12,
        "colour": "red",
        "large": True,
        "of": 3,
    }


def test_what_is_not_there_has_the_same_fields() -> None:
    assert Note(SHOP, None).as_dict() == SHOP.as_dict() | {"street": None}
    assert Note(None, SHOP.branch).as_dict() == dict.fromkeys(SHOP.as_dict()) | {"street": "Low Street"}
    assert {described.name: described.type for described in json_fields(Note)}["large"] == bool | None


def test_each_field_that_goes_out_is_described() -> None:
    described = {described.name: described for described in json_fields(Shop)}
    assert list(described) == list(SHOP.as_dict())
    assert {name: described[name].description for name in described} == {
        "city": "Its town, which may have a long name.",
        "branch": "Another one; null without one.",
        "door_count": "How many doors.",
        "size_bytes": "Its size.",
        "colour": "Its colour.",
        "large": "Whether it is large.",
        "of": "How many letters.",
    }
    assert described["door_count"].type is int
    assert described["branch"].type == Place | None


def test_values_of_python_have_their_json() -> None:
    values = {"path": Path("/a"), "bytes": b"\x01", "map": MappingProxyType({"colour": Colour.RED})}
    assert json_value(values) == {"path": "/a", "bytes": "01", "map": {"colour": "red"}}
    assert json_value((1, (2.5, None), [True, frozenset({"a"})])) == [1, [2.5, None], [True, ["a"]]]
