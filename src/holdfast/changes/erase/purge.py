"""The rewriting of a savepoint's stores without an erased key."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import layout
from holdfast.at_rest.model import NamedOperator
from holdfast.changes.edit.editable_state import KEY, Column, EditableState, RowsView, Values, editable
from holdfast.changes.edit.row_changes import EditTally, PartitionEdit
from holdfast.changes.erase.certificate import ErasureFinding
from holdfast.changes.erase.searching import Matcher, Search, StoreHits, unsearched
from holdfast.checkpoints.state.rocksdb import Families, Pairs, open_snapshot
from holdfast.checkpoints.state.rows import CHUNK, base_families, base_rows, store_chunks
from holdfast.checkpoints.state.states import OperatorStates
from holdfast.errors import Internal, Unsupported
from holdfast.formats.files.checksums import spark_checksum
from holdfast.formats.files.compression import compressed, decompressed
from holdfast.formats.files.records import parse_head, records_of, without_keys
from holdfast.formats.files.snapshot import parse_snapshot
from holdfast.formats.manifest import SavedFile
from holdfast.layout import DEFAULT_STORE, FileKind, StoreFile, StoreId
from holdfast.quantities import counted
from holdfast.savepoints.derived import store_object
from holdfast.savepoints.store_edits import RowChange, StoreChanges
from holdfast.savepoints.stores import StoreForm, StoreWriter
from holdfast.savepoints.view import SavepointView
from holdfast.storage.hashing import hash_file
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

Matchers = Mapping[tuple[str, str], Matcher]


@dataclass(frozen=True, slots=True)
class ReplacedFiles:
    """The files of a savepoint that the erasure replaced.

    Attributes:
        removed: The paths of the files to remove from the savepoint.
        written: The new files, whose content is already in the catalog.
    """

    removed: frozenset[str]
    written: tuple[SavedFile, ...]


@dataclass(slots=True)
class Cleansing:
    """A writer of store files without an erased key; a file that savepoints share is written once.

    Attributes:
        catalog: The catalog that stores the new files.
        folder: A working directory.
        now_ms: The current time in epoch milliseconds.
    """

    catalog: Storage
    folder: Path
    now_ms: int
    _done: dict[tuple[str, ...], ReplacedFiles] = field(default_factory=dict)

    def by_key(
        self,
        view: SavepointView,
        operator: OperatorStates,
        hits: StoreHits,
    ) -> list[ReplacedFiles]:
        """Rewrite the files of a store that contain the key, each without the matching entries.

        Args:
            view: The savepoint, read as a checkpoint.
            operator: The store's operator.
            hits: The store, and its files that may contain the key.
        """
        files = []
        for file, found_in in hits.files.items():
            if not found_in.any:
                continue
            known = (view.sha256(file.render()), file.render())
            if known not in self._done:
                self._done[known] = self._file(view, operator, file, found_in.keys)
            files.append(self._done[known])
        return files

    def flat(
        self,
        view: SavepointView,
        operator: OperatorStates,
        hits: StoreHits,
        changes: Sequence[RowChange],
    ) -> ReplacedFiles:
        """Write a store as one new base with some rows changed; it replaces the old base and its changelogs.

        Args:
            view: The savepoint, read as a checkpoint.
            operator: The store's operator.
            hits: The store, and its files that may contain the key.
            changes: The rows to delete or to replace.
        """
        known = ("flat", *(view.sha256(file.render()) for file in hits.chain), hits.store.folder)
        if known not in self._done:
            last = hits.chain[-1]
            kind = FileKind.ZIP if operator.values.rocksdb else FileKind.SNAPSHOT
            file = StoreFile(hits.store, last.version, kind, last.unique_id)
            gone = {(change.family, change.stored_key) for change in changes}
            stored = ((codec.name.family, pairs) for codec, pairs in store_chunks(view, operator, hits.store))
            rows = _without(stored, gone)
            families = base_families(view, operator, hits.store)
            made = self._written(view, operator, file, rows, families, changes)
            removed = frozenset().union(*(_paths(view, link) for link in hits.chain))
            self._done[known] = self._store_files(made, removed, file)
        return self._done[known]

    def _file(
        self, view: Storage, operator: OperatorStates, file: StoreFile, keys: Collection[tuple[str, bytes]]
    ) -> ReplacedFiles:
        removed = _paths(view, file)
        if file.kind is FileKind.ZIP:
            families = base_families(view, operator, file.store)
            rows = _without(_base(view, operator, file, families), keys)
            made = self._written(view, operator, file, rows, families, ())
            return self._store_files(made, removed, file)
        made = self._place()
        path = file.render()
        stream = decompressed(view.read(path), operator.codec, path)
        data = compressed(_kept_records(view, operator, file, stream, keys), operator.codec)
        if layout.SparkChecksumFile(path).render() in removed:
            made.write(layout.SparkChecksumFile(path).render(), spark_checksum(data, self.now_ms).render())
        made.write(path, data)
        return self._store_files(made, removed, file)

    def _written(
        self,
        view: Storage,
        operator: OperatorStates,
        file: StoreFile,
        rows: Iterable[tuple[str, Pairs]],
        families: Families,
        changes: Sequence[RowChange],
    ) -> Storage:
        """Write a whole store to a new directory, read it back, and compare the rows."""
        made = self._place()
        unique = file.unique_id is not None
        form = StoreForm(operator.values, operator.codec, unique, operator.snapshot_version(view))
        work = self.folder / uuid.uuid4().hex
        total = _Sum()
        with StoreWriter(made, file, form, work, families=families, now_ms=self.now_ms) as writer:
            for family, pairs in rows:
                writer.add_stored(pairs, family)
                total.add(family, pairs)
            for change in changes:
                if change.rows is None:
                    continue
                family, key = change.family, change.stored_key
                stored = families.prefixes[family]
                if change.is_list:
                    writer.add_lists([key], [change.rows], family)
                    value = operator.values.stored_list(stored + key, change.rows)
                else:
                    writer.add([key], change.rows, family)
                    value = operator.values.stored([stored + key], change.rows)[0]
                total.add(family, [(key, value)])
            writer.finish()
        back = _Sum()
        for family, pairs in _base(made, operator, file, families):
            back.add(family, pairs)
        if back != total:
            raise Internal(
                "verification failed, so nothing was changed: a store reads back differently than written",
                code="HF-E9008",
                where=file.render(),
                found=counted(back.rows, "row"),
                expected=f"{counted(total.rows, 'row')}, identical to the rows to keep",
                hint="please report this; no savepoint is damaged",
            )
        return made

    def _store_files(self, made: Storage, removed: frozenset[str], file: StoreFile) -> ReplacedFiles:
        """Store the written files in the catalog, and return the replacement."""
        written = []
        for path in _new_files(made, file.store):
            sha256, size = hash_file(made, path, made.size(path) or 0)
            saved = SavedFile(path, size, sha256)
            store_object(self.catalog, saved, made, path)
            written.append(saved)
        return ReplacedFiles(removed, tuple(written))

    def _place(self) -> Storage:
        return LocalStorage(self.folder / uuid.uuid4().hex)


@dataclass(slots=True)
class _Sum:
    """An order-independent sum of rows: valid within one process, and much faster than a hash."""

    rows: int = 0
    total: int = 0

    def add(self, family: str, pairs: Pairs) -> None:
        """Add rows of a family."""
        self.rows += len(pairs)
        self.total = (self.total + sum(hash((family, pair)) for pair in pairs)) % (1 << 128)


class BySubject:
    """A decider that deletes the rows of a subject by any of their columns."""

    columns: Sequence[Column] = ()

    def __init__(self, state: EditableState, matcher: Matcher) -> None:
        self._state = state
        self._matcher = matcher

    def decide(
        self,
        partition: int,  # noqa: ARG002 - the same in each
        first: int,  # noqa: ARG002 - likewise
        rows: RowsView,
    ) -> Iterator[tuple[int, None]]:
        """See `Decider`."""
        for place, row in enumerate(rows):
            keys, values = self._apart(row)
            if self._matcher.values_of(keys, values):
                yield place, None

    def _apart(self, row: Values) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the fields of key and value, nested as stored."""
        keys: dict[str, Any] = {}
        values: dict[str, Any] = {}
        for column in self._state.columns:
            if column.path:
                into = keys if column.side == KEY else values
                for name in column.path[:-1]:
                    into = into.setdefault(name, {})
                into[column.path[-1]] = row[column.name]
        return keys, values


def partition_changes(
    view: Storage,
    operator: OperatorStates,
    partition: int,
    states: Sequence[EditableState],
    matchers: Matchers,
) -> tuple[dict[StoreId, list[RowChange]], dict[str, int]]:
    """Return the changes that remove a subject's rows from a partition, and the number of rows by state.

    Spark's companion data is changed with the rows, and all entries with the subject's key are deleted in
    every family.
    """
    changes: dict[tuple[StoreId, str, bytes], RowChange] = {}
    counts: dict[str, int] = {}
    for state in states:
        one = matchers.get((state.main.name.store, state.main.name.family))
        if one is None:
            continue
        tally = EditTally()
        work = PartitionEdit(state, partition, BySubject(state, one), tally)
        for change in work.run(partial(state.rows, view, partition)):
            store = StoreId(operator.operator_id, partition, change.codec.name.store)
            changes[store, change.family, change.key] = change
        if tally.deleted:
            counts[state.main.name.label] = tally.deleted
    for name in operator.store_names:
        store = StoreId(operator.operator_id, partition, name)
        for change in _by_key(view, operator, store, matchers):
            changes[store, change.family, change.key] = change
    by_store: dict[StoreId, list[RowChange]] = {}
    for (store, _, _), change in changes.items():
        by_store.setdefault(store, []).append(change)
    return by_store, counts


def _by_key(
    view: Storage, operator: OperatorStates, store: StoreId, matchers: Matchers
) -> Iterator[RowChange]:
    for codec, pairs in store_chunks(view, operator, store):
        one = matchers.get((store.name, codec.name.family))
        if one is None or not one.by_key:
            continue
        for key, _ in pairs:
            if one.may_have(key, b"") and one.key_of(key):
                yield RowChange(codec, codec.key_row(key), None)


def _without(
    rows: Iterable[tuple[str, Pairs]], keys: Collection[tuple[str, bytes]]
) -> Iterator[tuple[str, Pairs]]:
    for family, pairs in rows:
        yield family, [pair for pair in pairs if (family, pair[0]) not in keys]


def _base(
    view: Storage, operator: OperatorStates, file: StoreFile, families: Families
) -> Iterator[tuple[str, Pairs]]:
    """Yield the rows of a base by family, in chunks."""
    if file.kind is FileKind.SNAPSHOT:
        yield DEFAULT_STORE, list(base_rows(view, operator, file))
        return
    with open_snapshot(view, file, operator.values.delimiter) as snapshot:
        for chunk in snapshot.chunks(CHUNK):
            for prefix, pairs in families.sorted_out(chunk):
                yield families.names[prefix], pairs


def _kept_records(
    view: Storage,
    operator: OperatorStates,
    file: StoreFile,
    stream: bytes,
    keys: Collection[tuple[str, bytes]],
) -> bytes:
    """Return a changelog, or a snapshot of the memory provider, without the records of some keys."""
    path = file.render()
    records = records_of(file.kind, stream, path)
    head = parse_head(stream, path) if file.kind is FileKind.CHANGELOG else None
    prefixes = base_families(view, operator, file.store).prefixes
    gone = {prefixes[family] + key for family, key in keys}
    return without_keys(stream, records, gone, operator.values.deleted, head)


def _paths(view: Storage, file: StoreFile) -> frozenset[str]:
    """Return the existing paths of a file, its checksums and the data files that it references."""
    path = file.render()
    sums = layout.SparkChecksumFile(path).render()
    paths = [path, sums, layout.HadoopChecksumFile(path).render(), layout.HadoopChecksumFile(sums).render()]
    shares = parse_snapshot(view.read(path), path, whole=False).shared if file.kind is FileKind.ZIP else ()
    for shared in shares:
        of = layout.SharedSstFile(file.store, shared.folder, shared.name).render()
        paths += [of, layout.HadoopChecksumFile(of).render(), layout.SparkChecksumFile(of).render()]
    return frozenset(there for there in paths if view.size(there) is not None)


def _new_files(made: Storage, store: StoreId) -> list[str]:
    """Return the written files of a store."""
    paths = []
    for folder in (store.folder, f"{store.folder}/{layout.SSTS}"):
        listing = made.list(folder)
        paths += [f"{folder}/{name}" for name in listing.names if listing.size(name) is not None]
    return paths


@dataclass(frozen=True, slots=True)
class PartitionHits:
    """The occurrences of the subject in one partition of one operator; see `OperatorHits`."""

    operator: NamedOperator
    partition: int
    matchers: Matchers
    stores: tuple[StoreHits, ...]

    @property
    def by_value(self) -> bool:
        """Return whether a row matches by its value and not by its key."""
        return any(store.by_value for store in self.stores)

    @property
    def certain(self) -> bool:
        """Return whether at least one match is a row, and not only bytes that equal the key."""
        return any(hits.certain for store in self.stores for hits in store.files.values())

    def findings(self, view: Storage) -> tuple[ErasureFinding, ...]:
        """Return all matching current rows, including those matched by value only."""
        if self.by_value:
            return self._removal(view)[1]
        return tuple(
            ErasureFinding(f"{self.operator.name}.{label}", rows)
            for store in self.stores
            for label, rows in store.live(self.operator.files).items()
        )

    def erased(
        self, work: Cleansing, view: SavepointView
    ) -> tuple[list[ReplacedFiles], tuple[ErasureFinding, ...]]:
        """Rewrite the matching files one by one, or whole stores if values contain the key."""
        files = self.operator.files
        if not self.by_value:
            by_file = (work.by_key(view, files, store) for store in self.stores)
            return [replaced for store in by_file for replaced in store], self.findings(view)
        changes, findings = self._removal(view)
        touched = [store for store in self.stores if store.any or store.store in changes]
        return [work.flat(view, files, store, changes.get(store.store, ())) for store in touched], findings

    def _removal(self, view: Storage) -> tuple[StoreChanges, tuple[ErasureFinding, ...]]:
        changes, counts = partition_changes(
            view, self.operator.files, self.partition, _states(self.operator), self.matchers
        )
        return changes, tuple(
            ErasureFinding(f"{self.operator.name}.{label}", rows) for label, rows in counts.items()
        )


class SparkSearch(Search):
    """A search for a subject in Spark's operators; see `OperatorSearch`."""

    def hits(self, view: SavepointView, operator: NamedOperator) -> Iterator[PartitionHits]:
        """Yield the occurrences in an operator, by partition.

        Raises:
            Unsupported: The state is encoded as Avro.
        """
        files = operator.files
        if files.values.avro:
            raise Unsupported(
                "cannot search state encoded as Avro for a key, so nothing was changed",
                code="HF-E7020",
                where=f"operator {operator.named.label}",
                hint="to remove the key, delete every savepoint that contains state of this operator; they"
                " cannot be restored afterwards",
            )
        matchers = self.matchers(files)
        for partition in range(operator.partitions) if matchers else ():
            stores = tuple(
                self.store(view, files, StoreId(operator.operator_id, partition, name), matchers)
                for name in files.store_names
            )
            if any(store.any for store in stores):
                yield PartitionHits(operator, partition, matchers, stores)

    def unsearched(self, operator: NamedOperator) -> Sequence[str]:
        """Return the states and columns that cannot be searched."""
        return [
            f"{codec.name.label}.{column}"
            for codec in operator.files.declared_codecs()
            if codec.schema is not None and not codec.name.internal
            for column in unsearched(codec, self._subject)
        ]

    def may_hold(self, operator: NamedOperator) -> Callable[[bytes], bool]:
        """Return a function that returns whether bytes may contain matching rows, without false negatives."""
        matchers = list(self.matchers(operator.files).values())
        return lambda data: any(matcher.may_have(data, b"") for matcher in matchers)


def _states(operator: NamedOperator) -> list[EditableState]:
    states = []
    for state in operator.states:
        if state.codec is not None:
            with suppress(Unsupported):  # an index, which is updated with its rows
                states.append(editable(operator, state))
    return states
