"""Where in the files of a store a key is: in rows that count, and in what is left of others.

A file is looked through entry by entry as it lies on the disk, for what was deleted or overwritten is still
in it. What was found of a file is remembered by its hash: one that many savepoints share is read once.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast import layout
from holdfast.at_rest.erase.matching import Matcher, Subject, matcher
from holdfast.checkpoints.state.families import Families
from holdfast.checkpoints.state.rocksdb import opened
from holdfast.checkpoints.state.rows import base_families
from holdfast.checkpoints.state.states import OperatorStates
from holdfast.config.locations import place_word
from holdfast.errors import Corrupt
from holdfast.formats.files.compression import decompressed
from holdfast.formats.files.records import records_of
from holdfast.formats.files.snapshot import parse_snapshot
from holdfast.formats.files.sst import sst_entries
from holdfast.formats.operators import FamilyUse, use_of
from holdfast.layout import Kind, StoreFile, StoreId
from holdfast.savepoints.view import SavepointView
from holdfast.storage.hashing import hash_of
from holdfast.storage.port import full

# A key as it is stored, and its value; a delete has none, or an empty one.
Entry = tuple[bytes, "bytes | None"]
# RocksDB's list of its data files, with the first and the last key of each.
_NOTES = "MANIFEST-"
_COUNTERS = (FamilyUse.JOIN_COUNTS, FamilyUse.JOIN_TIMES)


@dataclass(slots=True)
class FileHits:
    """What was found in a file.

    Attributes:
        keys: The keys that are of the subject by themselves, by family, each with whether the file leaves it
            there.
        by_value: How many entries are of it by their value alone, or by their bytes where their state is
            no more.
        bare: Whether it is in what RocksDB keeps besides its rows.
    """

    keys: dict[tuple[str, bytes], bool] = field(default_factory=dict)
    by_value: int = 0
    bare: bool = False

    @property
    def any(self) -> bool:
        """Whether anything was found."""
        return self.certain or self.bare

    @property
    def certain(self) -> bool:
        """Whether it was found in a row; what is no row may only look like it."""
        return bool(self.keys or self.by_value)

    def take(self, other: FileHits) -> None:
        """Add what was found in a part of it."""
        self.keys.update(other.keys)
        self.by_value += other.by_value


@dataclass(slots=True)
class StoreHits:
    """What was found in a store: by file, and the files of it in their order."""

    store: StoreId
    chain: tuple[StoreFile, ...]
    files: dict[StoreFile, FileHits]

    @property
    def any(self) -> bool:
        """Whether anything was found."""
        return any(file.any for file in self.files.values())

    @property
    def by_value(self) -> bool:
        """Whether some of it cannot be told by the key."""
        return any(file.by_value for file in self.files.values())

    @property
    def traces(self) -> int:
        """The files in which it was found."""
        return sum(file.any for file in self.files.values())

    def live(self, operator: OperatorStates) -> dict[str, int]:
        """How many of the keys that were found count, by the label of their state; counters are no states."""
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
    """Looks for a subject in savepoints.

    Args:
        subject: Who is meant.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._known: dict[tuple[str, ...], FileHits] = {}
        self.columns: set[str] = set()

    def matchers(self, operator: OperatorStates) -> dict[tuple[str, str], Matcher]:
        """What looks for it in each family of an operator that may have it."""
        matchers = {}
        for codec in operator.known():
            if codec.schema is None:
                continue  # nobody has written into it
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
        """What is in the files of a store.

        Args:
            view: The savepoint as a checkpoint.
            manifest: It.
            operator: The store's operator.
            store: The store.
            matchers: What `matchers` gave for the operator.

        Raises:
            Corrupt: A file is damaged.
            Unsupported: A file is of a kind that is not known here.
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
        """What decides how rows are taken apart."""
        return tuple(
            f"{codec.name.family} {codec.schema.key_schema} {codec.schema.value_schema}"
            for codec in operator.known()
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
        if file.kind is not Kind.ZIP:
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
                of = layout.SharedFile(file.store, shared.folder, shared.name).render()
                known = (view.sha256(of), str(operator.operator_id), *self._forms(operator, file.store))
                if known not in self._known:
                    self._known[known] = _hits(sst_entries(checked(view, of), of, keys), mine, families)
                hits.take(self._known[known])
        if hits.keys:
            with opened(view, file, operator.values.delimiter) as snapshot:
                for family, key in hits.keys:
                    stored = families.prefixes[family] + key
                    hits.keys[family, key] = snapshot.get(stored) is not None
        if not hits.any:
            hits.bare = _in_small_files(data, mine.values(), keys)
        return hits


def _exact(matchers: Mapping[str, Matcher], families: Families) -> list[bytes] | None:
    """The only keys that can be of the subject, as they are stored; None where others can."""
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
    """Whether the bytes of records may hold it; quick, and wrong at times, but never about those that do."""
    keys = _exact(matchers, families)
    if keys is None:
        return any(one.may_have(stream, b"") for one in matchers.values())
    if operator.values.checksums:  # a delete has one before its key
        return any(key in stream for key in keys)
    return any(len(key).to_bytes(4, "big") + key in stream for key in keys)


def _hits(
    entries_of_file: Iterable[Entry],
    matchers: Mapping[str, Matcher],
    families: Families,
) -> FileHits:
    """What is in entries; of nearly all of them a look at their bytes tells that it is not."""
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
            # Its family was dropped, so its schema is unknown: only the bytes can tell.
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
    """Read a file of a savepoint, whose bytes have to be those that the manifest names.

    Raises:
        Corrupt: They are others, so that nobody can say what was in it.
    """
    data = view.read(path)
    if hash_of(data) != view.sha256(path):
        raise Corrupt(
            "a savepoint is damaged, and cannot be searched",
            where=full(view.uri, path),
            found=f"SHA-256 {hash_of(data)[:16]}…",
            expected=f"{view.sha256(path)[:16]}…",
            hint=f"`holdfast savepoint verify {place_word(view.uri)}` names all damage",
        )
    return data


def entries(view: SavepointView, operator: OperatorStates, file: StoreFile) -> Iterator[Entry]:
    """Every entry of a file of a store, whether it counts or not: keys as they are stored, with their family.

    Raises:
        Corrupt: The file is damaged.
        Unsupported: It is of a kind that is not known here.
    """
    path = file.render()
    data = checked(view, path)
    if file.kind is not Kind.ZIP:
        yield from _changes(operator, file, decompressed(data, operator.codec, path))
        return
    for shared in parse_snapshot(data, path).shared:
        if shared.folder == layout.SSTS:
            of = layout.SharedFile(file.store, shared.folder, shared.name).render()
            yield from sst_entries(checked(view, of), of)


def _changes(operator: OperatorStates, file: StoreFile, stream: bytes) -> Iterator[Entry]:
    """The same of a file of changes, or of a store in memory, unpacked."""
    deleted = operator.values.deleted
    for _, key, value in records_of(file.kind, stream, file.render()):
        yield deleted(key) if value is None else key, value


def noted_keys(data: bytes) -> list[bytes]:
    """The lists in a snapshot that note the first and the last key of its data files."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [archive.read(name) for name in archive.namelist() if name.startswith(_NOTES)]


def _in_small_files(data: bytes, matchers: Iterable[Matcher], exact: Sequence[bytes] | None) -> bool:
    """Whether a snapshot's own files may hold it: the first and last keys of data files are noted there."""
    keys = [matcher for matcher in matchers if matcher.by_key]
    notes = noted_keys(data)
    if exact is not None:
        return any(key in note for note in notes for key in exact)
    return any(one.may_have(note, b"") for note in notes for one in keys)


def _is_shown(operator: OperatorStates, store: StoreId, family: str) -> bool:
    name = operator.codec_of(store.name, family).name
    return not name.internal and use_of(operator.name, name.label) not in _COUNTERS
