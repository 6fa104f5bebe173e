"""The table of all locations where Holdfast may store a key, and the search of those outside state.

Every new file, directory or database of Holdfast needs a row in the table; a test compares the table with the
code. Locations outside Holdfast (sources, sinks, backups) also have rows, because a certificate names the
locations that were not searched.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from holdfast import layout
from holdfast.changes.erase.certificate import LocationReport
from holdfast.changes.erase.erasing import redacted
from holdfast.changes.erase.searching import Subject
from holdfast.checkpoints.checkpoint import Tree
from holdfast.config.checks import canonical_uri, local_path, parse_storage
from holdfast.errors import HoldfastError, NotFound
from holdfast.formats.manifest import CHANGE, ERASURES, Manifest
from holdfast.formats.sql_names import sql_identifier
from holdfast.formats.text import compact
from holdfast.savepoints.catalog import ids, load, object_path, savepoint_uri
from holdfast.storage.atomic_swap import clear
from holdfast.storage.port import Storage, full


class Root(str, Enum):
    """The root to which the paths of a location are relative."""

    CATALOG = "catalog"
    CHECKPOINT = "checkpoint"
    HOME = "state home"
    WORK = "directory of a catalog or checkpoint"
    OUTSIDE = "outside"


class Treatment(str, Enum):
    """The treatment of a location by an erasure."""

    ERASED = "erased"
    SEARCHED = "searched as text"
    NOT_SEARCHED = "not searched"


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """A row of the table: a type of location.

    Attributes:
        name: The name in a certificate.
        root: The root of the paths.
        paths: The patterns of paths; `*` matches any characters, including `/`.
        treatment: The treatment by an erasure.
        holds: The reason why a key can occur there.
        advice: The recommended action if the key was found there, or if the location was not searched.
    """

    name: str
    root: Root
    paths: tuple[str, ...]
    treatment: Treatment
    holds: str
    advice: str


_SEARCHED, _NOT = Treatment.SEARCHED, Treatment.NOT_SEARCHED
_HANDLED: Final = "nothing to do"


def _erased(name: str, paths: tuple[str, ...], holds: str) -> KeyPlace:
    """Return a location in a catalog that the erasure itself handles."""
    return KeyPlace(name, Root.CATALOG, paths, Treatment.ERASED, holds, _HANDLED)


def _in_home(
    name: str, paths: tuple[str, ...], holds: str, advice: str, treatment: Treatment = _SEARCHED
) -> KeyPlace:
    return KeyPlace(name, Root.HOME, paths, treatment, holds, advice)


def _outside(name: str, holds: str, advice: str) -> KeyPlace:
    """Return a location whose address Holdfast does not know."""
    return KeyPlace(name, Root.OUTSIDE, (), _NOT, holds, advice)


KEY_PLACES: Final = (
    _erased(
        "state of savepoints",
        ("objects/*",),
        "rows of state, and deleted rows that are still in a file",
    ),
    _erased(
        "labels and audit records of savepoints",
        ("savepoints/*",),
        "users write keys into labels, statements and reasons",
    ),
    _erased(
        "takes and removals",
        ("takes/*", "staging/*", "sweep.json", "sweep.lock"),
        "a killed take leaves files of state; the erasure removes them",
    ),
    KeyPlace(
        "drills",
        Root.CATALOG,
        ("drills/*",),
        _SEARCHED,
        "a drill records the name of its job and the address of its savepoint",
        "delete these files: they are measurements",
    ),
    KeyPlace(
        "logs and notes of savepoints",
        Root.CHECKPOINT,
        ("metadata", "offsets/*", "commits/*", "sources/*", "state/*", "_holdfast/*"),
        _SEARCHED,
        "a file source logs the names of its files; a plan note has the literals of a query",
        "delete these savepoints with `holdfast savepoint delete`, or these checkpoints: Spark "
        "needs the files unchanged",
    ),
    KeyPlace(
        "working directories in use",
        Root.WORK,
        (".holdfast-*",),
        _NOT,
        "a running edit, erasure, migration or rescale has a copy of state",
        "wait until it has ended, then erase again",
    ),
    _in_home(
        "registry",
        ("registry.db*",),
        "the hot keys that a job watches, and error messages",
        "stop the jobs of this state home and move the file away: the next `holdfast run` creates a new one",
    ),
    _in_home(
        "addresses that servers serve",
        ("serving/*",),
        "the addresses of checkpoints, which may contain keys",
        "stop the servers of this state home: they delete their files",
    ),
    _in_home(
        "operations",
        ("operations.db*",),
        "arguments, results and errors of requests over HTTP, such as a query over state",
        "stop the server and move the file away: it creates a new one",
    ),
    _in_home(
        "alerts and metrics",
        ("watching.db*",),
        "labels of metrics, and messages of alerts",
        "stop the jobs of this state home and move the file away: the next job creates a new one",
    ),
    _in_home(
        "logs of drivers and rescales",
        ("jobs/*.log",),
        "output and error messages of a job's code",
        "delete these files; the log of a running driver after it has ended",
    ),
    _in_home(
        "integrity records",
        ("records/*",),
        "paths and hashes of a checkpoint's files",
        "delete these files: new records are started",
    ),
    _in_home(
        "locks and leases",
        ("jobs/*.lock", "locks/*", "operating/*", "leases/*"),
        "names of jobs and processes",
        "delete them when no job runs in this state home",
    ),
    _in_home(
        "sandboxes of comparisons and drills",
        ("sandboxes/*",),
        "a running comparison or drill has a copy of state; those of killed ones are deleted",
        "wait until it has ended, then erase again",
        _NOT,
    ),
    _in_home(
        "savepoints of the state home",
        ("savepoints/*",),
        "a catalog in the state home",
        "erase from it too: give it to `holdfast state erase`",
        _NOT,
    ),
    _in_home(
        "token of the server",
        ("server-token",),
        "random text, which contains no key",
        _HANDLED,
    ),
    _in_home(
        "other files of the state home",
        ("*",),
        "files that Holdfast does not know",
        "check these files",
    ),
    _outside(
        "ledger",
        "`holdfast_fence` and `holdfast_batches` have names of sinks, tokens and batch ids",
        "nothing to erase in them; delete the key's rows from the sink's own table",
    ),
    _outside(
        "sources, sinks and side outputs",
        "input that a query reads again; its output, including late and rejected rows",
        "delete the key there with that system's own tools",
    ),
    _outside(
        "working directories of Spark",
        "workers keep copies of state in `spark.local.dir` while a query runs; a killed one leaves "
        "them behind",
        "stop the query and delete what is left there; delete Spark's event logs if they are kept",
    ),
    _outside(
        "exports and notifications",
        "files exported from state, alerts in a webhook, labels in a monitoring system",
        "delete the key there",
    ),
    _outside(
        "other checkpoints, catalogs and copies",
        "forks and restored checkpoints, other catalogs such as `CHECKPOINT.savepoints` where a "
        "server puts savepoints, backups, older versions in an object store",
        "erase from each of them too, checkpoints with --checkpoint; let backups and versions expire",
    ),
)


def place_at(root: Root, path: str) -> KeyPlace | None:
    """Return the location of a path; None if the table has none."""
    for place in KEY_PLACES:
        if place.root is root and any(fnmatchcase(path, pattern) for pattern in place.paths):
            return place
    return None


def place_named(name: str) -> KeyPlace:
    """Return the row with this name."""
    return next(place for place in KEY_PLACES if place.name == name)


_CHUNK: Final = 1 << 20
# A shorter key matches only whole words: `7` is in nearly every file.
_LONG: Final = 4
_WORD: Final = rb"[A-Za-z0-9_\x80-\xff]"
_SQLITE: Final = b"SQLite format 3\0"


class WordSearch:
    """A search for the text of a key, as users, logs and JSON write it.

    A long key is also found within words; a short key is found only as a whole word. A key in compressed or
    encoded data is not found.

    Args:
        subject: The key.
    """

    def __init__(self, subject: Subject) -> None:
        forms = {form for value in subject.values.values() for form in _forms(value)}
        self._longest = max(map(len, forms))
        self._pattern = re.compile(b"|".join(_pattern(form) for form in sorted(forms)))

    def is_in(self, data: bytes) -> bool:
        """Return whether bytes contain the text of the key."""
        return self._pattern.search(data) is not None

    def without(self, text: str) -> str:
        """Return a text with every occurrence of the key replaced."""
        return self._pattern.sub(b"[erased]", text.encode()).decode(errors="replace")

    def is_in_file(self, path: Path) -> bool:
        """Return whether a file contains the text; in an SQLite database, rows that span pages are included.

        Raises:
            OSError: The file cannot be read.
        """
        with path.open("rb") as file:
            before = file.read(_CHUNK)
            database = before.startswith(_SQLITE)
            while before:
                after = file.read(_CHUNK)
                # A match across two chunks is found by the second search, which overlaps with its neighbours.
                if self.is_in(before + after[: self._longest + 2]):
                    return True
                before = before[-self._longest - 2 :] + after if after else b""
        return database and any(self.is_in(text) for text in _cells(path))


def _forms(value: Any) -> Iterator[bytes]:
    text = str(value)
    yield text.encode()
    yield json.dumps(text)[1:-1].encode()
    yield json.dumps(text, ensure_ascii=False)[1:-1].encode()


def _pattern(form: bytes) -> bytes:
    if len(form) >= _LONG:
        return re.escape(form)
    # In JSON, the first word of a line follows `\n`, whose letter is not part of the word.
    return rb"(?:(?<!%b)|(?<=\\[nrt]))%b(?!%b)" % (_WORD, re.escape(form), _WORD)


def _cells(path: Path) -> Iterator[bytes]:
    """Yield every value of every row of a database."""
    # Without an existing write-ahead log, SQLite would create one even for a reader.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
    with (
        suppress(sqlite3.DatabaseError),  # its bytes were searched, and no more can be read
        closing(sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True)) as database,
    ):
        database.text_factory = bytes
        tables = [
            row[0].decode() for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for table in tables:
            for row in database.execute(f"SELECT * FROM {sql_identifier(table)}"):  # noqa: S608 - a name of the database itself
                for value in row:
                    if value is not None:
                        yield value if isinstance(value, bytes) else str(value).encode()


_NOTES: Final = "logs and notes of savepoints"
_WORK: Final = "working directories in use"
_ANYWHERE: Final = "address unknown"


@dataclass(slots=True)
class _Files:
    """The searched files of one location."""

    searched: int = 0
    found: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


class PlaceSearch:
    """A search of all locations in the table.

    Args:
        subject: The key.
        catalog: The catalog of the erasure.
        checkpoint: The checkpoint of the erasure, if any.
        home: The state home; None if unknown.
        changing: Whether files left by killed processes may be deleted.
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

    def reports(self) -> tuple[LocationReport, ...]:
        """Return a report on every location: the catalog and its savepoints, the state home, and others."""
        return (
            *self._in_catalog(),
            *self._in_notes(),
            *self._unnamed_checkpoints(),
            *self._work(),
            *self._in_home(),
            *(_unsearched(place, _ANYWHERE) for place in KEY_PLACES if place.root is Root.OUTSIDE),
        )

    # Savepoints and checkpoints

    def _in_catalog(self) -> Iterator[LocationReport]:
        """Search the catalog's files other than state; unknown files are listed but not searched."""
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
            where, names = self._redact(full(self._catalog.uri, "")), self._redact(", ".join(strange))
            yield _not_searched("unknown files in the catalog", where, names, "check them")

    def _in_notes(self) -> Iterator[LocationReport]:
        """Search the manifests, logs and notes of all savepoints and the checkpoint, each content once."""
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
            with suppress(NotFound):  # the savepoint was never completed
                yield load(self._catalog, savepoint_id)

    def _without_edits(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Return a manifest's fields without those that the erasure itself handles."""
        return {name: value for name, value in fields.items() if name not in ("label", CHANGE, ERASURES)}

    def _unnamed_checkpoints(self) -> Iterator[LocationReport]:
        """Yield reports on the checkpoints of savepoints that the user did not name."""
        named = None if self._checkpoint is None else self._checkpoint.uri
        for uri in sorted({manifest.checkpoint for manifest in self._manifests()}):
            place = _local(uri)
            if uri != named and (place is None or place.exists()):
                yield _not_searched(
                    "checkpoint",
                    self._redact(uri),
                    "savepoints of this catalog were taken of it",
                    "stop its query, and give it with --checkpoint",
                )

    def _work(self) -> Iterator[LocationReport]:
        """Yield reports on working directories in use; those of killed processes are deleted."""
        folders = {root.parent for root in self._roots}
        if local_path(self._catalog.uri) is None:
            folders.add(Path(tempfile.gettempdir()))
        for folder in sorted(folders):
            yield from self._sandboxes(folder, place_named(_WORK))

    def _sandboxes(self, folder: Path, place: KeyPlace) -> Iterator[LocationReport]:
        if not folder.is_dir():
            return
        if self._changing:
            clear(folder)
        for path in sorted(folder.glob(".holdfast-*")):
            if path.is_dir():
                yield _unsearched(place, self._redact(str(path)))

    # The state home

    def _in_home(self) -> Iterator[LocationReport]:
        home = self._home
        if home is None or not home.is_dir():
            yield _not_searched(
                "state home",
                "none" if home is None else self._redact(str(home)),
                "driver logs, the registry and operations may contain the key",
                "the directory does not exist: give the jobs' state home with --home",
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
                continue  # a running job has replaced the file
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
                yield _unsearched(place, self._redact(str(path)))

    def _is_handled(self, path: Path) -> bool:
        """Return whether a path is in the catalog or the checkpoint, which the erasure handles."""
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

    def _report(self, place: KeyPlace, where: str, one: _Files) -> Iterator[LocationReport]:
        found = tuple(self._redact(file) for file in one.found)
        yield LocationReport(
            place.name, self._redact(where), True, one.searched, found, place.holds, place.advice
        )
        for file in one.unreadable:
            why, advice = "a file cannot be read", "make it readable, then erase again"
            yield _not_searched(place.name, self._redact(file), why, advice)

    def _redact(self, text: str) -> str:
        """Return a path without the key, even within a word, for a certificate."""
        return self._words.without(str(redacted(text, self._subject)))


def _unsearched(place: KeyPlace, where: str) -> LocationReport:
    return _not_searched(place.name, where, place.holds, place.advice)


def _not_searched(name: str, where: str, why: str, advice: str) -> LocationReport:
    return LocationReport(name, where, searched=False, files=0, found=(), why=why, advice=advice)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the regular files below a directory."""
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
