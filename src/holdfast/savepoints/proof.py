"""Prove that a savepoint is unchanged and consistent: its manifest, its objects, and their structure."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.state.contents import StateContent, contents
from holdfast.checkpoints.verification.file_checks import Problem, in_short
from holdfast.checkpoints.verification.verifying import verify
from holdfast.config.checks import place_word
from holdfast.errors import Corrupt, HoldfastError, NotFound, Unsupported
from holdfast.formats.manifest import Manifest, RecordedState, SavedFile
from holdfast.json_shapes import JsonShape, in_json, json_as, json_spread
from holdfast.layout import FileKind, StoreId
from holdfast.quantities import counted
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
from holdfast.savepoints.spread import SharedSavepoint, Tasks, contents_on, open_shared
from holdfast.savepoints.view import SavepointView
from holdfast.storage.hashing import hash_file, hash_of
from holdfast.storage.port import Storage

COMPARED: Final = "compared"
_RETAKE = "take a new savepoint; do not restore this savepoint"
_MISSING = (
    "take a new savepoint, which stores the object again if the checkpoint still has the file; do not restore"
    " this savepoint"
)
_DELETE = f"delete this object, then {_MISSING}"
_DIFFERS = (
    "do not restore this savepoint: its files match the manifest, so the manifest was replaced; if it was"
    " not, report this as a bug"
)
_REPLACED = (
    "restore the manifest from a copy, because it was replaced later; do not restore the savepoint until then"
)
_RECORD_UNREADABLE = (
    "delete this file, then create it from the current files with `holdfast savepoint digest SP`"
)
_UNREADABLE = "restore the manifest from a copy of the catalog, or delete this savepoint"


@dataclass(frozen=True, slots=True)
class Proof(JsonShape):
    """The outcome of a savepoint's verification.

    Attributes:
        uri: The savepoint.
        manifest: The manifest; None if it is damaged.
        problems: The damage, each with its file in the catalog, or with its file in the checkpoint if the
            bytes are unchanged but inconsistent.
        files: Number of files read.
        size_bytes: Number of bytes read.
        states: The content of each state, if the rows were read.
        content: The status of row counts and digests: `compared` with the recorded ones; `recorded`, but not
            compared, because the rows were not read; or `pending`, because none are recorded yet. None if the
            manifest or the digests are damaged.
        recorded: The recorded counts and digests.

    Example:
        proof = hf.savepoints.verify("savepoints@daily", deep=True)
        for problem in proof.problems:
            print(problem.file, problem.what)
        assert proof.ok and proof.content == "compared"
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
        """Return the manifest of a whole savepoint.

        Raises:
            Corrupt: The savepoint is damaged.
        """
        if self.manifest is not None and self.ok:
            return self.manifest
        raise Corrupt(
            "the savepoint is damaged, so nothing was done",
            code="HF-E6046",
            where=f"{self.uri}, {self.problems[0].file}",
            found=in_short(self.problems),
            hint=f"list all damage with `holdfast savepoint verify {place_word(self.uri)}`;"
            " use a different savepoint",
        )


def prove(
    catalog: Storage,
    savepoint_id: str,
    *,
    deep: bool = False,
    unread: Container[str] = (),
    workers: int = WORKERS,
    tasks: Tasks | None = None,
    tell: ProgressCallback | None = None,
) -> Proof:
    """Verify a savepoint.

    The manifest contains a hash of itself and of every file, so a savepoint that passes is bit for bit what
    was verified when it was taken. Then the files are checked for consistency.

    Cost: every file is read once for its hash; logs, indexes and lineages of state are read again; the
    state's rows only with `deep`, at about four seconds per million.

    Args:
        catalog: The catalog.
        savepoint_id: The savepoint.
        deep: Read the rows of the state, compare them with the recorded digests, and check that every key is
            in the partition that Spark's hash gives it.
        workers: Number of files to read in parallel.
        tasks: Where files are hashed and rows are read; by default in threads of this process.
        tell: Called with the number of finished files, the number of all files, and the current step.

    Raises:
        NotFound: The savepoint does not exist.
        Unavailable: The catalog does not answer.
        Unsupported: The rows were requested but cannot be read.
    """
    uri = savepoint_uri(catalog, savepoint_id)
    try:
        manifest = load(catalog, savepoint_id)
    except (Corrupt, Unsupported) as error:
        problem = Problem(manifest_path(savepoint_id), _what(error), _UNREADABLE)
        return Proof(uri, None, (problem,), 1, 0)
    objects: dict[str, SavedFile] = {file.sha256: file for file in reversed(manifest.files)}
    files = sorted(objects.values(), key=lambda file: file.path)
    if tasks is None:
        looked = each(
            lambda file: _look(catalog, file, read=file.path not in unread), files, workers, tell, "hashing"
        )
    else:
        looked = tasks.run(partial(_look_at, SharedSavepoint.of(catalog, manifest)), files, tell, "hashing")
    problems = [problem for problem in looked if problem is not None]
    if not problems:
        # Changed bytes are reported already; their effect on other files would only repeat it.
        known = frozenset(file.path for file in manifest.files)
        # An earlier Holdfast did not compare the manifests of snapshots with the data files.
        placed = frozenset(path for path in known if not path.endswith(f".{FileKind.ZIP.value}"))
        view = SavepointView(catalog, manifest.files, manifest.checkpoint)
        structure = verify(view, tell, known, placed=placed)
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
            if tasks is None:
                states = contents(view, manifest.batch_id, check_partitions=True, tell=tell)
            else:
                shared = SharedSavepoint.of(catalog, manifest)
                states = contents_on(tasks, shared, view, manifest.batch_id, tell)
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
    """Return the recorded states, the file that contains them, and the problems of that file."""
    path = content_path(manifest.savepoint_id)
    told = manifest_states(manifest) if manifest.has_content else None
    try:
        content = recorded(catalog, manifest.savepoint_id)
    except (Corrupt, Unsupported) as error:
        return told, MANIFEST, [Problem(path, _what(error), _RECORD_UNREADABLE)]
    if content is None:
        return told, MANIFEST, []
    if content.manifest_sha256 != hash_of(manifest.render()):
        return (
            content.states,
            CONTENT,
            [Problem(path, "the recorded rows belong to a different manifest", _REPLACED)],
        )
    return content.states, CONTENT, []


def _differing(
    told: Sequence[RecordedState], states: Sequence[StateContent], source: str
) -> Iterator[Problem]:
    """Yield the states whose rows differ from the recorded ones."""
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
        f", but {source} has {state.rows:,} with {state.digest[:12]}…"
    )
    return Problem(StoreId(state.operator_id, 0, state.store).folder, what, _DIFFERS)


def _what(error: HoldfastError) -> str:
    return error.fact + (f": {error.found}" if error.found else "")


def _look_at(savepoint: SharedSavepoint, file: SavedFile) -> Problem | None:
    """Return the problem of a file, on the machine that runs this."""
    catalog, _ = open_shared(savepoint)
    return _look(catalog, file, read=True)


def _look(catalog: Storage, file: SavedFile, *, read: bool) -> Problem | None:
    path = object_path(file.sha256)
    sha256, size = file.sha256, None
    with suppress(NotFound):
        sha256, size = hash_file(catalog, path, file.size_bytes) if read else (sha256, catalog.size(path))
    if size is None:
        return Problem(path, f"the object of {file.path} is missing", _MISSING)
    if size != file.size_bytes:
        return Problem(path, f"{size} bytes instead of the {file.size_bytes} of {file.path}", _DELETE)
    if sha256 != file.sha256:
        return Problem(path, f"hash mismatch for {file.path}: its SHA-256 is {sha256[:16]}…", _DELETE)
    return None
