"""Prove that a savepoint is what was taken: its manifest, its bytes, and how they fit together."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.state.contents import StateContent, contents
from holdfast.checkpoints.verification.file_checks import Problem, in_short
from holdfast.checkpoints.verification.verifying import verify
from holdfast.config.checks import place_word
from holdfast.config.units import counted
from holdfast.errors import Corrupt, HoldfastError, NotFound, Unsupported
from holdfast.formats.manifest import Manifest, RecordedState, SavedFile
from holdfast.json_shapes import JsonShape, in_json, json_as, json_spread
from holdfast.layout import StoreId
from holdfast.savepoints.catalog import (
    CONTENT,
    MANIFEST,
    PENDING,
    RECORDED,
    content_path,
    load,
    manifest_path,
    object_path,
    savepoint_uri,
)
from holdfast.savepoints.copying import WORKERS, each
from holdfast.savepoints.digests import manifest_states, recorded
from holdfast.savepoints.view import SavepointView
from holdfast.storage.hashing import hash_file, hash_of
from holdfast.storage.port import Storage

COMPARED: Final = "compared"
_RETAKE = "take a new savepoint; do not restore this one"
_MISSING = (
    "take a new savepoint, which stores it again if the checkpoint still has these bytes; do not restore this"
    " one"
)
_DELETE = f"delete this object and {_MISSING}"
_DIFFERS = (
    "its files have the hashes that the manifest names, so the manifest was replaced, or this is a fault to"
    " report; do not restore this one"
)
_REPLACED = "somebody has replaced the manifest since: put it back from a copy, and do not restore this one"
_RECORD_UNREADABLE = (
    "delete this file; `holdfast savepoint digest` makes it again of the bytes that are there now"
)
_UNREADABLE = "put the manifest back from a copy of the catalog, or delete this savepoint"


@dataclass(frozen=True, slots=True)
class Proof(JsonShape):
    """The outcome of a savepoint's verification.

    Attributes:
        uri: The savepoint.
        manifest: What it is; None where the manifest itself is damaged.
        problems: Damage, each with its file in the catalog, or in the checkpoint where bytes are as they
            were taken and yet do not fit together.
        files: The files that were read.
        size_bytes: Their bytes.
        states: What is in each state, if the rows were read.
        content: What became of row counts and digests: `compared` with those that were recorded when the
            savepoint was new; `recorded`, but not compared, since the rows were not read; or `pending`:
            nothing is recorded yet, and there is nothing to compare with. None where the manifest or the
            record is damaged.
        recorded: The counts and digests that are recorded.
    """

    uri: str = field(metadata=json_as("savepoint"))
    manifest: Manifest | None = field(metadata=json_spread("batch_id"))
    problems: tuple[Problem, ...]
    files: int
    size_bytes: int
    states: tuple[StateContent, ...] | None = None
    content: str | None = None
    recorded: tuple[RecordedState, ...] | None = None

    @property
    @in_json
    def compared(self) -> int:
        """The number of states that were compared with their recorded content."""
        return len(self.recorded or ()) if self.content == COMPARED else 0

    @property
    @in_json
    def ok(self) -> bool:
        """Return whether nothing is damaged."""
        return not self.problems

    def require(self) -> Manifest:
        """The manifest, of a savepoint that is whole.

        Raises:
            Corrupt: It is not.
        """
        if self.manifest is not None and self.ok:
            return self.manifest
        raise Corrupt(
            "the savepoint is damaged, and nothing was done",
            code="HF-E6046",
            where=f"{self.uri}, {self.problems[0].file}",
            found=in_short(self.problems),
            hint=f"`holdfast savepoint verify {place_word(self.uri)}` names all damage;"
            " use another savepoint",
        )


def prove(
    catalog: Storage,
    savepoint_id: str,
    *,
    deep: bool = False,
    unread: Container[str] = (),
    workers: int = WORKERS,
    tell: ProgressCallback | None = None,
) -> Proof:
    """Verify a savepoint.

    The manifest guards itself with a hash and every file with another, so what passes is bit for bit what was
    verified when it was taken; then the files are looked at once more for how they fit together.

    Cost: every file is read once for its hash; logs, indexes and lineages of state are read once more; the
    state's rows only with `deep`, at about four seconds a million.

    Args:
        catalog: Its catalog.
        savepoint_id: Its id.
        deep: Read the rows of the state, compare them with what was recorded when it was new, and check that
            every key is in the partition that Spark's hash gives it.
        unread: Files of the checkpoint that are compared by size only.
        workers: How many files to read at a time.
        tell: Called with files done, files in all, and what is being done.

    Raises:
        NotFound: The savepoint does not exist.
        Unavailable: The catalog does not answer.
        Unsupported: The rows were asked for, and are of a kind that cannot be read.
    """
    uri = savepoint_uri(catalog, savepoint_id)
    try:
        manifest = load(catalog, savepoint_id)
    except (Corrupt, Unsupported) as error:
        problem = Problem(manifest_path(savepoint_id), _what(error), _UNREADABLE)
        return Proof(uri, None, (problem,), 1, 0)
    objects: dict[str, SavedFile] = {file.sha256: file for file in reversed(manifest.files)}
    looked = each(
        lambda file: _look(catalog, file, read=file.path not in unread),
        sorted(objects.values(), key=lambda file: file.path),
        workers,
        tell,
        "hashing",
    )
    problems = [problem for problem in looked if problem is not None]
    if not problems:
        # Bytes that are not what was taken have been named; what they would do to the rest is no news.
        known = frozenset(file.path for file in manifest.files)
        structure = verify(SavepointView(catalog, manifest.files, manifest.checkpoint), tell, known)
        problems += structure.problems
    readable = not problems
    told, source, wrong = _record(catalog, manifest)
    problems += wrong
    states: tuple[StateContent, ...] | None = None
    content: str | None = RECORDED
    if told is None:
        content = None if wrong else PENDING
    if deep and readable:
        view = SavepointView(catalog, manifest.files, manifest.checkpoint)
        try:
            states = contents(view, manifest.batch_id, check_partitions=True, tell=tell)
        except Corrupt as error:
            problems.append(Problem(error.where or uri, f"{error.fact}: {error.found}", _RETAKE))
        else:
            if told is not None:
                content = COMPARED
                problems += _differing(told, states, source)
    return Proof(
        uri,
        manifest,
        tuple(problems),
        files=len(manifest.files),
        size_bytes=sum(file.size_bytes for file in objects.values() if file.path not in unread),
        states=states,
        content=content,
        recorded=told,
    )


def _record(
    catalog: Storage, manifest: Manifest
) -> tuple[tuple[RecordedState, ...] | None, str, list[Problem]]:
    """The states as they were recorded, the file that tells, and what is wrong with that file."""
    path = content_path(manifest.savepoint_id)
    told = manifest_states(manifest) if manifest.has_content else None
    try:
        content = recorded(catalog, manifest.savepoint_id)
    except (Corrupt, Unsupported) as error:
        return told, MANIFEST, [Problem(path, _what(error), _RECORD_UNREADABLE)]
    if content is None:
        return told, MANIFEST, []
    if content.manifest_sha256 != hash_of(manifest.render()):
        return content.states, CONTENT, [Problem(path, "its rows were read of another manifest", _REPLACED)]
    return content.states, CONTENT, []


def _differing(
    told: Sequence[RecordedState], states: Sequence[StateContent], source: str
) -> Iterator[Problem]:
    """The states whose rows are not those that were recorded."""
    read = {(state.state.operator_id, state.state.store, state.state.family): state for state in states}
    for state in told:
        there = read.pop((state.operator_id, state.store, state.family), None)
        rows, digest = (0, "none") if there is None else (there.rows, there.digest)
        if (rows, digest) != (state.rows, state.digest):
            yield _difference(state, rows, digest, source)
    for name, there in read.items():
        if there.rows:
            nothing = RecordedState(*name, 0, "none", 0)
            yield _difference(nothing, there.rows, there.digest, source)


def _difference(state: RecordedState, rows: int, digest: str, source: str) -> Problem:
    what = (
        f"state {state.family} of store {state.store}: {counted(rows, 'row')} with digest {digest[:12]}…"
        f" where {source} says {state.rows:,} with {state.digest[:12]}…"
    )
    return Problem(StoreId(state.operator_id, 0, state.store).folder, what, _DIFFERS)


def _what(error: HoldfastError) -> str:
    return error.fact + (f": {error.found}" if error.found else "")


def _look(catalog: Storage, file: SavedFile, *, read: bool) -> Problem | None:
    path = object_path(file.sha256)
    sha256, size = file.sha256, catalog.size(path)
    if read:
        with suppress(NotFound):
            sha256, size = hash_file(catalog, path, file.size_bytes)
    if size is None:
        return Problem(path, f"the bytes of {file.path} are not there", _MISSING)
    if size != file.size_bytes:
        return Problem(path, f"{size} bytes where {file.path} had {file.size_bytes}", _DELETE)
    if sha256 != file.sha256:
        return Problem(
            path, f"it does not have the bytes of {file.path}: its SHA-256 is {sha256[:16]}…", _DELETE
        )
    return None
