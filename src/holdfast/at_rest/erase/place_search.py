"""Look for a key in the places besides state where Holdfast may keep one, and name those it cannot search."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.at_rest.erase.certificate import PlaceReport
from holdfast.at_rest.erase.erasing import redacted
from holdfast.at_rest.erase.key_places import KEY_PLACES, KeyPlace, Root, Treatment, place_at, place_named
from holdfast.at_rest.erase.matching import Subject
from holdfast.at_rest.erase.word_search import WordSearch
from holdfast.checkpoints.tree import Tree
from holdfast.config.locations import canonical_uri, local_path, parse_storage
from holdfast.errors import HoldfastError, NotFound
from holdfast.formats.savepoint.manifest import CHANGE, ERASURES, Manifest
from holdfast.formats.text import compact
from holdfast.savepoints.catalog.catalog import ids, load, object_path, savepoint_uri
from holdfast.storage.port import Storage, full
from holdfast.storage.sandbox import clear

_NOTES: Final = "logs and notes of savepoints"
_WORK: Final = "directories of work under way"
_ANYWHERE: Final = "wherever they are"


@dataclass(slots=True)
class _Files:
    """What was searched of one place."""

    searched: int = 0
    found: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


class PlaceSearch:
    """Looks through the table of places.

    Args:
        subject: Who is meant.
        catalog: The catalog that the erasure is of.
        checkpoint: The checkpoint that it is of too.
        home: The state home; None where none is known.
        changing: Whether what killed processes have left may be removed.
    """

    def __init__(
        self,
        subject: Subject,
        catalog: Storage,
        checkpoint: Storage | None,
        home: Path | None,
        *,
        changing: bool,
    ) -> None:
        self._subject = subject
        self._words = WordSearch(subject)
        self._catalog = catalog
        self._checkpoint = checkpoint
        self._home = None if home is None else home.resolve()
        self._changing = changing
        roots = [local_path(storage.uri) for storage in (catalog, checkpoint) if storage is not None]
        self._roots = tuple(root.resolve() for root in roots if root is not None)

    def reports(self) -> tuple[PlaceReport, ...]:
        """Every place: the catalog and its savepoints, the state home, the others."""
        return (
            *self._in_catalog(),
            *self._in_notes(),
            *self._unnamed_checkpoints(),
            *self._work(),
            *self._in_home(),
            *(_unsearched(place, _ANYWHERE) for place in KEY_PLACES if place.root is Root.OUTSIDE),
        )

    # Savepoints and checkpoints

    def _in_catalog(self) -> Iterator[PlaceReport]:
        """What the catalog has besides state; what is no part of a catalog is named and not searched."""
        files: dict[str, _Files] = {}
        strange = []
        for name in sorted(self._catalog.list("").names):
            place = place_at(Root.CATALOG, f"{name}/") or place_at(Root.CATALOG, name)
            if place is None:
                strange.append(name)
            elif place.treatment is Treatment.SEARCHED:
                listing = self._catalog.list(name)
                self._look(
                    files.setdefault(place.name, _Files()),
                    self._catalog,
                    (f"{name}/{file}" for file in sorted(listing.names)),
                )
        for name, one in files.items():
            yield from self._report(place_named(name), self._catalog.uri, one)
        if strange:
            where, names = self._shown(full(self._catalog.uri, "")), self._shown(", ".join(strange))
            yield _not_searched("files that are no part of a catalog", where, names, "look at them")

    def _in_notes(self) -> Iterator[PlaceReport]:
        """The manifests, logs and notes of each savepoint, and of the checkpoint; each content once."""
        one = _Files()
        known: dict[str, bool] = {}
        for manifest in self._manifests():
            uri = savepoint_uri(self._catalog, manifest.savepoint_id)
            if self._words.is_in(compact(self._without_edits(manifest.fields)).encode()):
                one.found.append(f"{uri}: manifest.json")
            one.searched += 1
            for file in manifest.files:
                if layout.state_file(file.path) is not None:
                    continue
                if file.sha256 not in known:
                    try:
                        known[file.sha256] = self._words.is_in(self._catalog.read(object_path(file.sha256)))
                    except HoldfastError as error:
                        one.unreadable.append(f"{uri}: {file.path}, {error.fact}")
                        continue
                one.searched += 1
                if known[file.sha256]:
                    one.found.append(f"{uri}: {file.path}")
        if self._checkpoint is not None:
            paths = (path for path, _ in Tree(self._checkpoint).places() if layout.state_file(path) is None)
            self._look(one, self._checkpoint, paths)
        yield from self._report(place_named(_NOTES), self._catalog.uri, one)

    def _manifests(self) -> Iterator[Manifest]:
        for savepoint_id in ids(self._catalog):
            with suppress(NotFound):  # it was never finished
                yield load(self._catalog, savepoint_id)

    def _without_edits(self, fields: Mapping[str, object]) -> dict[str, object]:
        """A manifest without what the erasure itself takes care of."""
        return {name: value for name, value in fields.items() if name not in ("label", CHANGE, ERASURES)}

    def _unnamed_checkpoints(self) -> Iterator[PlaceReport]:
        """The checkpoints that the savepoints were taken of, where they were not named."""
        named = None if self._checkpoint is None else self._checkpoint.uri
        for uri in sorted({manifest.checkpoint for manifest in self._manifests()}):
            place = _local(uri)
            if uri != named and (place is None or place.exists()):
                yield _not_searched(
                    "checkpoint",
                    self._shown(uri),
                    "savepoints of this catalog were taken of it",
                    "stop its query, and name it with --checkpoint",
                )

    def _work(self) -> Iterator[PlaceReport]:
        """Directories in which others work at this moment; those of killed processes are removed."""
        folders = {root.parent for root in self._roots}
        if local_path(self._catalog.uri) is None:
            folders.add(Path(tempfile.gettempdir()))
        for folder in sorted(folders):
            yield from self._sandboxes(folder, place_named(_WORK))

    def _sandboxes(self, folder: Path, place: KeyPlace) -> Iterator[PlaceReport]:
        if not folder.is_dir():
            return
        if self._changing:
            clear(folder)
        for path in sorted(folder.glob(".holdfast-*")):
            if path.is_dir():
                yield _unsearched(place, self._shown(str(path)))

    # The state home

    def _in_home(self) -> Iterator[PlaceReport]:
        home = self._home
        if home is None or not home.is_dir():
            yield _not_searched(
                "state home",
                "none" if home is None else self._shown(str(home)),
                "logs of drivers, the registry and operations may name it",
                "there is no such directory: name the jobs' state home with --home",
            )
            return
        files: dict[str, _Files] = {}
        for path in _walk(home):
            relative = path.relative_to(home).as_posix()
            place = place_at(Root.HOME, relative)
            if place is None or place.treatment is not Treatment.SEARCHED or self._is_handled(path):
                continue
            one = files.setdefault(place.name, _Files())
            try:
                hit = self._words.is_in_file(path)
            except FileNotFoundError:
                continue  # a running job has replaced it
            except OSError as error:
                one.unreadable.append(f"{path}, {error.strerror}")
                continue
            one.searched += 1
            if hit:
                one.found.append(str(path))
        for place in KEY_PLACES:
            if place.name in files:
                yield from self._report(place, str(home), files[place.name])
        for path in sorted(home.iterdir()):
            place = place_at(Root.HOME, f"{path.name}/") if path.is_dir() else None
            if place is None or place.treatment is not Treatment.NOT_SEARCHED or self._is_handled(path):
                continue
            if place.name == "sandboxes of comparisons and drills":
                yield from self._sandboxes(path, place)
            else:
                yield _unsearched(place, self._shown(str(path)))

    def _is_handled(self, path: Path) -> bool:
        """Whether a path is in the catalog or the checkpoint."""
        return any(path.is_relative_to(root) for root in self._roots)

    # Both

    def _look(self, one: _Files, storage: Storage, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                hit = self._words.is_in(storage.read(path))
            except NotFound:
                continue
            except HoldfastError as error:
                one.unreadable.append(f"{full(storage.uri, path)}, {error.fact}")
                continue
            one.searched += 1
            if hit:
                one.found.append(full(storage.uri, path))

    def _report(self, place: KeyPlace, where: str, one: _Files) -> Iterator[PlaceReport]:
        found = tuple(self._shown(file) for file in one.found)
        yield PlaceReport(
            place.name, self._shown(where), True, one.searched, found, place.holds, place.advice
        )
        for file in one.unreadable:
            why, advice = "a file of it cannot be read", "make it readable, and erase once more"
            yield _not_searched(place.name, self._shown(file), why, advice)

    def _shown(self, text: str) -> str:
        """A path as a certificate may have it: without the key, also where that is but a part of a word."""
        return self._words.without(str(redacted(text, self._subject)))


def _unsearched(place: KeyPlace, where: str) -> PlaceReport:
    return _not_searched(place.name, where, place.holds, place.advice)


def _not_searched(name: str, where: str, why: str, advice: str) -> PlaceReport:
    return PlaceReport(name, where, searched=False, files=0, found=(), why=why, advice=advice)


def _walk(folder: Path) -> Iterator[Path]:
    """The regular files below a directory."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _local(uri: str) -> Path | None:
    try:
        return local_path(canonical_uri(parse_storage(uri, "checkpoint"), Path.cwd()))
    except HoldfastError:
        return None
