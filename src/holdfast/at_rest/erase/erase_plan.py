"""What an erasure would do, and which place it can be of."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.at_rest.erase.certificate import PlaceReport, Searched, outcome_of
from holdfast.json_shapes import JsonShape, in_json


@dataclass(frozen=True, slots=True)
class ErasePlan(JsonShape):
    """What an erasure would do.

    Attributes:
        catalog: Where.
        key_sha256: The hash of the key.
        searched: What was found in the checkpoint, if one was named, and in each savepoint.
        elsewhere: Other places where the key may be: those that were searched as text, and the others.
    """

    catalog: str
    key_sha256: str
    searched: tuple[Searched, ...]
    elsewhere: tuple[PlaceReport, ...] = ()

    @property
    @in_json
    def rows(self) -> int:
        """The rows that hold the key; one that several places have counts in each."""
        return sum(place.rows for place in self.searched)

    @property
    @in_json
    def touched(self) -> int:
        """How many of the places that were searched would be written anew."""
        return sum(place.holds for place in self.searched)

    @property
    @in_json
    def outcome(self) -> str:
        """`erased`, `erased before`, or `not found`."""
        return outcome_of(self.searched)

    def lines(self) -> list[str]:
        """It for people."""
        return [
            *(place.words(planned=True) for place in self.searched),
            *(line for report in self.elsewhere for line in report.words()),
        ]

    @property
    @in_json
    def savepoints(self) -> int:
        """How many savepoints were searched."""
        return sum(place.before is not None for place in self.searched)
