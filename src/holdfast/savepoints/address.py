"""The address of a savepoint, a checkpoint or a catalog, parsed once.

`DIR/20260305T08` and `DIR@before-upgrade` stand for `DIR/savepoints/20260305T080000.000Z-1f0c33aa-b41-9d2e`.
`DIR@latest` is the newest savepoint, `DIR@2026-03-05T08:00` the newest one taken by that time (UTC), and a
local directory with a single savepoint is that savepoint. An ambiguous name is rejected. The part after the
last `@` is a label unless it contains a slash, so `DIR@LABEL/` is a directory; digits are the batch of a
checkpoint.
"""

from __future__ import annotations

import datetime as dt
import os
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
    listed,
    load,
    savepoint_uri,
    split_uri,
)
from holdfast.savepoints.view import SavepointView, StateLocation
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

# An address as public functions take it.
Address = str | os.PathLike[str]

# So much of a savepoint's id at least, its day, represents all of it.
_SHORT_ID: Final = re.compile(r"[0-9]{8}(T[0-9.]*(Z[-b0-9a-f]*)?)?")
# A longer number is not a valid batch.
_BATCH: Final = re.compile(r"[0-9]{1,100}")
# A URI without a path: what follows an `@` there is the host.
_ONLY_AUTHORITY: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/*[^/]*")
# `DIR@latest`, where no savepoint has this label.
LATEST: Final = "latest"
# The number of savepoints or labels that an error shows.
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class StateAddress:
    """The address of a savepoint, a checkpoint or a catalog.

    At most one of `savepoint_id`, `id_prefix`, `label` and `batch` is set; none is set for a directory.

    Attributes:
        text: The address as given, or the full address of the savepoint that `resolve` found.
        directory: The address without id, label and batch: a catalog, or a checkpoint.
        savepoint_id: The full id of a savepoint.
        id_prefix: The beginning of a savepoint's id.
        label: The label of a savepoint.
        batch: The batch of a checkpoint.
    """

    text: str
    directory: str
    savepoint_id: str | None = None
    id_prefix: str | None = None
    label: str | None = None
    batch: int | None = None

    @classmethod
    def parse(cls, address: Address) -> StateAddress:
        """Parse an address by its form alone; nothing is read.

        A checkpoint path with an `@` may be parsed as a catalog with a label; `resolve` tells them apart.
        """
        text = os.fspath(address)
        full = split_uri(text)
        if full is not None:
            return cls(text, full[0], savepoint_id=full[1])
        folder, _, prefix = text.rstrip("/").rpartition("/")
        if folder and _SHORT_ID.fullmatch(prefix):
            return cls(text, folder, id_prefix=prefix)
        directory, at, suffix = text.rpartition("@")
        if at and _BATCH.fullmatch(suffix):
            return cls(text, directory, batch=int(suffix))
        if directory and unnameable(suffix) is None and not _ONLY_AUTHORITY.fullmatch(directory):
            return cls(text, directory, label=suffix)
        return cls(text, text)

    @classmethod
    def resolve(cls, address: Address, *, or_directory: bool = False) -> StateAddress:
        """Parse an address, and find the savepoint that it names by its label or by part of its id.

        Args:
            address: The address as typed.
            or_directory: Return a catalog unchanged, even if it has a single savepoint.

        Cost: none for a full address. A short id costs a listing of the catalog. A label costs reading every
        manifest, as `catalog.listed` does.

        Raises:
            Invalid: The name matches several savepoints.
            NotFound: No savepoint of this catalog has the label.
        """
        parsed = cls.parse(address)
        if parsed.is_savepoint:
            return parsed._in_its_catalog()
        if parsed.is_partial:
            return parsed.find() or cls(parsed.text, parsed.text)
        return parsed if or_directory else _only_one(parsed.text) or parsed

    @property
    def is_savepoint(self) -> bool:
        """True for the full address of a savepoint, whether or not it exists."""
        return self.savepoint_id is not None

    @property
    def is_partial(self) -> bool:
        """True for a savepoint's address by its label or the beginning of its id."""
        return self.label is not None or self.id_prefix is not None

    @property
    def catalog(self) -> str:
        """Return the canonical URI of a savepoint's catalog.

        Raises:
            Invalid: It is not an address of a savepoint.
        """
        return self._as_savepoint()[0]

    @property
    def uri(self) -> str:
        """Return the canonical URI of a savepoint.

        Raises:
            Invalid: It is not an address of a savepoint.
        """
        catalog, savepoint_id = self._as_savepoint()
        return f"{catalog}/{SAVEPOINTS}/{savepoint_id}"

    def find(self) -> StateAddress | None:
        """Return the full address of a partial one; None if the id or the catalog does not exist.

        Raises:
            Invalid, NotFound: As `resolve`.
        """
        if self.label is not None:
            catalog = open_storage(self.directory, "savepoint")
            return _labelled(catalog, self.label, self.text) if is_catalog(catalog) else None
        return next(filter(None, (self._begun(folder) for folder in catalogs_of(self.directory))), None)

    def open_savepoint(self) -> tuple[Storage, str]:
        """Open the catalog of a savepoint, and return it with the savepoint's id.

        Raises:
            Invalid: It is not an address of a savepoint.
        """
        catalog, savepoint_id = self._as_savepoint()
        return open_storage(catalog, "savepoint"), savepoint_id

    def open_state(self, batch: int | None = None) -> StateLocation:
        """Open the state of a savepoint, or of a checkpoint at its batch.

        Args:
            batch: The batch, if the address does not name one.

        Raises:
            NotFound: The savepoint does not exist. A checkpoint is not read.
            Corrupt: The manifest is damaged.
            Invalid: The address is not valid, or names a different batch.
        """
        from holdfast.external.view import open_steady  # it loads the databases; parsing needs none

        if self.is_savepoint:
            return self._saved_state(batch)
        if self.batch is not None and batch not in (None, self.batch):
            raise Invalid(
                "two different batches are given",
                code="HF-E2259",
                found=f"{self.text} and batch {batch}",
                hint="give the batch only once",
            )
        if self.batch is not None:
            batch = self.batch
        storage = open_steady(self.text if self.batch is None else self.directory)
        return StateLocation(storage, batch, storage.uri if batch is None else f"{storage.uri}@{batch}")

    def _saved_state(self, batch: int | None) -> StateLocation:
        catalog, savepoint_id = self.open_savepoint()
        manifest = load(catalog, savepoint_id)
        uri = savepoint_uri(catalog, savepoint_id)
        if batch not in (None, manifest.batch_id):
            raise Invalid(
                "the savepoint is of a different batch than the one given",
                code="HF-E2258",
                where=uri,
                found=f"batch {batch}",
                expected=f"batch {manifest.batch_id}",
                hint="omit the batch, or name a savepoint of that batch",
            )
        view = SavepointView(catalog, manifest.files, uri)
        return StateLocation(view, manifest.batch_id, uri, is_savepoint=True)

    def _as_savepoint(self) -> tuple[str, str]:
        """Return the canonical URI of the catalog, and the id.

        Raises:
            Invalid: It is not an address of a savepoint.
        """
        found = split_uri(_canonical(self.text))
        if found is None:
            raise Invalid(
                "invalid savepoint address",
                code="HF-E2246",
                found=self.text,
                expected=f"DIR/ID, DIR/{SAVEPOINTS}/ID, or DIR@LABEL",
                hint="list the savepoints with `holdfast savepoint list DIR`"
                + ("" if self.batch is None else "; digits after @ are a batch, not a label"),
            )
        return found

    def _in_its_catalog(self) -> StateAddress:
        """Return a full address in the catalog `DIR/savepoints` if that was named as `DIR`, or this one.

        Local directories only: on other storage each full address would cost a request.
        """
        path = local_path(_canonical(self.text))
        if path is None or path.exists():
            return self
        inner = path.parent / SAVEPOINTS / path.name
        return StateAddress.parse(inner) if inner.exists() else self

    def _begun(self, folder: str) -> StateAddress | None:
        """Return the savepoint of a catalog whose id begins as given."""
        catalog = open_storage(folder, "savepoint")
        prefix = self.id_prefix or ""
        matching = [savepoint_id for savepoint_id in ids(catalog) if savepoint_id.startswith(prefix)]
        if len(matching) > 1:
            raise Invalid(
                "the savepoint id is ambiguous",
                code="HF-E2249",
                where=self.text,
                found=_some(matching),
                hint="give more characters of the id",
            )
        return StateAddress.parse(savepoint_uri(catalog, matching[0])) if matching else None


def unnameable(label: str) -> str | None:
    """Return why a label cannot name its savepoint as `DIR@LABEL`; None if it can."""
    if label.isascii() and label.isdigit():
        return "digits after @ are a batch"
    if not label or "/" in label or "@" in label:
        return "the part after @ must not be empty or contain / or @"
    return None


def _only_one(address: str) -> StateAddress | None:
    """Return the only savepoint of a local directory; None for any other."""
    path = local_path(_canonical(address))
    if path is None or not (path / SAVEPOINTS).is_dir():
        return None
    catalog = open_storage(str(path), "savepoint")
    found = ids(catalog) if is_catalog(catalog) else []
    return StateAddress.parse(savepoint_uri(catalog, found[0])) if len(found) == 1 else None


def _canonical(address: str) -> str:
    return canonical_uri(parse_storage(address, "savepoint"), Path.cwd())


def list_labels(catalog: Storage) -> dict[str, list[Listed]]:
    """Return the savepoints of a catalog by their current label, oldest first; damaged ones are left out.

    Cost: that of `catalog.listed`, which reads every manifest.
    """
    return _by_label([savepoint for savepoint in listed(catalog) if savepoint.problem is None])


def _by_label(whole: Sequence[Listed]) -> dict[str, list[Listed]]:
    labels: dict[str, list[Listed]] = {}
    for savepoint in whole:
        manifest = savepoint.manifest
        if manifest is not None and manifest.label is not None:
            labels.setdefault(manifest.label, []).append(savepoint)
    return labels


def _labelled(catalog: Storage, label: str, given: str) -> StateAddress:
    whole = [savepoint for savepoint in listed(catalog) if savepoint.problem is None]
    labels = _by_label(whole)
    matching = labels.get(label, [])
    if len(matching) > 1:
        newest_first = [savepoint.savepoint_id for savepoint in reversed(matching)]
        raise Invalid(
            f"{len(matching)} savepoints have this label",
            code="HF-E2250",
            where=given,
            found=_some(newest_first),
            hint=f"name one savepoint by its id, such as {catalog.uri}/{newest_first[0]}; or give one of"
            " them a different label with `holdfast savepoint label SP LABEL`",
        )
    if not matching and label == LATEST:
        matching = whole[-1:]
    until_ms = None if matching else _time_ms(label)
    if until_ms is not None:
        matching = [
            savepoint
            for savepoint in whole
            if savepoint.manifest is not None and savepoint.manifest.created_ms <= until_ms
        ][-1:]
        if not matching:
            raise NotFound(
                "no savepoint in this catalog was taken by this time",
                code="HF-E3080",
                where=catalog.uri,
                found=label,
                hint=f"list the savepoints with `holdfast savepoint list {place_word(catalog.uri)}`",
            )
    if not matching:
        raise NotFound(
            f"no savepoint in this catalog has the label {label!r}",
            code="HF-E3054",
            where=catalog.uri,
            found=f"the labels {_some([repr(known) for known in labels])}" if labels else "no label",
            hint=f"list the savepoints with `holdfast savepoint list {place_word(catalog.uri)}`",
        )
    return StateAddress.parse(matching[0].uri)


def _time_ms(text: str) -> int | None:
    """Return a time with hours in epoch milliseconds, UTC where it has no zone; None for any other text."""
    if "T" not in text:
        return None
    try:
        moment = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)).timestamp() * 1000)


def catalogs_of(folder: str) -> Sequence[str]:
    """Return the catalogs that a folder name may refer to; its part `savepoints` may be left out."""
    if folder == SAVEPOINTS:
        return [folder, "."]
    above = folder.removesuffix(f"/{SAVEPOINTS}")
    return [folder] if above in (folder, "") else [above, folder]


def _some(names: Sequence[str]) -> str:
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
