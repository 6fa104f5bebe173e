"""Check whether a directory may become a checkpoint or a catalog; nested ones are refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.config.checks import local_path
from holdfast.errors import Conflict, HoldfastError, Invalid
from holdfast.savepoints.catalog import OBJECTS, SAVEPOINTS
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

# A store of state with a name lies so deep in a checkpoint.
_LEVELS: Final = 4


def check_target(target: Storage) -> None:
    """Refuse to make a checkpoint within a checkpoint or a catalog, or where a file is.

    Cost: a few looks at each of the directories above.

    Raises:
        Invalid: It would lie within another one.
        Conflict: There is a file.
    """
    _refuse_file(target)
    _refuse_within(target, "a checkpoint")


def check_apart(
    checkpoint: Storage,
    directory: Storage,
    noun: str = "catalog",
    *,
    hint: str = "name a catalog beside the checkpoint, such as CHECKPOINT.savepoints",
) -> None:
    """Refuse a catalog or table inside a checkpoint, and a checkpoint inside one of them.

    Args:
        checkpoint: The checkpoint.
        directory: The catalog or table.
        noun: What the directory is, for the message.
        hint: What to name instead.

    Raises:
        Invalid: One of the two is inside the other.
    """
    one, other = f"{checkpoint.uri.rstrip('/')}/", f"{directory.uri.rstrip('/')}/"
    if one.startswith(other) or other.startswith(one):
        raise Invalid(
            f"a {noun} and a checkpoint must not be inside one another",
            code="HF-E2251",
            where=directory.uri,
            found=f"checkpoint {checkpoint.uri}",
            expected="two directories apart",
            hint=hint,
        )


def check_catalog(catalog: Storage) -> None:
    """Refuse to take savepoints into a checkpoint, into a part of one or of a catalog, or into a file.

    Raises:
        Invalid: It is a checkpoint, or lies within one or within a catalog.
        Conflict: There is a file.
    """
    _refuse_file(catalog)
    if catalog.list(layout.OFFSETS).names or catalog.list(layout.COMMITS).names:
        raise Invalid(
            "a directory of savepoints must not be a checkpoint",
            code="HF-E2252",
            where=catalog.uri,
            found="the logs of a query",
            hint="name a catalog beside the checkpoint, such as CHECKPOINT.savepoints",
        )
    _refuse_within(catalog, "a directory of savepoints")


def _refuse_within(storage: Storage, what: str) -> None:
    for above in _above(storage.uri):
        found = None
        with suppress(HoldfastError):  # what cannot be looked at tells nothing
            found = _kind(open_storage(above))
        if found is not None:
            raise Invalid(
                f"{what} must not lie within {found}",
                code="HF-E2253",
                where=storage.uri,
                found=f"{found} at {above}",
                expected="two directories apart",
                hint=f"name a directory beside it, such as {above}-new",
            )


def _kind(storage: Storage) -> str | None:
    if storage.size(layout.METADATA) is not None and (
        storage.list(layout.OFFSETS).names or storage.list(layout.COMMITS).names
    ):
        return "a checkpoint"
    if storage.list(OBJECTS).names and storage.list(SAVEPOINTS).names:
        return "a directory of savepoints"
    return None


def _above(uri: str) -> Iterator[str]:
    """The directories above one, nearest first; a bucket is one, and the root of the disk is not."""
    place = uri.rstrip("/")
    for _ in range(_LEVELS):
        place = place.rpartition("/")[0]
        if not place.rstrip("/").partition("://")[2]:
            return
        yield place


def _refuse_file(storage: Storage) -> None:
    place = local_path(storage.uri)
    if place is None:
        above, _, name = storage.uri.rstrip("/").rpartition("/")
        found = None
        with suppress(HoldfastError):
            found = storage.uri if open_storage(above).size(name) is not None else None
    else:
        found = next((str(part) for part in (place, *place.parents) if _is_file(part)), None)
    if found is not None:
        raise Conflict(
            "a file is where a directory should be",
            code="HF-E4006",
            where=found,
            hint="name another directory",
        )


def _is_file(part: Path) -> bool:
    return os.path.lexists(part) and not part.is_dir()
