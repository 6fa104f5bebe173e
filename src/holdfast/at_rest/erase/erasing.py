"""Erase a key from every savepoint of a catalog: from the rows, and from every byte that is left of others.

A savepoint keeps its id and address. What held the key is written anew without it, under its own hash; then
the manifest is replaced, which is what makes the erasure count for this savepoint; last, what no manifest
names any more is removed. Killed in between, each savepoint is what it was or has been erased from, and
erasing once more does the rest.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast._version import __version__
from holdfast.at_rest.edit.editable_state import EditableState, editable
from holdfast.at_rest.erase.certificate import Certificate, Finding, Searched, key_hash, merged
from holdfast.at_rest.erase.erase_plan import ErasePlan, require_catalog
from holdfast.at_rest.erase.keyed_erasing import KeyedHits, KeyedSearch, unsearched_keyed
from holdfast.at_rest.erase.matching import Subject, unsearched
from holdfast.at_rest.erase.purge import Cleansing, Matchers, Replaced, partition_changes
from holdfast.at_rest.erase.searching import Search, StoreHits
from holdfast.at_rest.read.model import NamedOperator
from holdfast.at_rest.read.state_catalog import named_operators
from holdfast.checkpoints.state.states import OperatorStates
from holdfast.config.locations import local_path
from holdfast.errors import HoldfastError, Internal, NotFound, Unsupported
from holdfast.formats.savepoint.manifest import CHANGE, ERASURES, Manifest, SavedFile, manifest_of
from holdfast.formats.savepoint.savepoint_content import SavepointContent
from holdfast.layout import StoreId
from holdfast.savepoints.catalog.catalog import content_path, ids, load, manifest_path, savepoint_uri
from holdfast.savepoints.catalog.leases import (
    DEAD_AFTER_MS,
    Clock,
    GcLease,
    clear_dead_sweep,
    require_no_turn,
)
from holdfast.savepoints.catalog.removal import plan_sweep, remove_unneeded
from holdfast.savepoints.copying import ProgressCallback
from holdfast.savepoints.proof.digests import digest, recorded
from holdfast.savepoints.proof.proof import prove
from holdfast.savepoints.rewrite.derived import require_whole
from holdfast.savepoints.taking.facts import facts
from holdfast.savepoints.taking.labels import label_changes, redact_labels
from holdfast.savepoints.view import SavepointView
from holdfast.storage.hashing import hash_of
from holdfast.storage.port import Storage

_LOG: Final = logging.getLogger("holdfast.at_rest")
_ERASED: Final = "[erased]"


@dataclass(frozen=True, slots=True)
class PartHits:
    """What was found in one partition of one operator."""

    operator: NamedOperator
    partition: int
    matchers: Matchers
    stores: tuple[StoreHits, ...]

    @property
    def by_value(self) -> bool:
        """Whether some of it cannot be told by the key."""
        return any(store.by_value for store in self.stores)


@dataclass(frozen=True, slots=True)
class SavepointHits:
    """What was found in one savepoint.

    `told` is whether its manifest names it, in a label perhaps; `unsearched` are the states and columns of
    kinds that cannot be searched.
    """

    manifest: Manifest
    view: SavepointView
    files: int
    parts: tuple[PartHits, ...]
    findings: tuple[Finding, ...]
    keyed: tuple[KeyedHits, ...] = ()
    told: bool = False
    unsearched: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        """Whether anything was found."""
        return bool(self.parts or self.keyed) or self.told

    @property
    def certain(self) -> bool:
        """Whether it was found in a row, or in words."""
        stores = (store for part in self.parts for store in part.stores)
        rows = any(each.rows for each in self.keyed)
        return self.told or rows or any(each.certain for store in stores for each in store.files.values())

    @property
    def traces(self) -> int:
        """The files in which it was found."""
        plain = [store for part in self.parts for store in part.stores]
        own = [store for each in self.keyed for store in each.stores]
        return sum(each.traces for each in (*plain, *own))


def plan_erase(
    catalog: Storage, subject: Subject, *, clock: Clock, tell: ProgressCallback | None = None
) -> ErasePlan:
    """Look for a key in every savepoint of a catalog; changes nothing.

    Cost: every distinct file of state in the catalog is read once, at about a microsecond an entry.

    Args:
        catalog: The catalog.
        subject: Who is meant.
        clock: The time in epoch milliseconds.
        tell: Called with what is done, what there is in all, and what is being done.

    Raises:
        NotFound: There is no such catalog, or no state of any savepoint has such a column.
        Invalid: The place is no catalog.
        Conflict: A savepoint is being taken, or a removal is under way.
        Corrupt: A manifest or a file of state is damaged, so that nobody can say what is in it.
        Unsupported: Some state is of a kind that cannot be searched.
    """
    require_catalog(catalog)
    require_no_turn(catalog, clock)
    searched = tuple(
        replace(_searched(catalog, each, subject), found=_counted(each))
        for each in _Search(catalog, subject).savepoints(tell)
    )
    return ErasePlan(catalog.uri, key_hash(subject.values), searched)


def erase(
    catalog: Storage,
    subject: Subject,
    folder: Path,
    *,
    who: str,
    why: str | None = None,
    clock: Clock,
    token: str,
    tell: ProgressCallback | None = None,
) -> Certificate:
    """Erase a key from every savepoint of a catalog, and prove that nothing of it is left.

    No savepoint can be taken or removed meanwhile. Afterwards every savepoint is searched once more, and
    those that were rewritten are verified.

    Args:
        catalog: The catalog.
        subject: Who is meant.
        folder: A local directory to work in, which is the caller's to remove.
        who: Who does it.
        why: What for.
        clock: The time in epoch milliseconds.
        token: A name for this that no other has.
        tell: Called with what is done, what there is in all, and what is being done.

    Raises:
        As `plan_erase`; and
        Internal: Something of it is left, or a savepoint does not verify.
    """
    require_catalog(catalog)
    _LOG.debug("erasing a key from %s", catalog.uri)  # the key itself must not get into a log
    begun = clock()
    why = redacted(why, subject)
    turn = GcLease(catalog, token, clock, DEAD_AFTER_MS)
    clear_dead_sweep(catalog)
    taken = turn.begin()
    try:
        for note in taken.dead:
            turn.give_up(note)
        work = _Erasure(catalog, subject, folder, who, why, clock, turn)
        search = _Search(catalog, subject)
        found = search.savepoints(tell)
        done = [work.savepoint(each, number, len(found), tell) for number, each in enumerate(found)]
        linked = _linked(catalog, plan_sweep(catalog, clock()).paths)
        removed = remove_unneeded(catalog, turn, clock, tell)
        _prove(catalog, search, [each for each in done if each.after is not None], tell)
    finally:
        with suppress(HoldfastError):
            turn.end()
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
    """The rewriting of savepoints."""

    catalog: Storage
    subject: Subject
    folder: Path
    who: str
    why: str | None
    clock: Clock
    turn: GcLease
    recorded: dict[str, SavepointContent] = field(default_factory=dict)
    _cleansing: Cleansing | None = None

    def savepoint(
        self, hits: SavepointHits, number: int, count: int, tell: ProgressCallback | None
    ) -> Searched:
        """Write a savepoint anew without the key, if it has it."""
        searched = _searched(self.catalog, hits, self.subject)
        if not hits.any:
            return searched
        if tell is not None:
            tell(number, count, "erasing")
        replaced: list[Replaced] = []
        findings: list[Finding] = []
        hashes = {file.path: file.sha256 for file in hits.manifest.files}
        for part in hits.parts:
            self.turn.check()
            new, found = self._part(hits.view, hashes, part)
            replaced += new
            findings += found
        for each in hits.keyed:
            self.turn.check()
            replaced += self._keyed(hits.view, hashes, each)
            findings.append(Finding(each.operator.name, each.rows))
        files = _files(hits.manifest, replaced)
        manifest = self._manifest(hits, files, sum(finding.rows for finding in findings))
        self.turn.check()
        self._replace(manifest)
        return replace(
            searched,
            found=merged(findings),
            rewritten=sum(len(each.written) for each in replaced),
            after=hash_of(manifest.render()),
        )

    def _replace(self, manifest: Manifest) -> None:
        """Put the new manifest in place of the old one, and take the key out of what is beside it."""
        savepoint_id = manifest.savepoint_id
        with suppress(HoldfastError):  # it is of use for what the key was not in, and not needed
            content = recorded(self.catalog, savepoint_id)
            if content is not None:
                self.recorded[savepoint_id] = content
        # Sums of before and of after would give away the hash of the rows of the key.
        self.catalog.delete(content_path(savepoint_id))
        redact_labels(self.catalog, savepoint_id, lambda text: redacted(text, self.subject))
        self.catalog.write(manifest_path(savepoint_id), manifest.render(), replace=True)

    def digest(self, tell: ProgressCallback | None) -> None:
        """Count and hash the rows of what was rewritten, where that had been done before."""
        for savepoint_id, before in self.recorded.items():
            with suppress(HoldfastError):  # the key is gone all the same; the digests are pending then
                digest(self.catalog, savepoint_id, clock=self.clock, known=before, tell=tell)

    def _keyed(self, view: SavepointView, hashes: Mapping[str, str], hits: KeyedHits) -> list[Replaced]:
        changes = hits.row_changes()
        known = {each.store for each in hits.stores}
        stores = [
            *hits.stores,
            *(
                StoreHits(store, hits.operator.files.chain(view, store), {})
                for store in changes
                if store not in known
            ),
        ]
        work, operator = self._work(), hits.operator.files
        return [work.flat(view, hashes, operator, each, changes.get(each.store, ())) for each in stores]

    def _work(self) -> Cleansing:
        if self._cleansing is None:
            self._cleansing = Cleansing(self.catalog, self.folder, self.clock())
        return self._cleansing

    def _part(
        self, view: SavepointView, hashes: Mapping[str, str], part: PartHits
    ) -> tuple[list[Replaced], list[Finding]]:
        work, operator = self._work(), part.operator.files
        if not part.by_value:
            replaced = []
            for store in part.stores:
                replaced += work.by_key(view, hashes, operator, store)
            return replaced, list(_live(part))
        changes, counts = partition_changes(
            view, operator, part.partition, _states(part.operator), part.matchers
        )
        flat = [
            work.flat(view, hashes, operator, store, changes.get(store.store, ()))
            for store in part.stores
            if store.any or store.store in changes
        ]
        return flat, [Finding(f"{part.operator.name}.{label}", rows) for label, rows in counts.items()]

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
    """Text with what is to be forgotten taken out of it, where it stands as a word."""
    if not isinstance(value, str):
        return value
    for each in subject.values.values():
        value = re.sub(rf"(?<!\w){re.escape(str(each))}(?!\w)", _ERASED, value)
    return value


class _Search:
    """Looks for a subject in the savepoints of a catalog; a file is read once, whoever shares it."""

    def __init__(self, catalog: Storage, subject: Subject) -> None:
        self._catalog = catalog
        self._subject = subject
        self._plain = Search(subject)
        self._keyed = KeyedSearch(subject)

    def savepoints(self, tell: ProgressCallback | None) -> list[SavepointHits]:
        """What is in each savepoint as it is now."""
        known = ids(self._catalog)
        found = []
        states = 0
        for number, savepoint_id in enumerate(known):
            if tell is not None:
                tell(number, len(known), "searching")
            try:
                manifest = load(self._catalog, savepoint_id)
            except NotFound:
                continue  # it was never finished
            view = SavepointView(self._catalog, manifest.files, savepoint_uri(self._catalog, savepoint_id))
            operators = named_operators(view, manifest.batch_id)
            states += sum(len(operator.states) for operator in operators)
            found.append(self._savepoint(manifest, view, operators))
        there = self._plain.columns | self._keyed.columns
        missing = [column for column in self._subject.columns if column not in there]
        if missing and states:
            raise NotFound(
                "no state of the catalog has such a column, or none in which the value fits",
                where=self._catalog.uri,
                found=", ".join(missing),
                hint="see the columns with `holdfast state list SP`",
            )
        return found

    def _savepoint(
        self, manifest: Manifest, view: SavepointView, operators: Sequence[NamedOperator]
    ) -> SavepointHits:
        plain = [operator for operator in operators if operator.keyed is None]
        parts = [part for operator in plain for part in _parts(self._plain, view, manifest, operator)]
        keyed = [
            hits
            for operator in operators
            if operator.keyed is not None
            and (hits := self._keyed.operator(view, manifest, operator, operator.keyed)) is not None
        ]
        labels = label_changes(self._catalog, manifest.savepoint_id)
        later = [text for change in labels for text in (change.label, change.before)]
        return SavepointHits(
            manifest,
            view,
            sum(file.path.startswith("state/") for file in manifest.files),
            tuple(parts),
            merged(
                [
                    *(each for part in parts for each in _live(part)),
                    *(Finding(each.operator.name, each.rows) for each in keyed),
                ]
            ),
            tuple(keyed),
            told=_tells(manifest.fields, later, self._subject),
            unsearched=tuple(self._unsearched(operators)),
        )

    def _unsearched(self, operators: Sequence[NamedOperator]) -> Iterator[str]:
        """The states and columns in which nobody can look for it."""
        for each in operators:
            if each.keyed is not None:
                found = unsearched_keyed(each.keyed, self._subject)
            else:
                found = [
                    f"{codec.name.label}.{column}"
                    for codec in each.files.known()
                    if codec.schema is not None and not codec.name.internal
                    for column in unsearched(codec, self._subject)
                ]
            yield from (f"{each.name}.{name}" for name in dict.fromkeys(found))


def _tells(fields: Mapping[str, Any], labels: Sequence[str | None], subject: Subject) -> bool:
    """Whether what people have written into a manifest, or as a later label, names it."""
    texts = [fields.get("label"), *labels, *(fields.get(CHANGE) or {}).values()]
    return any(redacted(text, subject) != text for text in texts)


def _parts(
    search: Search, view: SavepointView, manifest: Manifest, operator: NamedOperator
) -> Iterator[PartHits]:
    _require_searchable(operator)
    files = operator.files
    matchers = search.matchers(files)
    if not matchers:
        return
    for partition in range(operator.partitions):
        stores = tuple(
            search.store(view, manifest, files, StoreId(operator.operator_id, partition, name), matchers)
            for name in files.store_names
        )
        if any(store.any for store in stores):
            yield PartHits(operator, partition, matchers, stores)


def _require_searchable(operator: NamedOperator) -> None:
    files: OperatorStates = operator.files
    if files.values.avro:
        raise Unsupported(
            "state that is encoded as Avro cannot be searched",
            where=f"operator {operator.operator_id}, {operator.name}",
            hint="delete the savepoints that have it",
        )


def _counted(hits: SavepointHits) -> tuple[Finding, ...]:
    """The rows that count, those included that only their values tell."""
    found = [Finding(each.operator.name, each.rows) for each in hits.keyed]
    for part in hits.parts:
        if not part.by_value:
            found += list(_live(part))
            continue
        files, states = part.operator.files, _states(part.operator)
        _, counts = partition_changes(hits.view, files, part.partition, states, part.matchers)
        found += [Finding(f"{part.operator.name}.{label}", rows) for label, rows in counts.items()]
    return merged(found)


def _live(part: PartHits) -> Iterator[Finding]:
    """The rows that count and are of the key by themselves."""
    for store in part.stores:
        for label, rows in store.live(part.operator.files).items():
            yield Finding(f"{part.operator.name}.{label}", rows)


def _states(operator: NamedOperator) -> list[EditableState]:
    found = []
    for state in operator.states:
        if state.codec is not None:
            with suppress(Unsupported):  # an index, which follows the rows that it is of
                found.append(editable(operator, state))
    return found


def _files(manifest: Manifest, replaced: Sequence[Replaced]) -> list[SavedFile]:
    files = {file.path: file for file in manifest.files}
    for each in replaced:
        for path in each.removed:
            files.pop(path, None)
    for each in replaced:
        files.update({file.path: file for file in each.written})
    return [files[path] for path in sorted(files)]


def _searched(catalog: Storage, hits: SavepointHits, subject: Subject) -> Searched:
    own = key_hash(subject.values)
    return Searched(
        place=savepoint_uri(catalog, hits.manifest.savepoint_id),
        files=hits.files,
        found=hits.findings,
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
    catalog: Storage, search: _Search, rewritten: Sequence[Searched], tell: ProgressCallback | None
) -> None:
    """Search everything once more, and verify what was rewritten.

    A file with the hash of one that was searched is not read again: that it still has it is verified.
    """
    left = [each for each in search.savepoints(tell) if each.certain]
    if left:
        raise Internal(
            "something of the key is left",
            where=savepoint_uri(catalog, left[0].manifest.savepoint_id),
            found=f"{left[0].traces} files that hold it",
            hint="no savepoint is damaged; please report this",
        )
    for each in rewritten:
        proof = prove(catalog, each.place.rpartition("/")[2], tell=tell)
        if not proof.ok:
            raise Internal(
                "a savepoint does not verify after the erasure",
                where=each.place,
                found=proof.problems[0].what,
                hint="do not restore it; please report this",
            )


def _linked(catalog: Storage, paths: Sequence[str]) -> int:
    """How many files have other names elsewhere: a checkpoint's own, on the same disk."""
    root = local_path(catalog.uri)
    count = 0
    for path in () if root is None else paths:
        with suppress(OSError):
            count += Path(root or "", path).stat().st_nlink > 1
    return count
