"""The folder of a state store, and the files of each version in it.

A version consists of a base and one change file for each later version. Under state-checkpoint format 2,
several files may exist for one version, because a task that ran twice wrote two; the commit log determines
which of them is valid, and each changelog names its predecessors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast import layout
from holdfast.checkpoints.logs import OperatorFolder, operator_folders, read_operator, readable
from holdfast.checkpoints.naming import name_operators
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.external.view import is_external
from holdfast.formats.files.compression import decompressed
from holdfast.formats.files.records import VersionLineage, parse_head
from holdfast.formats.files.snapshot import SharedFile, SnapshotMetadata, parse_snapshot
from holdfast.formats.logs.batch_logs import OffsetLog
from holdfast.formats.logs.operator_metadata import OperatorMetadata, parse_schema
from holdfast.formats.operators import KeyPlacement, OperatorName, inferred_operator, operator_kind
from holdfast.formats.text import json_object
from holdfast.layout import DEFAULT_STORE, FileKind, StoreFile, StoreId
from holdfast.storage.port import Listing, Storage

UniqueId = Callable[[int], "str | None"]
_BASES = (FileKind.ZIP, FileKind.SNAPSHOT)
_CHANGES = (FileKind.CHANGELOG, FileKind.DELTA)
_LIMIT_KEY = [{"name": "key", "type": "void", "nullable": True, "metadata": {}}]
_SCHEMA = "a state schema"


@dataclass(frozen=True, slots=True)
class Chain:
    """The files of a version, oldest first, and the first required file that is missing."""

    files: tuple[StoreFile, ...]
    missing: str | None


@dataclass(frozen=True, slots=True)
class DamagedFiles:
    """The damaged files of a checkpoint.

    Attributes:
        unreadable: The paths of files that cannot be read. Neither Spark nor a copy needs such a file if an
            older one and the later changes have the same content.
        wrong: The paths of files that can be read but do not contain what the query wrote. Spark does not
            detect this, so a batch that needs such a file cannot be restored.
    """

    unreadable: frozenset[str] = frozenset()
    wrong: frozenset[str] = frozenset()

    def has(self, path: str) -> bool:
        """Return whether a file is in either set."""
        return path in self.unreadable or path in self.wrong


NO_DAMAGE: Final = DamagedFiles()


@dataclass(frozen=True, slots=True)
class NotedOperator:
    """An operator, with the metadata of Spark and Holdfast.

    Attributes:
        folder: The folder of the operator.
        metadata: Spark's metadata; None if there is none.
        named: The names of the operator; `spark_name` is inferred if Spark recorded none.
        store_names: The names of the stores, in the order of the commit log.
    """

    folder: OperatorFolder
    metadata: OperatorMetadata | None
    named: OperatorName
    store_names: tuple[str, ...]


def noted_operators(storage: Storage, newest: int | None) -> list[NotedOperator]:
    """Return the operators that have a folder, by number.

    Args:
        storage: The checkpoint.
        newest: The newest batch whose metadata is used.

    Raises:
        Corrupt: An operator's metadata is damaged.
    """
    folders = operator_folders(storage, newest)
    noted = {folder.operator_id: read_operator(storage, folder.metadata_path) for folder in folders}
    stores = {number: _store_names(storage, number, metadata) for number, metadata in noted.items()}
    spark_names = {
        number: inferred_name(storage, number, stores[number]) if metadata is None else metadata.name
        for number, metadata in noted.items()
    }
    names = name_operators(storage, noted, spark_names, newest)
    return [
        NotedOperator(
            folder, noted[folder.operator_id], names[folder.operator_id], stores[folder.operator_id]
        )
        for folder in folders
    ]


def _store_names(storage: Storage, operator_id: int, metadata: OperatorMetadata | None) -> tuple[str, ...]:
    first = storage.list(f"{layout.STATE}/{operator_id}/0").names if metadata is None else ()
    return store_names(metadata, first)


def inferred_name(storage: Storage, operator_id: int, stores: Sequence[str]) -> str:
    """Return Spark's name for an operator without metadata; empty if it cannot be inferred from the state.

    Cost: reads one small file.
    """
    path = layout.SchemaFile(operator_id, stores[0]).render()
    try:
        return inferred_operator(stores, parse_schema(storage.read(path), path).families, path)
    except (NotFound, Corrupt, Unsupported):
        return ""  # the reader of the schema reports the error


def store_names(metadata: OperatorMetadata | None, found: Iterable[str]) -> tuple[str, ...]:
    """Return an operator's stores, in the order of the commit log.

    Args:
        metadata: The operator's metadata; None if it has none.
        found: The names in the folder of the operator's first partition.
    """
    if metadata is not None and metadata.stores:
        return tuple(store.name for store in metadata.stores)
    known = {layout.OPERATOR_METADATA, layout.SSTS, layout.LOGS}
    names = sorted(name for name in found if "." not in name and name not in known)
    return tuple(names) or (DEFAULT_STORE,)


@dataclass(frozen=True, slots=True)
class Partitions:
    """The number of partitions of an operator's state, and whether it is one because it has no key."""

    count: int
    gathered: bool = False


def partitions_of(
    storage: Storage,
    folder: OperatorFolder,
    metadata: OperatorMetadata | None,
    offsets: OffsetLog | None,
    batch_id: int,
) -> Partitions:
    """Return the number of partitions of an operator's state after a batch.

    An operator without a key is gathered in one task, regardless of the number that Spark records. Spark's
    own repartitioning updates only the offset log, not an operator's metadata of version 1. The number in the
    offset log is used if exactly that number of partitions have a file of the batch, which is not the case
    for a number that was changed manually.

    Cost: reads one small file, and lists each partition if the two numbers disagree.

    Args:
        storage: The checkpoint.
        folder: The operator.
        metadata: The operator's metadata from Spark.
        offsets: The offsets of the batch with its pinned settings.
        batch_id: The batch.
    """
    folders = folder.partitions
    if _is_gathered(storage, folder.operator_id, metadata):
        return Partitions(1, gathered=True)
    if metadata is None or not metadata.stores:
        # Spark before 4.0 records no operators, and all keyed operators have the number of partitions that
        # the query is set to.
        unnoted = None if metadata is not None or offsets is None else offsets.partitions
        return Partitions(unnoted or len(folders))
    noted = Partitions(metadata.stores[0].partitions)
    fixed = None if offsets is None else offsets.partitions
    if fixed is None or fixed == noted.count or fixed > len(folders):
        return noted
    for partition in folders:
        store = StoreId(folder.operator_id, partition, metadata.stores[0].name)
        has = any(file.version == batch_id + 1 for file in _files(store, storage.list(store.folder).names))
        if has != (partition < fixed):
            return noted
    return Partitions(fixed)


def _is_gathered(storage: Storage, operator_id: int, metadata: OperatorMetadata | None) -> bool:
    """Return whether an operator has no key, such as a global aggregate, so that one task has all its state.

    Spark's own repartitioning moves the state of such an operator away from the partition of that task. Cost:
    reads one small file.
    """
    kind = None if metadata is None else operator_kind(metadata.name)
    if kind is not None and kind.placement is KeyPlacement.ONE_PARTITION:
        return True
    if metadata is not None and (metadata.version != 1 or not metadata.stores):
        return False
    store = layout.DEFAULT_STORE if metadata is None else metadata.stores[0].name
    path = layout.SchemaFile(operator_id, store).render()
    try:
        families = parse_schema(storage.read(path), path).families
    except (NotFound, Corrupt, Unsupported):
        return False  # the reader of the schema reports the error
    keys = [json_object(family.key_schema, _SCHEMA, path).get("fields") for family in families]
    # A limit has a single, empty key; with metadata, its type is known by name.
    return all(fields == [] or (metadata is None and fields == _LIMIT_KEY) for fields in keys)


@dataclass(slots=True, eq=False)
class StoreFolder:
    """The folder of a store, listed once; files are read when needed.

    Attributes:
        storage: The checkpoint.
        store: The store.
        listing: The listing of its folder.
        codec: The compression codec of change files.
        unique_id: A function that returns the id under which a version was committed, or None.
        listed: The names in the folder if already known; otherwise each file is looked up by name, and the
            folder is listed only if necessary.
    """

    storage: Storage
    store: StoreId
    listing: Listing
    codec: str
    unique_id: UniqueId
    listed: frozenset[str] | None = None
    _snapshots: dict[str, SnapshotMetadata] = field(default_factory=dict, init=False)

    @property
    def names(self) -> frozenset[str]:
        """The names in the folder, listed when they are first needed."""
        if self.listed is None:
            self.listed = frozenset(self.listing.names)
        return self.listed

    def files(self) -> list[StoreFile]:
        """Return all files of all versions. Cost: parses each name."""
        return list(_files(self.store, self.names))

    def oldest(self) -> int | None:
        """Return the oldest version that has a file. Cost: scans the names."""
        versions = (
            int(name[: name.find("_")] if "_" in name else name[: name.find(".")])
            for name in self.names
            if name[0] in "0123456789" and not name.endswith(layout.CRC)
        )
        return min(versions, default=None)

    def chain(self, version: int, damage: DamagedFiles = NO_DAMAGE) -> Chain:
        """Return the files to read for a version, chosen as Spark does: from the newest base.

        Args:
            version: The version; 0 is the empty store, which needs no files.
            damage: The damaged files. An unreadable base is skipped, as in Spark's automatic repair; any
                other damaged file counts as missing.
        """
        files: list[StoreFile] = []
        left_out: str | None = None
        while version > 0:
            unique, base, change = self._made_by(version, files)
            if base is not None and base.render() in damage.wrong:
                return Chain(tuple(reversed(files)), base.render())
            if base is not None and base.render() in damage.unreadable:
                left_out, base = base.render(), None
            if base is not None:
                files.append(base)
                break
            if change is None:
                lost = left_out or self._lost(version, unique, files).render()
                return Chain(tuple(reversed(files)), lost)
            if damage.has(change.render()):
                return Chain(tuple(reversed(files)), change.render())
            files.append(change)
            version -= 1
        if left_out is not None and files and not self._leads_back_to(files[-1].version, files[0]):
            return Chain(tuple(reversed(files)), left_out)
        return Chain(tuple(reversed(files)), None)

    def made_by(self, version: int) -> list[StoreFile]:
        """Return the files that a batch wrote: a change file, a base, or both."""
        _, *made = self._made_by(version, [])
        return [file for file in made if file is not None]

    def whole(self, newest: int, damage: DamagedFiles) -> frozenset[int]:
        """Return the versions up to `newest` for which `chain` finds all files, computed in one pass.

        Args:
            newest: The newest version to check.
            damage: Damaged files, as in `chain`.
        """
        # For each complete version, the oldest file of its chain, and whether a base was skipped since then.
        good: dict[int, tuple[int, bool]] = {0: (0, False)}
        by_version: dict[int, list[StoreFile]] = {}
        for file in self.files():
            by_version.setdefault(file.version, []).append(file)
        for version in sorted(version for version in by_version if 0 < version <= newest):
            unique = self.unique_id(version)
            own = [file for file in by_version[version] if unique is None or file.unique_id == unique]
            bases = [file for file in own if file.kind.whole]
            if any(base.render() in damage.wrong for base in bases):
                continue
            if any(base.render() not in damage.unreadable for base in bases):
                good[version] = version, False
                continue
            changes = [file for file in own if not file.kind.whole and not damage.has(file.render())]
            if not changes or version - 1 not in good:
                continue
            first, left_out = good[version - 1]
            if not left_out and not bases:
                good[version] = max(first, 1), False
            elif self._leads_back_to(max(first, 1), changes[0]):
                good[version] = max(first, 1), True
        return frozenset(good)

    def _leads_back_to(self, version: int, newest: StoreFile) -> bool:
        """Return whether Spark finds an older base starting from this file.

        With unique ids, Spark looks only for the versions in the lineage of the newest changelog.
        """
        if newest.unique_id is None or newest.kind is not FileKind.CHANGELOG:
            return True
        lineage = readable(lambda: self.lineage(newest))
        if lineage is None:
            return False
        return not lineage or lineage[0].version <= version

    def snapshot(self, file: StoreFile) -> SnapshotMetadata:
        """Return the content of a RocksDB snapshot; read once.

        Raises:
            NotFound: The file is missing.
            Corrupt: The file is damaged.
        """
        path = file.render()
        if path not in self._snapshots:
            self._snapshots[path] = parse_snapshot(self.storage.read(path), path, whole=False)
        return self._snapshots[path]

    def lineage(self, file: StoreFile) -> tuple[VersionLineage, ...]:
        """Return the versions on which a changelog is based. Cost: reads and decompresses the file.

        Raises:
            NotFound: The file is missing.
            Corrupt: The file is damaged.
        """
        path = file.render()
        return parse_head(decompressed(self.storage.read(path), self.codec, path), path).lineage

    def size(self, file: StoreFile) -> int:
        """Return a file's size in bytes; 0 if it is missing."""
        return self.listing.size(file.name) or 0

    def read_bytes(self, chain: Chain) -> int:
        """Return the bytes of a version's files, including RocksDB's data files; missing files count as 0."""
        own = sum(self.size(file) for file in chain.files)
        return own + sum(
            shared.size_bytes
            for file in chain.files
            if file.kind is FileKind.ZIP
            for shared in self._shared(file)
        )

    def new_bytes(self, version: int) -> tuple[int, int]:
        """Return the number and bytes of the files that a batch added, including RocksDB's data files.

        Additions to a database are not counted, because a version there is the whole state.
        """
        count = size = 0
        if is_external(self.storage):
            return count, size
        for file in self.made_by(version):
            count += 1
            size += self.size(file)
            if file.kind is FileKind.ZIP:
                before = {shared.name for shared in self._shared_before(version)}
                added = [shared for shared in self._shared(file) if shared.name not in before]
                count += len(added)
                size += sum(shared.size_bytes for shared in added)
        return count, size

    def _shared(self, file: StoreFile) -> tuple[SharedFile, ...]:
        try:
            return self.snapshot(file).shared
        except NotFound:
            return ()

    def _shared_before(self, version: int) -> tuple[SharedFile, ...]:
        """Return the data files of the newest snapshot before a version."""
        for earlier in range(version - 1, 0, -1):
            made = self.made_by(earlier)
            zips = [file for file in made if file.kind is FileKind.ZIP]
            if zips:
                return self._shared(zips[0])
            if not made:
                break
        return ()

    def _has(self, name: str) -> bool:
        return self.listing.size(name) is not None if self.listed is None else name in self.listed

    def _at(self, version: int, unique: str | None, kinds: tuple[FileKind, FileKind]) -> StoreFile | None:
        for kind in kinds:
            file = StoreFile(self.store, version, kind, unique)
            if self._has(file.name):
                return file
        return None

    def _made_by(
        self, version: int, later: list[StoreFile]
    ) -> tuple[str | None, StoreFile | None, StoreFile | None]:
        """Return the id of a version, its base and its change."""
        unique = self.unique_id(version)
        base, change = self._at(version, unique, _BASES), self._at(version, unique, _CHANGES)
        if unique is None and base is None and change is None:
            unique = self._unique_id_of(version, later)
            if unique is not None:
                base, change = self._at(version, unique, _BASES), self._at(version, unique, _CHANGES)
        return unique, base, change

    def _unique_id_of(self, version: int, later: list[StoreFile]) -> str | None:
        """Return the id of a version that is missing from the commit log but occurs in its files.

        The result is the only id of the version's files, or the id that the next change file names.
        """
        prefix = f"{version}_"
        found = {
            file.unique_id
            for name in self.names
            if name.startswith(prefix) and (file := layout.version_file(self.store, name)) is not None
        }
        if len(found) <= 1:
            return next(iter(found), None)
        if later and later[-1].kind is FileKind.CHANGELOG:
            by_version: Mapping[int, str] = {
                version_id.version: version_id.unique_id for version_id in self.lineage(later[-1])
            }
            return by_version.get(version)
        return None

    def _lost(self, version: int, unique: str | None, later: list[StoreFile]) -> StoreFile:
        """Return the missing file of a version that has no files.

        Spark cleans up from the oldest version, and keeps the base that the oldest remaining version needs.
        Therefore, if no older file exists either, that base is missing.
        """
        present = self.files()
        changelogs = any(file.kind in (FileKind.ZIP, FileKind.CHANGELOG) for file in present)
        base, change = (
            (FileKind.ZIP, FileKind.CHANGELOG)
            if changelogs or not present
            else (FileKind.SNAPSHOT, FileKind.DELTA)
        )
        if version > layout.FIRST_VERSION and later and all(file.version > version for file in present):
            return StoreFile(self.store, version + 1, base, later[-1].unique_id)
        only_bases = all(file.kind.whole for file in present) and bool(present)
        return StoreFile(self.store, version, base if only_bases else change, unique)


def _files(store: StoreId, names: Iterable[str]) -> Iterator[StoreFile]:
    found = (layout.version_file(store, name) for name in names)
    return (file for file in found if file is not None)
