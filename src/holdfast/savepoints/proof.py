"""Prove that a savepoint is what was taken: its manifest, its bytes, and how they fit together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoints.contents import StateContent, contents
from holdfast.checkpoints.verification import Problem
from holdfast.checkpoints.verifying import verify
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.manifest import Manifest, SavedFile
from holdfast.layout import StoreId
from holdfast.savepoints.catalog import load, manifest_path, object_path, savepoint_uri
from holdfast.savepoints.copying import WORKERS, Tell, each
from holdfast.savepoints.view import SavepointView
from holdfast.storage.hashing import hash_file
from holdfast.storage.port import Storage

_RETAKE = (
    "take a new savepoint, which puts the right bytes back where it has the same; do not restore this one"
)
_DIFFERS = "its bytes are those that were taken, so report this; until it is clear, do not restore this one"
_UNREADABLE = "put the manifest back from a copy of the catalog, or delete this savepoint"


@dataclass(frozen=True, slots=True)
class Proof:
    """The outcome of a savepoint's verification.

    Attributes:
        uri: The savepoint.
        manifest: What it is; None where the manifest itself is damaged.
        problems: Damage, each with its file in the catalog, or in the checkpoint where bytes are as they
            were taken and yet do not fit together.
        files: The files that were read.
        size_bytes: Their bytes.
        states: What is in each state, if the rows were read.
        compared: How many states the manifest has a digest of that was compared; the others were counted.
    """

    uri: str
    manifest: Manifest | None
    problems: tuple[Problem, ...]
    files: int
    size_bytes: int
    states: tuple[StateContent, ...] | None = None
    compared: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "ok": self.ok,
            "savepoint": self.uri,
            "batch": None if self.manifest is None else self.manifest.batch_id,
            "problems": [problem.as_dict() for problem in self.problems],
            "files": self.files,
            "bytes": self.size_bytes,
            "states": None if self.states is None else [each.as_dict() for each in self.states],
            "compared": self.compared,
        }

    def require(self) -> Manifest:
        """The manifest, of a savepoint that is whole.

        Raises:
            Corrupt: It is not.
        """
        if self.manifest is not None and self.ok:
            return self.manifest
        first, more = self.problems[0], len(self.problems) - 1
        raise Corrupt(
            "the savepoint is damaged, and nothing was done",
            where=f"{self.uri}, {first.file}",
            found=first.what + (f"; and {more} more" if more else ""),
            hint=f"`holdfast savepoint verify {self.uri}` names all damage; use another savepoint",
        )


def prove(
    catalog: Storage,
    savepoint_id: str,
    *,
    deep: bool = False,
    workers: int = WORKERS,
    tell: Tell | None = None,
) -> Proof:
    """Verify a savepoint.

    The manifest guards itself with a hash and every file with another, so what passes is bit for bit what was
    verified when it was taken; then the files are looked at once more for how they fit together.

    Cost: every file is read once for its hash; logs, indexes and lineages of state are read once more; the
    state's rows only with `deep`, at about two seconds a million.

    Args:
        catalog: Its catalog.
        savepoint_id: Its id.
        deep: Read the rows of the state, and compare them with what the manifest says of them.
        workers: How many files to read at a time.
        tell: Called with files done, files in all, and what is being done.

    Raises:
        NotFound: There is no such savepoint.
        Unavailable: The catalog does not answer.
        Unsupported: The rows were asked for, and are of a kind that cannot be read.
    """
    uri = savepoint_uri(catalog, savepoint_id)
    try:
        manifest = load(catalog, savepoint_id)
    except (Corrupt, Unsupported) as error:
        found = error.fact + (f": {error.found}" if error.found else "")
        return Proof(uri, None, (Problem(manifest_path(savepoint_id), found, _UNREADABLE),), 1, 0)
    objects: dict[str, SavedFile] = {file.sha256: file for file in reversed(manifest.files)}
    looked = each(
        lambda file: _look(catalog, file),
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
    states: tuple[StateContent, ...] | None = None
    compared = 0
    if deep and not problems:
        view = SavepointView(catalog, manifest.files, manifest.checkpoint)
        try:
            states = contents(view, manifest.batch_id, tell=tell)
        except Corrupt as error:
            problems.append(Problem(error.where or uri, f"{error.fact}: {error.found}", _RETAKE))
        else:
            compared, differing = _compared(manifest, states)
            problems += differing
    size_bytes = sum(file.size_bytes for file in objects.values())
    return Proof(uri, manifest, tuple(problems), len(manifest.files), size_bytes, states, compared)


def _compared(manifest: Manifest, states: Sequence[StateContent]) -> tuple[int, list[Problem]]:
    """How many states the manifest has digests of, and those that are not what it says."""
    found = {(each.state.operator_id, each.state.store, each.state.family): each for each in states}
    compared, problems = 0, []
    for operator in manifest.fields.get("operators") or ():
        for store in operator["stores"]:
            for told in store["content"] or ():
                compared += 1
                name = (operator["operator_id"], store["name"], told["family"])
                there = found.get(name)
                rows, digest = (0, "none") if there is None else (there.rows, there.digest)
                if (rows, digest) != (told["rows"], told["digest"]):
                    said = f"{told['rows']:,} with {told['digest'][:12]}…"
                    what = (
                        f"state {told['family']} of store {store['name']}: {rows:,} rows with digest"
                        f" {digest[:12]}… where the manifest says {said}"
                    )
                    folder = StoreId(operator["operator_id"], 0, store["name"]).folder
                    problems.append(Problem(folder, what, _DIFFERS))
    return compared, problems


def _look(catalog: Storage, file: SavedFile) -> Problem | None:
    path = object_path(file.sha256)
    try:
        sha256, size = hash_file(catalog, path, file.size_bytes)
    except NotFound:
        return Problem(path, f"the bytes of {file.path} are not there", _RETAKE)
    if size != file.size_bytes:
        return Problem(path, f"{size} bytes where {file.path} had {file.size_bytes}", _RETAKE)
    if sha256 != file.sha256:
        return Problem(
            path, f"it does not have the bytes of {file.path}: its SHA-256 is {sha256[:16]}…", _RETAKE
        )
    return None
