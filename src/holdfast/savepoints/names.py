"""Resolve a savepoint by id, label or address.

`DIR/20260305T08` and `DIR@before-upgrade` stand for `DIR/savepoints/20260305T080000.000Z-1f0c33aa-b41-9d2e`.
`DIR@latest` is the newest savepoint, and a local directory with a single savepoint is that savepoint. An
ambiguous name is rejected. The part after the last `@` is a label unless it contains a slash, so `DIR@LABEL/`
is a directory; digits are the batch of a checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.config.checks import canonical_uri, local_path, parse_storage, place_word
from holdfast.errors import Invalid, NotFound
from holdfast.savepoints.catalog import (
    SAVEPOINTS,
    Listed,
    ids,
    is_catalog,
    is_savepoint,
    listed,
    savepoint_uri,
)
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

# So much of a savepoint's id at least, its day, represents all of it.
_SHORT_ID: Final = re.compile(r"[0-9]{8}(T[0-9.]*(Z[-b0-9a-f]*)?)?")
# A URI without a path: what follows an `@` there is the host.
_ONLY_AUTHORITY: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/*[^/]*")
# `DIR@latest`, where no savepoint has this label.
LATEST: Final = "latest"
# The number of savepoints or labels that an error shows.
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class SavepointName:
    """A savepoint of a catalog by the beginning of its id, or by its label.

    Attributes:
        catalog: The catalog's address.
        begins: How its id begins; empty where the label names it.
        label: Its label; None where the id names it.
    """

    catalog: str
    begins: str = ""
    label: str | None = None


def parse_name(address: str) -> SavepointName | None:
    """Parse a partial savepoint address; None for a full address, and for any other text.

    No storage is read, so a checkpoint path with an `@` may be parsed as a catalog with a label.
    """
    if is_savepoint(address):
        return None
    folder, _, begins = address.rstrip("/").rpartition("/")
    if folder and _SHORT_ID.fullmatch(begins):
        return SavepointName(folder, begins)
    catalog, at, label = address.rpartition("@")
    if not at or not catalog or unnameable(label) is not None or _ONLY_AUTHORITY.fullmatch(catalog):
        return None
    return SavepointName(catalog, label=label)


def unnameable(label: str) -> str | None:
    """Return why a label cannot name its savepoint as `DIR@LABEL`; None if it can."""
    if label.isascii() and label.isdigit():
        return "digits after @ are a batch"
    if not label or "/" in label or "@" in label:
        return "the part after @ must not be empty or contain / or @"
    return None


def savepoint_address(address: str, *, or_directory: bool = False) -> str:
    """Return the full address of a savepoint from its short form; any other address is returned unchanged.

    Args:
        address: The address as typed.
        or_directory: Return a catalog unchanged, even if it has a single savepoint.

    Cost: none for a full address. A short id costs a listing of the catalog. A label costs reading every
    manifest, as `catalog.listed` does.

    Raises:
        Invalid: The name matches several savepoints.
        NotFound: No savepoint of this catalog has the label.
    """
    if is_savepoint(address):
        return _below_its_namesake(address) or address
    name = parse_name(address)
    if name is None:
        return address if or_directory else _only_one(address) or address
    return find(name, address) or address


def _only_one(address: str) -> str | None:
    """Return the only savepoint of a local directory; None for any other."""
    path = local_path(canonical_uri(parse_storage(address, "savepoint"), Path.cwd()))
    if path is None or not (path / SAVEPOINTS).is_dir():
        return None
    catalog = open_storage(str(path), "savepoint")
    found = ids(catalog) if is_catalog(catalog) else []
    return savepoint_uri(catalog, found[0]) if len(found) == 1 else None


def find(name: SavepointName, given: str) -> str | None:
    """Return the full address of a named savepoint; None if the id or the catalog does not exist.

    Args:
        name: The name.
        given: The address as typed, for messages.

    Raises:
        Invalid, NotFound: As `savepoint_address`.
    """
    if name.label is not None:
        catalog = open_storage(name.catalog, "savepoint")
        return _labelled(catalog, name.label, given) if is_catalog(catalog) else None
    return next(filter(None, (_begun(folder, name, given) for folder in catalogs_of(name.catalog))), None)


def _begun(folder: str, name: SavepointName, given: str) -> str | None:
    catalog = open_storage(folder, "savepoint")
    matching = [savepoint_id for savepoint_id in ids(catalog) if savepoint_id.startswith(name.begins)]
    if len(matching) > 1:
        raise Invalid(
            "the savepoint id is ambiguous",
            code="HF-E2249",
            where=given,
            found=_some(matching),
            hint="give more characters of the id",
        )
    return savepoint_uri(catalog, matching[0]) if matching else None


def list_labels(catalog: Storage) -> dict[str, list[Listed]]:
    """Return the savepoints of a catalog by their current label, oldest first; damaged ones are left out.

    Cost: that of `catalog.listed`, which reads every manifest.
    """
    labels: dict[str, list[Listed]] = {}
    for savepoint in listed(catalog):
        manifest = savepoint.manifest
        if manifest is not None and manifest.label is not None and savepoint.problem is None:
            labels.setdefault(manifest.label, []).append(savepoint)
    return labels


def _labelled(catalog: Storage, label: str, given: str) -> str:
    labels = list_labels(catalog)
    matching = labels.get(label, [])
    if len(matching) > 1:
        newest_first = [savepoint.savepoint_id for savepoint in reversed(matching)]
        raise Invalid(
            f"{len(matching)} savepoints have this label",
            code="HF-E2250",
            where=given,
            found=_some(newest_first),
            hint=f"name one savepoint by its id, such as {catalog.uri}/{newest_first[0]}; or give one of"
            " them a different label"
            " with `holdfast savepoint label`",
        )
    if not matching and label == LATEST:
        whole = [savepoint for savepoint in listed(catalog) if savepoint.problem is None]
        matching = whole[-1:]
    if not matching:
        raise NotFound(
            f"no savepoint in this catalog has the label {label!r}",
            code="HF-E3054",
            where=catalog.uri,
            found=f"the labels {_some([repr(known) for known in labels])}" if labels else "no label",
            hint=f"list the savepoints with `holdfast savepoint list {place_word(catalog.uri)}`",
        )
    return matching[0].uri


def catalogs_of(folder: str) -> Sequence[str]:
    """Return the catalogs that a folder name may refer to; its part `savepoints` may be left out."""
    if folder == SAVEPOINTS:
        return [folder, "."]
    above = folder.removesuffix(f"/{SAVEPOINTS}")
    return [folder] if above in (folder, "") else [above, folder]


def _below_its_namesake(address: str) -> str | None:
    """Return the address of a savepoint in a catalog named `savepoints` whose name was left out.

    Local directories only: on other storage each full address would cost a request.
    """
    place = local_path(canonical_uri(parse_storage(address, "savepoint"), Path.cwd()))
    if place is None or place.exists():
        return None
    inner = place.parent / SAVEPOINTS / place.name
    return str(inner) if inner.exists() else None


def _some(names: Sequence[str]) -> str:
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
