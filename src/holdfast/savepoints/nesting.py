"""Check that a new checkpoint or catalog is not nested in an existing one."""

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

# The depth of a named state store in a checkpoint.
_LEVELS: Final = 4


def check_target(target: Storage) -> None:
    """Raise an error for a new checkpoint inside a checkpoint or catalog, or at the path of a file.

    Cost: a few requests for each parent directory.

    Raises:
        Invalid: It would be inside a checkpoint or catalog.
        Conflict: A file has this path.
    """
    _refuse_file(target)
    _refuse_within(target, "a checkpoint")


def check_apart(
    checkpoint: Storage,
    directory: Storage,
    noun: str = "catalog",
    *,
    hint: str = "name a catalog next to the checkpoint, such as CHECKPOINT.savepoints",
) -> None:
    """Raise an error for a catalog or table inside a checkpoint, or the reverse.

    Args:
        checkpoint: The checkpoint.
        directory: The catalog or table.
        noun: The type of the directory, for the message.
        hint: The hint of the error.

    Raises:
        Invalid: One of the two is inside the other.
    """
    one, other = f"{checkpoint.uri.rstrip('/')}/", f"{directory.uri.rstrip('/')}/"
    if one.startswith(other) or other.startswith(one):
        raise Invalid(
            f"a {noun} and a checkpoint cannot contain one another",
            code="HF-E2251",
            where=directory.uri,
            found=f"checkpoint {checkpoint.uri}",
            expected="two separate directories",
            hint=hint,
        )


def check_catalog(catalog: Storage) -> None:
    """Raise an error for a catalog at or inside a checkpoint, inside a catalog, or at the path of a file.

    Raises:
        Invalid: It is a checkpoint, or is inside a checkpoint or catalog.
        Conflict: A file has this path.
    """
    _refuse_file(catalog)
    if catalog.list(layout.OFFSETS).names or catalog.list(layout.COMMITS).names:
        raise Invalid(
            "a checkpoint's directory cannot be a savepoint catalog",
            code="HF-E2252",
            where=catalog.uri,
            found="the logs of a query",
            hint="name a catalog next to the checkpoint, such as CHECKPOINT.savepoints",
        )
    _refuse_within(catalog, "a savepoint catalog")


def _refuse_within(storage: Storage, what: str) -> None:
    for above in _above(storage.uri):
        found = None
        with suppress(HoldfastError):  # what cannot be looked at tells nothing
            found = _kind(open_storage(above))
        if found is not None:
            raise Invalid(
                f"{what} cannot be inside {found}",
                code="HF-E2253",
                where=storage.uri,
                found=f"{found} at {above}",
                expected="two separate directories",
                hint=f"name a directory outside {above}, such as {above}-new",
            )


def _kind(storage: Storage) -> str | None:
    if storage.size(layout.METADATA) is not None and (
        storage.list(layout.OFFSETS).names or storage.list(layout.COMMITS).names
    ):
        return "a checkpoint"
    if storage.list(OBJECTS).names and storage.list(SAVEPOINTS).names:
        return "a savepoint catalog"
    return None


def _above(uri: str) -> Iterator[str]:
    """Yield the parent directories, nearest first, including a bucket but not the root of the disk."""
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
            "the path is a file, not a directory",
            code="HF-E4006",
            where=found,
            hint="name a different directory",
        )


def _is_file(part: Path) -> bool:
    return os.path.lexists(part) and not part.is_dir()
