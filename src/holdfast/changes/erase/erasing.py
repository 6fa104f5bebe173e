"""The erasure of a key from all savepoints of a catalog: from current rows and remains of old rows.

A savepoint keeps its id and address. First, files with the key are rewritten without it, under their new
hash. Then the manifest is replaced, which makes the erasure effective for this savepoint. Last, files that no
manifest references any more are deleted. If the process is killed, each savepoint is either unchanged or
without the key, and a second erasure completes the work.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from holdfast._version import __version__
from holdfast.at_rest.model import NamedOperator
from holdfast.at_rest.state_reader import named_operators
from holdfast.changes.erase.certificate import (
    Certificate,
    ErasePlan,
    ErasureFinding,
    SearchReport,
    key_hash,
    merged,
)
from holdfast.changes.erase.purge import Cleansing, ReplacedFiles, SparkSearch
from holdfast.changes.erase.searching import StoreHits, Subject
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.clock import now_ms
from holdfast.config.checks import local_path
from holdfast.errors import HoldfastError, Internal, NotFound
from holdfast.formats.manifest import CHANGE, ERASURES, Manifest, SavedFile, SavepointContent, manifest_of
from holdfast.quantities import counted
from holdfast.savepoints.catalog import content_path, ids, load, manifest_path, require_catalog, savepoint_uri
from holdfast.savepoints.copying import followed
from holdfast.savepoints.derived import require_whole
from holdfast.savepoints.digests import digest, recorded
from holdfast.savepoints.labels import label_changes, redact_labels
from holdfast.savepoints.leases import Chance, Clock, GcLease, clear_dead_sweep, require_no_turn
from holdfast.savepoints.planning import facts
from holdfast.savepoints.proof import prove
from holdfast.savepoints.removal import plan_sweep, remove_unneeded
from holdfast.savepoints.view import SavepointView
from holdfast.storage.hashing import hash_of
from holdfast.storage.port import Storage

_LOG: Final = logging.getLogger("holdfast.at_rest")
_ERASED: Final = "[erased]"


class OperatorHits(Protocol):
    """The occurrences of the subject in an operator or in one of its partitions."""

    @property
    def stores(self) -> Sequence[StoreHits]:
        """Return the stores whose files may contain the key."""

    @property
    def certain(self) -> bool:
        """Return whether at least one match is a row, and not only bytes that equal the key."""

    def findings(self, view: Storage) -> Sequence[ErasureFinding]:
        """Return all matching current rows, including those matched by value only."""

    def erased(
        self, work: Cleansing, view: SavepointView
    ) -> tuple[Sequence[ReplacedFiles], Sequence[ErasureFinding]]:
        """Rewrite the files that contain the key.

        Args:
            work: The writer of stores.
            view: The savepoint, read as a checkpoint.

        Returns:
            The replaced files, and the findings in current rows.
        """


class OperatorSearch(Protocol):
    """A search for a subject in operators of one type; a file that savepoints share is read once."""

    @property
    def columns(self) -> set[str]:
        """Return the columns of the subject that occur in some state."""

    def hits(self, view: SavepointView, operator: NamedOperator) -> Iterator[OperatorHits]:
        """Yield the occurrences in an operator of a savepoint."""

    def unsearched(self, operator: NamedOperator) -> Sequence[str]:
        """Return the states and columns that cannot be searched."""


@dataclass(frozen=True, slots=True)
class SavepointHits:
    """The occurrences in one savepoint.

    `told` is whether the manifest contains the key as text, for example in a label; `unsearched` are the
    states and columns that cannot be searched.
    """

    manifest: Manifest
    view: SavepointView
    files: int
    parts: tuple[OperatorHits, ...]
    told: bool = False
    unsearched: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        """Return whether the key was found anywhere in the savepoint."""
        return bool(self.parts) or self.told

    @property
    def certain(self) -> bool:
        """Return whether at least one match is a row or a text in the manifest."""
        return self.told or any(part.certain for part in self.parts)

    @property
    def traces(self) -> int:
        """Return the number of files that contain the key."""
        return sum(store.traces for part in self.parts for store in part.stores)


def plan_erase(
    catalog: Storage, subject: Subject, *, clock: Clock = now_ms, tell: ProgressCallback | None = None
) -> ErasePlan:
    """Search every savepoint of a catalog for a key; changes nothing.

    Cost: reads every distinct state file in the catalog once, which takes about a microsecond per entry.

    Args:
        catalog: The catalog.
        subject: The key.
        clock: The function that returns epoch milliseconds.
        tell: The progress callback, called with the work done, the total, and the current step.

    Raises:
        NotFound: The catalog does not exist, or no state of any savepoint has a column of the subject.
        Invalid: The directory is not a catalog.
        Conflict: A savepoint is being taken, or savepoints are being deleted.
        Corrupt: A manifest or a state file is damaged, so that its content is unknown.
        Unsupported: Some state cannot be searched.
    """
    require_catalog(catalog)
    require_no_turn(catalog, clock)
    searched = tuple(
        replace(
            _searched(catalog, hits, subject),
            found=merged([finding for part in hits.parts for finding in part.findings(hits.view)]),
        )
        for hits in _Search(catalog, subject).savepoints(tell)
    )
    return ErasePlan(catalog.uri, key_hash(subject.values), searched)


def erase(
    catalog: Storage,
    subject: Subject,
    folder: Path,
    *,
    who: str,
    why: str | None = None,
    clock: Clock = now_ms,
    chance: Chance = os.urandom,
    tell: ProgressCallback | None = None,
) -> Certificate:
    """Erase a key from every savepoint of a catalog, and verify that no occurrence is left.

    No savepoint can be taken or deleted during the erasure. Afterwards all savepoints are searched again, and
    the rewritten ones are verified.

    Args:
        catalog: The catalog.
        subject: The key.
        folder: A local working directory, which the caller deletes.
        who: The author of the erasure.
        why: The reason for the erasure.
        clock: The function that returns epoch milliseconds.
        chance: The function that returns a number of random bytes.
        tell: The progress callback, called with the work done, the total, and the current step.

    Raises:
        As for `plan_erase`; and
        Internal: An occurrence of the key is left, or a savepoint fails its verification.
    """
    require_catalog(catalog)
    _LOG.debug("erasing a key from %s", catalog.uri)  # the key itself must not be logged
    begun = clock()
    why = redacted(why, subject)
    turn = GcLease(catalog, chance(8).hex(), clock)
    clear_dead_sweep(catalog)
    with turn.hold() as takes:
        for note in takes.dead:
            turn.give_up(note)
        work = _Erasure(subject, Cleansing(catalog, folder, clock()), who, why, clock, turn)
        search = _Search(catalog, subject)
        savepoints = search.savepoints(tell)
        done = [work.savepoint(hits) for hits in followed(savepoints, tell, "erasing")]
        linked = _linked(catalog, plan_sweep(catalog, clock()).paths)
        removed = remove_unneeded(catalog, turn, clock, tell)
        _prove(catalog, search, [savepoint for savepoint in done if savepoint.after is not None], tell)
    work.digest(tell)
    _LOG.info(
        "erased a key from %d savepoints of %s", sum(part.after is not None for part in done), catalog.uri
    )
    return Certificate(
        key_sha256=key_hash(subject.values),
        columns=subject.columns,
        catalog=catalog.uri,
        searched=tuple(done),
        removed_files=len(removed.paths),
        removed_bytes=removed.size_bytes,
        linked=linked,
        who=who,
        why=why,
        begun_ms=begun,
        ended_ms=clock(),
        proved=True,
    )


@dataclass(slots=True)
class _Erasure:
    """A writer of savepoints without the key."""

    subject: Subject
    work: Cleansing
    who: str
    why: str | None
    clock: Clock
    turn: GcLease
    recorded: dict[str, SavepointContent] = field(default_factory=dict)

    @property
    def catalog(self) -> Storage:
        """The catalog of the savepoints."""
        return self.work.catalog

    def savepoint(self, hits: SavepointHits) -> SearchReport:
        """Rewrite a savepoint without the key, if it contains the key."""
        searched = _searched(self.catalog, hits, self.subject)
        if not hits.any:
            return searched
        replaced: list[ReplacedFiles] = []
        findings: list[ErasureFinding] = []
        for part in hits.parts:
            self.turn.check()
            new, rows = part.erased(self.work, hits.view)
            replaced += new
            findings += rows
        files = _files(hits.manifest, replaced)
        manifest = self._manifest(hits, files, sum(finding.rows for finding in findings))
        self.turn.check()
        self._replace(manifest)
        return replace(
            searched,
            found=merged(findings),
            rewritten=sum(len(new_files.written) for new_files in replaced),
            after=hash_of(manifest.render()),
        )

    def _replace(self, manifest: Manifest) -> None:
        """Replace the manifest, and remove the key from the files next to it."""
        savepoint_id = manifest.savepoint_id
        with suppress(HoldfastError):  # the recorded content is optional
            content = recorded(self.catalog, savepoint_id)
            if content is not None:
                self.recorded[savepoint_id] = content
        # The sums before and after would reveal the hash of the key's rows.
        self.catalog.delete(content_path(savepoint_id))
        redact_labels(self.catalog, savepoint_id, lambda text: redacted(text, self.subject))
        self.catalog.write(manifest_path(savepoint_id), manifest.render(), replace=True)

    def digest(self, tell: ProgressCallback | None) -> None:
        """Count and hash the rows of rewritten savepoints that had digests before."""
        for savepoint_id, before in self.recorded.items():
            with suppress(HoldfastError):  # the key is erased in any case; the digests stay pending
                digest(self.catalog, savepoint_id, clock=self.clock, known=before, tell=tell)

    def _manifest(self, hits: SavepointHits, files: Sequence[SavedFile], rows: int) -> Manifest:
        before = hits.manifest
        view = SavepointView(self.catalog, files, before.checkpoint)
        same = {(file.path, file.sha256) for file in before.files}
        known = frozenset(file.path for file in files if (file.path, file.sha256) in same)
        require_whole(view, known, self.catalog)
        record = {
            "key_sha256": key_hash(self.subject.values),
            "columns": list(self.subject.columns),
            "who": self.who,
            "when_ms": self.clock(),
            "why": self.why,
            "rows": rows,
        }
        told = facts(view, [file.path for file in files], deep=before.has_content)
        fields = {
            **before.fields,
            **told,
            "label": redacted(before.label, self.subject),
            "size_bytes": sum(file.size_bytes for file in files),
            "holdfast": __version__,
            ERASURES: [*before.erasures, record],
        }
        if before.change is not None:
            fields[CHANGE] = {name: redacted(value, self.subject) for name, value in before.change.items()}
        return manifest_of(fields, files)


def redacted(value: Any, subject: Subject) -> Any:
    """Return a text with the values of the key replaced where they are whole words."""
    if not isinstance(value, str):
        return value
    for given in subject.values.values():
        value = re.sub(rf"(?<!\w){re.escape(str(given))}(?!\w)", _ERASED, value)
    return value


class _Search:
    """A search for a subject in the savepoints of a catalog."""

    def __init__(self, catalog: Storage, subject: Subject) -> None:
        self._catalog = catalog
        self._subject = subject
        self._spark = SparkSearch(subject)
        self._keyed: OperatorSearch | None = None

    def savepoints(self, tell: ProgressCallback | None) -> list[SavepointHits]:
        """Search each savepoint in its current form."""
        savepoints = []
        states = 0
        for savepoint_id in followed(ids(self._catalog), tell, "searching"):
            try:
                manifest = load(self._catalog, savepoint_id)
            except NotFound:
                continue  # the savepoint was never completed
            view = SavepointView(self._catalog, manifest.files, savepoint_uri(self._catalog, savepoint_id))
            operators = named_operators(view, manifest.batch_id)
            states += sum(len(operator.states) for operator in operators)
            savepoints.append(self._savepoint(manifest, view, operators))
        there = self._spark.columns | (self._keyed.columns if self._keyed else set())
        missing = [column for column in self._subject.columns if column not in there]
        if missing and states:
            raise NotFound(
                f"no state in the catalog has a key column {', '.join(missing)} of a type that fits the key",
                code="HF-E3009",
                where=self._catalog.uri,
                hint="list the key columns of a savepoint with `holdfast state list SP`",
            )
        return savepoints

    def _savepoint(
        self, manifest: Manifest, view: SavepointView, operators: Sequence[NamedOperator]
    ) -> SavepointHits:
        labels = label_changes(self._catalog, manifest.savepoint_id)
        later = [text for change in labels for text in (change.label, change.before)]
        return SavepointHits(
            manifest,
            view,
            sum(file.path.startswith("state/") for file in manifest.files),
            tuple(part for operator in operators for part in self._of(operator).hits(view, operator)),
            told=_tells(manifest.fields, later, self._subject),
            unsearched=tuple(
                dict.fromkeys(
                    f"{operator.name}.{name}"
                    for operator in operators
                    for name in self._of(operator).unsearched(operator)
                )
            ),
        )

    def _of(self, operator: NamedOperator) -> OperatorSearch:
        if operator.keyed is None:
            return self._spark
        if self._keyed is None:
            # Imports Arrow, which the erasure from Spark's rows does not need.
            from holdfast.changes.erase.keyed_erasing import KeyedSearch

            self._keyed = KeyedSearch(self._subject)
        return self._keyed


def _tells(fields: Mapping[str, Any], labels: Sequence[str | None], subject: Subject) -> bool:
    """Return whether a text of the user in a manifest, or a later label, contains the key."""
    texts = [fields.get("label"), *labels, *(fields.get(CHANGE) or {}).values()]
    return any(redacted(text, subject) != text for text in texts)


def _files(manifest: Manifest, replaced: Sequence[ReplacedFiles]) -> list[SavedFile]:
    files = {file.path: file for file in manifest.files}
    for new in replaced:
        for path in new.removed:
            files.pop(path, None)
    for new in replaced:
        files.update({file.path: file for file in new.written})
    return [files[path] for path in sorted(files)]


def _searched(catalog: Storage, hits: SavepointHits, subject: Subject) -> SearchReport:
    own = key_hash(subject.values)
    return SearchReport(
        place=savepoint_uri(catalog, hits.manifest.savepoint_id),
        files=hits.files,
        found=(),
        traces=hits.traces,
        rewritten=0,
        before=hash_of(hits.manifest.render()),
        after=None,
        named=hits.told,
        unsearched=hits.unsearched,
        erased_before_ms=max(
            (
                int(erasure["when_ms"])
                for erasure in hits.manifest.erasures
                if erasure.get("key_sha256") == own
            ),
            default=None,
        ),
    )


def _prove(
    catalog: Storage, search: _Search, rewritten: Sequence[SearchReport], tell: ProgressCallback | None
) -> None:
    """Search all savepoints again, and verify the rewritten ones.

    A file whose hash was already searched is not read again, because its hash is verified.
    """
    left = [hits for hits in search.savepoints(tell) if hits.certain]
    if left:
        raise Internal(
            "the key is still present after the erasure",
            code="HF-E9004",
            where=savepoint_uri(catalog, left[0].manifest.savepoint_id),
            found=f"{counted(left[0].traces, 'file')} with the key",
            hint="please report this; the savepoints are undamaged",
        )
    for savepoint in rewritten:
        proof = prove(catalog, savepoint.place.rpartition("/")[2], tell=tell)
        if not proof.ok:
            raise Internal(
                "a savepoint failed verification after the erasure",
                code="HF-E9005",
                where=savepoint.place,
                found=proof.problems[0].what,
                hint="do not restore this savepoint, and please report this",
            )


def _linked(catalog: Storage, paths: Sequence[str]) -> int:
    """Return the number of files with other hard links, for example in a checkpoint on the same disk."""
    root = local_path(catalog.uri)
    count = 0
    for path in () if root is None else paths:
        with suppress(OSError):
            count += Path(root or "", path).lstat().st_nlink > 1
    return count
