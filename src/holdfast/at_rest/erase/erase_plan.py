"""What an erasure would do, and which place it can be of."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast import layout
from holdfast.at_rest.erase.certificate import PlaceReport, Searched, outcome_of
from holdfast.config.locations import local_path
from holdfast.errors import Invalid, NotFound
from holdfast.json_shapes import JsonShape, in_json
from holdfast.savepoints.catalog.catalog import OBJECTS, SAVEPOINTS, is_savepoint
from holdfast.storage.port import Storage


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


def require_catalog(catalog: Storage) -> None:
    """Refuse a place that is no catalog of savepoints; nothing is made there.

    Raises:
        NotFound: Nothing is there.
        Invalid: Something else is there.
    """
    names = set(catalog.list("").names)
    if SAVEPOINTS in names or OBJECTS in names:
        return
    root = local_path(catalog.uri)
    if not names and (root is None or not root.exists()):
        raise NotFound(
            "there is no directory of savepoints",
            where=catalog.uri,
            found="nothing",
            hint="name the directory that `holdfast savepoint take` was given",
        )
    address = catalog.uri.rstrip("/")
    if is_savepoint(address):
        found, hint = "one savepoint", f"name its directory: {address.rsplit('/', 2)[0]}"
    elif any(is_savepoint(f"{address}/{name}") for name in names):
        found, hint = "a part of one", f"name the directory above it: {address.rpartition('/')[0]}"
    elif {layout.OFFSETS, layout.COMMITS} & names:
        found = "a checkpoint"
        hint = "name a directory of savepoints, and the checkpoint with --checkpoint"
    else:
        found = "an empty directory" if not names else f"{len(names)} others, such as {min(names)}"
        hint = "see what a directory of savepoints has with `holdfast savepoint list DIR`"
    raise Invalid(
        "this is no directory of savepoints",
        where=catalog.uri,
        found=found,
        expected=f"a directory with {SAVEPOINTS}/ and {OBJECTS}/",
        hint=hint,
    )
