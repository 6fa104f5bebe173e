"""The search of a store's files for a key, in current rows and in leftover bytes.

A file is searched entry by entry as stored, because it still contains deleted and overwritten entries. The
findings are cached by the hash of the file, so that a file which many savepoints share is read once.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast import layout
from holdfast.at_rest.keys import typed
from holdfast.changes.edit.editable_state import KEY, VALUE, at_path
from holdfast.checkpoints.state.rocksdb import Families, open_snapshot
from holdfast.checkpoints.state.rows import base_families
from holdfast.checkpoints.state.states import OperatorStates, StateCodec
from holdfast.config.checks import place_word
from holdfast.errors import Corrupt, Invalid
from holdfast.formats.files.compression import decompressed
from holdfast.formats.files.records import records_of
from holdfast.formats.files.snapshot import parse_snapshot
from holdfast.formats.files.sst import sst_entries
from holdfast.formats.operators import FamilyUse, use_of
from holdfast.formats.rows.spark_types import Array, Atom, DataType, Decimal, Map, Struct
from holdfast.formats.rows.unsafe_row import RowCodec, is_fixed
from holdfast.layout import FileKind, StoreFile, StoreId
from holdfast.savepoints.view import SavepointView
from holdfast.storage.hashing import hash_of
from holdfast.storage.port import full

# Key fields that are Spark's and not a user's.
_SPARKS: Final = frozenset({"expirationMs", "expiryTimestampMs", "sessionStartTime", "index"})
_SLOT: Final = 8


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of an erasure.

    Attributes:
        values: The values as given, by column; under None if any key column may have the value.
    """

    values: Mapping[str | None, Any]

    @property
    def any_column(self) -> bool:
        """Return whether every key column is searched, and no value column."""
        return None in self.values

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns to search; empty for every key column."""
        return tuple(value for value in self.values if value is not None)


def subject(key: str, column: str | None = None) -> Subject:
    """Parse the subject: a bare value, a value of one column, a JSON object, or `column=value`.

    Raises:
        Invalid: The key is empty or null.
    """
    values: dict[str | None, Any]
    name, equals, rest = key.partition("=")
    if column is not None:
        values = {column: key}
    elif key.lstrip().startswith("{"):
        try:
            values = dict(json.loads(key))
        except ValueError as error:
            raise Invalid(
                "the key is not valid JSON",
                code="HF-E2071",
                found=f"{key[:200]}: {error}",
                expected="a JSON object",
                hint='write the key as {"customer": "c7"}, or as customer=c7',
            ) from error
    elif equals and name.strip().isidentifier():
        values = {name.strip(): rest}
    else:
        values = {None: key}
    if not values or any(value is None or value == "" for value in values.values()):
        raise Invalid(
            "the key to erase has no value",
            code="HF-E2072",
            found=key[:200] or "nothing",
            hint="give the value itself, `column=value`, or a JSON object of columns",
        )
    return Subject(values)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A nested field to search for a value."""

    side: str
    path: tuple[str, ...]
    type: DataType
    value: Any

    def of(self, row: Mapping[str, Any]) -> Any:
        """Return the value of the field in a row."""
        return at_path(row, self.path)


@dataclass(slots=True)
class Matcher:
    """A search for a subject in the rows of one column family.

    Attributes:
        codec: The codec of the family.
        leaves: The fields to search, by column; empty if no field has a fitting type.
        needles: Byte strings by column; a matching row contains one for each column.
        places: The offsets of such bytes in a key's row, by column; None if they vary.
        exact: The only stored key that matches, without the number of its family; None if other keys or
            values can match.
        possible: Whether a row can match at all.
        by_key: Whether only key columns decide a match.
        by_value: Whether a row can match by its value.
    """

    codec: StateCodec
    leaves: Mapping[str | None, tuple[Leaf, ...]]
    needles: tuple[tuple[bytes, ...], ...]
    places: tuple[tuple[tuple[int, bytes], ...], ...] | None
    exact: bytes | None
    possible: bool = field(init=False)
    by_key: bool = field(init=False)
    by_value: bool = field(init=False)
    _rows: dict[str, RowCodec] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = self.leaves.values()
        self.possible = bool(columns) and all(columns)
        self.by_key = self.possible and all(any(leaf.side == KEY for leaf in column) for column in columns)
        self.by_value = self.possible and any(leaf.side == VALUE for column in columns for leaf in column)

    def may_have(self, key: bytes, value: bytes) -> bool:
        """Return whether bytes may contain the subject; false negatives are impossible."""
        return all(any(needle in key or needle in value for needle in column) for column in self.needles)

    def key_of(self, key: bytes) -> bool:
        """Return whether a stored key, without the number of its family, belongs to the subject."""
        if not self.by_key:
            return False
        data = self.codec.key_row(key)
        if self.places is None and not self.may_have(key, b""):
            return False
        for column in self.places or ():
            for at, word in column:
                if data[at : at + _SLOT] == word:
                    break
            else:
                return False
        row = self._row(KEY).decode(data)
        return all(
            any(leaf.side == KEY and leaf.of(row) == leaf.value for leaf in leaves)
            for leaves in self.leaves.values()
        )

    def row_of(self, key: bytes, value: bytes) -> bool:
        """Return whether a row with a value or a list of values belongs to the subject."""
        if not self.by_value:
            return False
        keys = self._row(KEY).decode(self.codec.key_row(key))
        return any(
            self.values_of(keys, self._row(VALUE).decode(row))
            for row in self.codec.values.rows(value, self.codec.where)[0]
        )

    def values_of(self, keys: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        """Return whether a row with these fields belongs to the subject."""
        return self.possible and all(
            any(leaf.of(keys if leaf.side == KEY else values) == leaf.value for leaf in leaves)
            for leaves in self.leaves.values()
        )

    def _row(self, side: str) -> RowCodec:
        if side not in self._rows:
            self._rows[side] = RowCodec(self.codec.key_type if side == KEY else self.codec.value_type)
        return self._rows[side]


def matcher(codec: StateCodec, subject: Subject) -> Matcher:
    """Return the matcher of a subject in a family.

    Raises:
        Corrupt: The family has no schema.
    """
    fields = [(KEY, path, type_) for path, type_ in _leaves(codec.key_type)]
    if not subject.any_column:
        fields += [(VALUE, path, type_) for path, type_ in _leaves(codec.value_type)]
    leaves = {
        column: tuple(
            Leaf(side, path, type_, fitting[0])
            for side, path, type_ in fields
            if _meant(column, path) and (fitting := _fitting(given, type_))
        )
        for column, given in subject.values.items()
    }
    needles = tuple(tuple({_needle(leaf) for leaf in fitting}) for fitting in leaves.values())
    return Matcher(codec, leaves, needles, _places(codec.key_type, leaves), _exact_match(codec, leaves))


def unsearched(codec: StateCodec, subject: Subject) -> tuple[str, ...]:
    """Return the columns of a family that cannot be searched: those with several values.

    For a subject with named columns, only columns are returned that may contain a field of such a name.
    """
    sides = [codec.key_type] if subject.any_column else [codec.key_type, codec.value_type]
    return tuple(
        ".".join(path)
        for side in sides
        for path, names in _several(side)
        if subject.any_column or any(name.lower() in names for name in subject.columns)
    )


def _several(type_: Struct, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], set[str]]]:
    """Return the arrays and maps of a row, each with its path and all names of fields in it."""
    collections = []
    for name, kind in zip(type_.names, type_.types, strict=True):
        if isinstance(kind, Struct):
            collections += _several(kind, (*path, name))
        elif isinstance(kind, (Array, Map)):
            collections.append(((*path, name), {name.lower(), *_names_in(kind)}))
    return collections


def _names_in(type_: DataType) -> set[str]:
    if isinstance(type_, Array):
        return _names_in(type_.element)
    if isinstance(type_, Map):
        return _names_in(type_.key) | _names_in(type_.value)
    if isinstance(type_, Struct):
        inner = (_names_in(kind) for kind in type_.types)
        return {name.lower() for name in type_.names}.union(*inner)
    return set()


def _exact_match(codec: StateCodec, leaves: Mapping[str | None, tuple[Leaf, ...]]) -> bytes | None:
    """Return the stored key that consists only of these values; None if there are other fields."""
    by_path = {leaf.path: leaf for fitting in leaves.values() for leaf in fitting if leaf.side == KEY}
    alone = all(len(fitting) == 1 for fitting in leaves.values()) and len(by_path) == len(leaves)
    if not alone or codec.plain_keys is None or set(by_path) != {(name,) for name in codec.key_type.names}:
        return None
    values = {path[0]: leaf.value for path, leaf in by_path.items()}
    return codec.stored_key(RowCodec(codec.key_type).encode(values))


def _places(
    key: Struct, leaves: Mapping[str | None, tuple[Leaf, ...]]
) -> tuple[tuple[tuple[int, bytes], ...], ...] | None:
    """Return the offset and bytes of each column in a key's row; fields are words after the null bits."""
    words = -(-len(key.types) // (8 * _SLOT)) * _SLOT
    places = []
    for fitting in leaves.values():
        mine = [leaf for leaf in fitting if leaf.side == KEY]
        if not all(len(leaf.path) == 1 and is_fixed(leaf.type) for leaf in mine):
            return None
        places.append(tuple((words + _SLOT * key.names.index(leaf.path[0]), _needle(leaf)) for leaf in mine))
    return tuple(places)


def _meant(column: str | None, path: Sequence[str]) -> bool:
    return path[-1] not in _SPARKS if column is None else path[-1].lower() == column.lower()


def _leaves(type_: Struct, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], DataType]]:
    leaves: list[tuple[tuple[str, ...], DataType]] = []
    for name, kind in zip(type_.names, type_.types, strict=True):
        if isinstance(kind, Struct):
            leaves += _leaves(kind, (*path, name))
        elif isinstance(kind, Decimal) or (isinstance(kind, Atom) and kind.name != "void"):
            leaves.append(((*path, name), kind))
    return leaves


def _fitting(given: Any, type_: DataType) -> tuple[Any, ...]:
    """Return the value converted to a type; empty if it does not match."""
    try:
        return (typed(given, type_, written=True),)
    except ValueError:
        return ()


def _needle(leaf: Leaf) -> bytes:
    """Return bytes that occur in every row in which a field has this value.

    A value longer than a word is stored after the words, padded to whole words.
    """
    row = RowCodec(Struct(("x",), (leaf.type,))).encode({"x": leaf.value})
    return row[_SLOT : 2 * _SLOT] if is_fixed(leaf.type) else row[2 * _SLOT :]


# A stored key and its value; a deletion has no value, or an empty one.
Entry = tuple[bytes, "bytes | None"]
# RocksDB's list of its data files, with the first and the last key of each.
_NOTES = "MANIFEST-"
_COUNTERS = (FamilyUse.JOIN_COUNTS, FamilyUse.JOIN_TIMES)


@dataclass(slots=True)
class FileHits:
    """The occurrences in a file.

    Attributes:
        keys: The matching keys, by family, each with whether the file keeps or deletes it.
        by_value: The number of entries that match only by value, or by bytes if their state was dropped.
        bare: Whether RocksDB's own metadata contains the key.
    """

    keys: dict[tuple[str, bytes], bool] = field(default_factory=dict)
    by_value: int = 0
    bare: bool = False

    @property
    def any(self) -> bool:
        """Return whether the subject was found in the file."""
        return self.certain or self.bare

    @property
    def certain(self) -> bool:
        """Return whether at least one match is a row; bytes outside rows may equal the key by chance."""
        return bool(self.keys or self.by_value)

    def take(self, other: FileHits) -> None:
        """Add the findings of a part of the file."""
        self.keys.update(other.keys)
        self.by_value += other.by_value


@dataclass(slots=True)
class StoreHits:
    """The occurrences in a store, by file, with the store's files in order."""

    store: StoreId
    chain: tuple[StoreFile, ...]
    files: dict[StoreFile, FileHits]

    @property
    def any(self) -> bool:
        """Return whether the subject was found in the store."""
        return any(file.any for file in self.files.values())

    @property
    def by_value(self) -> bool:
        """Return whether a row matches by its value and not by its key."""
        return any(file.by_value for file in self.files.values())

    @property
    def traces(self) -> int:
        """Return the number of files that contain the key."""
        return sum(file.any for file in self.files.values())

    def live(self, operator: OperatorStates) -> dict[str, int]:
        """Return the number of current keys by the label of their state, without counters."""
        last: dict[tuple[str, bytes], bool] = {}
        for file in self.chain:
            last.update(self.files[file].keys)
        counts: dict[str, int] = {}
        for (family, _), there in last.items():
            if there and _is_shown(operator, self.store, family):
                label = operator.codec_of(self.store.name, family).name.label
                counts[label] = counts.get(label, 0) + 1
        return counts


class Search:
    """A search for a subject in savepoints.

    Args:
        subject: The key.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._known: dict[tuple[str, ...], FileHits] = {}
        self.columns: set[str] = set()

    def matchers(self, operator: OperatorStates) -> dict[tuple[str, str], Matcher]:
        """Return the matcher of each family of an operator that may contain the subject."""
        matchers = {}
        for codec in operator.declared_codecs():
            if codec.schema is None:
                continue  # no rows were written
            one = matcher(codec, self._subject)
            self.columns |= {str(column) for column, leaves in one.leaves.items() if column and leaves}
            if one.possible:
                matchers[codec.name.store, codec.name.family] = one
        return matchers

    def store(
        self,
        view: SavepointView,
        operator: OperatorStates,
        store: StoreId,
        matchers: Mapping[tuple[str, str], Matcher],
    ) -> StoreHits:
        """Search the files of a store.

        Args:
            view: The savepoint, read as a checkpoint.
            operator: The store's operator.
            store: The identity of the store.
            matchers: The matchers of the operator, from `matchers`.

        Raises:
            Corrupt: A file is damaged.
            Unsupported: A file's format is not supported.
        """
        chain = operator.chain(view, store)
        files = {}
        for file in chain:
            sha256 = view.sha256(file.render())
            known = (sha256, str(operator.operator_id), store.name, *self._forms(operator, store))
            if known not in self._known:
                self._known[known] = self._file(view, operator, file, matchers)
            files[file] = self._known[known]
        return StoreHits(store, chain, files)

    def _forms(self, operator: OperatorStates, store: StoreId) -> tuple[str, ...]:
        """Return the schemas that decide how rows are decoded."""
        return tuple(
            f"{codec.name.family} {codec.schema.key_schema} {codec.schema.value_schema}"
            for codec in operator.declared_codecs()
            if codec.name.store == store.name and codec.schema is not None
        )

    def _file(
        self,
        view: SavepointView,
        operator: OperatorStates,
        file: StoreFile,
        matchers: Mapping[tuple[str, str], Matcher],
    ) -> FileHits:
        mine = {family: one for (store, family), one in matchers.items() if store == file.store.name}
        if not mine:
            return FileHits()
        path = file.render()
        data = checked(view, path)
        if file.kind is not FileKind.ZIP:
            families = base_families(view, operator, file.store)
            stream = decompressed(data, operator.codec, path)
            if not _may_have(stream, mine, families, operator):
                return FileHits()
            return _hits(_changes(operator, file, stream), mine, families)
        metadata = parse_snapshot(data, path)
        families = Families.of(operator, file.store.name, metadata)
        hits = FileHits()
        keys = _exact(mine, families)
        for shared in metadata.shared:
            if shared.folder == layout.SSTS:
                of = layout.SharedSstFile(file.store, shared.folder, shared.name).render()
                known = (view.sha256(of), str(operator.operator_id), *self._forms(operator, file.store))
                if known not in self._known:
                    self._known[known] = _hits(sst_entries(checked(view, of), of, keys), mine, families)
                hits.take(self._known[known])
        if hits.keys:
            with open_snapshot(view, file, operator.values.delimiter) as snapshot:
                for family, key in hits.keys:
                    stored = families.prefixes[family] + key
                    hits.keys[family, key] = snapshot.get(stored) is not None
        if not hits.any:
            hits.bare = _in_small_files(data, mine.values(), keys)
        return hits


def _exact(matchers: Mapping[str, Matcher], families: Families) -> list[bytes] | None:
    """Return the only stored keys that can match; None if other keys can match."""
    if families.forgotten:
        return None
    keys = []
    for family, prefix in families.prefixes.items():
        one = matchers.get(family)
        if one is not None:
            if one.exact is None:
                return None
            keys.append(prefix + one.exact)
    return keys


def _may_have(
    stream: bytes,
    matchers: Mapping[str, Matcher],
    families: Families,
    operator: OperatorStates,
) -> bool:
    """Return whether records may contain the subject; false negatives are impossible."""
    keys = _exact(matchers, families)
    if keys is None:
        return any(one.may_have(stream, b"") for one in matchers.values())
    if operator.values.checksums:  # a deletion has one before its key
        return any(key in stream for key in keys)
    return any(len(key).to_bytes(4, "big") + key in stream for key in keys)


def _hits(
    entries_of_file: Iterable[Entry],
    matchers: Mapping[str, Matcher],
    families: Families,
) -> FileHits:
    """Return the matching entries; most entries are excluded by a comparison of bytes."""
    hits = FileHits()
    needles = tuple({needle for one in matchers.values() for column in one.needles for needle in column})
    first = needles[0]
    alone = len(needles) == 1
    for stored, value in entries_of_file:
        if alone:
            if first not in stored and (value is None or first not in value):
                continue
        elif not any(needle in stored or (value is not None and needle in value) for needle in needles):
            continue
        family, key = families.split(stored)
        if family is None:
            # The family was dropped, so its schema is unknown, and only the bytes can be compared.
            hits.by_value += any(one.may_have(key, value or b"") for one in matchers.values())
            continue
        one = matchers.get(family)
        if one is None:
            continue
        if one.key_of(key):
            hits.keys[family, key] = value is not None
        elif value and one.may_have(key, value) and one.row_of(key, value):
            hits.by_value += 1
    return hits


def checked(view: SavepointView, path: str) -> bytes:
    """Read a file of a savepoint, and compare it with the manifest.

    Raises:
        Corrupt: The content differs from the manifest, so the original content is unknown.
    """
    data = view.read(path)
    if hash_of(data) != view.sha256(path):
        raise Corrupt(
            "a savepoint cannot be searched, because a file is damaged",
            code="HF-E6002",
            where=full(view.uri, path),
            found=f"SHA-256 {hash_of(data)[:16]}…",
            expected=f"{view.sha256(path)[:16]}…",
            hint=f"list all damage with `holdfast savepoint verify {place_word(view.uri)}`",
        )
    return data


def entries(view: SavepointView, operator: OperatorStates, file: StoreFile) -> Iterator[Entry]:
    """Yield all entries of a store's file, current or not, each with the stored key and its family.

    Raises:
        Corrupt: The file is damaged.
        Unsupported: The format of the file is not supported.
    """
    path = file.render()
    data = checked(view, path)
    if file.kind is not FileKind.ZIP:
        yield from _changes(operator, file, decompressed(data, operator.codec, path))
        return
    for shared in parse_snapshot(data, path).shared:
        if shared.folder == layout.SSTS:
            of = layout.SharedSstFile(file.store, shared.folder, shared.name).render()
            yield from sst_entries(checked(view, of), of)


def _changes(operator: OperatorStates, file: StoreFile, stream: bytes) -> Iterator[Entry]:
    """Yield the entries of decompressed changes, or of a store of the memory provider."""
    deleted = operator.values.deleted
    for _, key, value in records_of(file.kind, stream, file.render()):
        yield deleted(key) if value is None else key, value


def noted_keys(data: bytes) -> list[bytes]:
    """Return the parts of a snapshot that record the first and the last key of its data files."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [archive.read(name) for name in archive.namelist() if name.startswith(_NOTES)]


def _in_small_files(data: bytes, matchers: Iterable[Matcher], exact: Sequence[bytes] | None) -> bool:
    """Return whether a snapshot's metadata files may contain the subject, as bounds of data files."""
    keys = [matcher for matcher in matchers if matcher.by_key]
    notes = noted_keys(data)
    if exact is not None:
        return any(key in note for note in notes for key in exact)
    return any(one.may_have(note, b"") for note in notes for one in keys)


def _is_shown(operator: OperatorStates, store: StoreId, family: str) -> bool:
    name = operator.codec_of(store.name, family).name
    return not name.internal and use_of(operator.name, name.label) not in _COUNTERS
