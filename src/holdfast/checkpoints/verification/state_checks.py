"""The checks that the state of the newest committed batch is complete and in the correct partitions.

An earlier version of Holdfast used a file manager for local checkpoints that did not replace existing files.
Under state-checkpoint format 1, a batch that ran again then kept the state file of its first run, and the
complete file of its second run remained next to it under its temporary name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from holdfast import layout
from holdfast.checkpoints.checkpoint import Tree
from holdfast.checkpoints.copy import lost_notes, state_evidence
from holdfast.checkpoints.logs import Logs, OperatorFolder, operator_folders, read_operator, readable
from holdfast.checkpoints.naming import written_by
from holdfast.checkpoints.state.key_partition import PartitionCheck
from holdfast.checkpoints.state.rocksdb import Families
from holdfast.checkpoints.state.states import OperatorStates, StateCodec, StateName
from holdfast.checkpoints.stores import (
    Chain,
    StoreFolder,
    UniqueId,
    inferred_name,
    partitions_of,
    store_names,
)
from holdfast.checkpoints.verification.file_checks import RESTORE, ContentCheck, Problem, Remark
from holdfast.config.checks import canonical_uri
from holdfast.config.spark_defects import Damage, causes
from holdfast.errors import Corrupt, HoldfastError, NotFound, Unsupported
from holdfast.formats.files.compression import READABLE, decompressed
from holdfast.formats.files.records import records_of
from holdfast.formats.files.snapshot import SharedFile, SnapshotMetadata, parse_snapshot
from holdfast.formats.logs.batch_logs import PROVIDER, OffsetLog
from holdfast.formats.logs.operator_metadata import OperatorMetadata, schema_place, schema_root
from holdfast.formats.providers import PROVIDERS, provider_class
from holdfast.layout import FileKind, StoreFile, StoreId
from holdfast.quantities import counted
from holdfast.storage.port import Storage

_GUIDE: Final = "docs/guides/repeated-batches.md"


def find_left_files(storage: Storage, tree: Tree, codec: str, newest: int) -> Iterator[Remark]:
    """Report complete state files of committed batches under temporary names, in one remark.

    Files that equal the one in use and files truncated by a killed process are not reported.

    Args:
        storage: The checkpoint.
        tree: The checkpoint's folders.
        codec: The compression codec of state files.
        newest: The newest committed batch.
    """
    left = []
    for path, place in tree.places():
        target = layout.left_state_file(place)
        if target is None or target.version > newest + 1:
            continue
        in_place = tree.has(target.render())
        if target.kind.whole and not in_place:
            continue  # a running query also writes snapshots of committed versions
        data = _read(storage, path)
        if data is None or not _is_whole(data, target, codec, path):
            continue
        if in_place and data == _read(storage, target.render()):
            continue
        left.append((path, target))
    if not left:
        return
    path, target = left[0]
    is_in_place = tree.has(target.render())
    relation = f"differs from {target.name}" if is_in_place else f"has no {target.name} next to it"
    more = f" ({counted(len(left) - 1, 'more such file')})" if len(left) > 1 else ""
    yield Remark(
        path,
        (
            f"batch {target.version - 1} ran more than once, and the whole state file of one run "
            f"{relation}{more}: an earlier Holdfast kept the state of the first run on local disks, so "
            f"the state may be wrong; {_GUIDE} explains how to check"
        ),
    )


def _is_whole(data: bytes, target: StoreFile, codec: str, path: str) -> bool:
    try:
        if target.kind is FileKind.ZIP:
            parse_snapshot(data, path)
        elif codec not in READABLE:
            return False
        else:
            deque(records_of(target.kind, decompressed(data, codec, path), path), maxlen=0)
    except (Corrupt, Unsupported):
        return False
    return True


def _read(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except NotFound:
        return None


_EXCHANGED: Final = (
    "restore the right file from a copy, or restore a savepoint or an undamaged batch; do not start the"
    " query on this checkpoint"
)

# For so few keys, loading numpy would take longer than hashing the keys without it.
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class _Sample:
    """The correct partitions of the sampled keys of one state in one file.

    Attributes:
        path: The file.
        partition: The partition of its folder.
        belonging: The correct partition of each key.
    """

    path: str
    partition: int
    belonging: tuple[int, ...]

    @property
    def is_right(self) -> bool:
        return set(self.belonging) == {self.partition}

    @property
    def is_mixed(self) -> bool:
        return len(set(self.belonging)) > 1


def check_placement(
    storage: Storage, logs: Logs, operators: Mapping[int, OperatorStates], check: ContentCheck
) -> Iterator[Problem]:
    """Check that a sample of each file's keys belongs to the file's partition.

    Only files of batches with the same number of partitions as the newest one are compared. A state whose
    keys are in wrong partitions everywhere, without a pattern, is skipped, because Spark did not place them.

    Args:
        storage: The checkpoint.
        logs: The logs of the checkpoint.
        operators: The operators of the checkpoint at the newest batch, by number.
        check: The content check that read the files.
    """
    newest = None if logs.newest is None else readable(partial(logs.offsets, logs.newest))
    if newest is None:
        return
    samples: dict[StateName, list[_Sample]] = {}
    for codec, sample in _samples(storage, logs, newest, operators, check):
        samples.setdefault(codec.name, []).append(sample)
    for found in samples.values():
        if any(sample.is_mixed for sample in found) and not any(
            sample.is_right and len(sample.belonging) > 1 for sample in found
        ):
            continue
        for sample in found:
            if not sample.is_right:
                yield Problem(sample.path, _words(sample), _EXCHANGED)


def _samples(
    storage: Storage,
    logs: Logs,
    newest: OffsetLog,
    operators: Mapping[int, OperatorStates],
    check: ContentCheck,
) -> Iterator[tuple[StateCodec, _Sample]]:
    partitions = PartitionCheck(operators.values(), storage.uri)
    content = check.found
    families: dict[StoreId, Families] = {}
    for path, place in check.tree.places():
        if not isinstance(place, StoreFile) or not _is_alike(logs, newest, place):
            continue
        operator = operators.get(place.store.operator_id)
        if operator is None or place.store.partition >= operator.partitions:
            continue
        if place.store.name not in operator.store_names or path in content.problems:
            continue
        keys = content.keys.get(path, ())
        snapshot = content.snapshots.get(path)
        if place.kind is FileKind.ZIP and snapshot is not None:
            keys = _keys_of_snapshot(check, place, snapshot)
        if not keys:
            continue
        if place.store not in families:
            families[place.store] = _families(operator, place.store, content.snapshots)
        by_state: dict[str, list[bytes]] = {}
        for stored in keys:
            family, key = families[place.store].split(stored)
            if family is not None:
                by_state.setdefault(family, []).append(key)
        for family, own in by_state.items():
            codec = operator.codec_of(place.store.name, family)
            belonging = [
                place
                for start in range(0, len(own), _AT_ONCE)
                for place in partitions.belonging(codec, own[start : start + _AT_ONCE])
            ]
            if belonging:
                yield codec, _Sample(path, place.store.partition, tuple(belonging))


def _is_alike(logs: Logs, newest: OffsetLog, place: StoreFile) -> bool:
    """Return whether the batch of a file ran in the same number of partitions, with the same provider."""
    offsets = readable(partial(logs.offsets, place.version - 1))
    return (
        offsets is not None
        and offsets.partitions == newest.partitions
        and offsets.confs.get(PROVIDER) == newest.confs.get(PROVIDER)
    )


def _keys_of_snapshot(check: ContentCheck, place: StoreFile, snapshot: SnapshotMetadata) -> tuple[bytes, ...]:
    return tuple(
        key
        for shared in snapshot.shared
        for key in check.sample_data_file(
            layout.SharedSstFile(place.store, shared.folder, shared.name), shared.size_bytes
        )
    )


def _families(
    operator: OperatorStates, store: StoreId, snapshots: Mapping[str, SnapshotMetadata]
) -> Families:
    """Return the column families of a store from its newest snapshot, which has those of all earlier ones."""
    own = [
        (place.version, path)
        for path in snapshots
        if isinstance(place := layout.parse(path), StoreFile) and place.store == store
    ]
    newest = snapshots[max(own)[1]] if own else None
    return Families.of(operator, store.name, newest)


def _words(sample: _Sample) -> str:
    wrong = [place for place in sample.belonging if place != sample.partition]
    return (
        f"{len(wrong)} of {len(sample.belonging)} sampled keys belong to partition "
        f"{', '.join(map(str, sorted(set(wrong))))} by Spark's hash, not to partition "
        f"{sample.partition}"
    )


_FOREIGN = "the file belongs to a different partition, store or batch; restore the right file from a copy"
_MIXED: Final = (
    "restore a savepoint or an undamaged batch, do not start the query on this checkpoint, and upgrade Spark"
)
_NOWHERE = Path("/")


class StateCheck:
    """A check of every operator's state against the logs.

    Args:
        check: The content check that read the files, which also reads RocksDB's data files.
        logs: The checkpoint's logs.

    Attributes:
        found: The problems and remarks found.
        broken: The paths of RocksDB snapshots with a missing or damaged data file.
        stateful: Whether the query keeps state; None if unknown.
        foreign: The state store provider, if Holdfast does not support its files; otherwise None.
    """

    def __init__(self, check: ContentCheck, logs: Logs) -> None:
        self._storage = check.storage
        self._tree = check.tree
        self._logs = logs
        self._content = check.found
        self._check = check
        self._shared: dict[str, str | None] = {}
        self._releases: tuple[str, ...] = ()
        self.found: list[Problem | Remark] = []
        self.broken: set[str] = set()
        self.stateful: bool | None = None
        self.foreign: str | None = None

    def run(self) -> None:
        """Check every operator."""
        newest = self._logs.newest
        if newest is None:
            return
        folders = operator_folders(self._storage, newest)
        offsets = readable(partial(self._logs.offsets, newest))
        if offsets is not None:
            record = self._check.record
            self._releases = written_by(offsets.confs, None if record is None else record.spark)
        for folder in folders:
            self._operator(folder, newest, offsets)
        # Operators of which no files exist.
        present = {folder.operator_id for folder in folders}
        evidence = state_evidence(self._storage, self._logs, present, newest, self._check.record)
        for file, what in evidence.lost:
            self.found.append(Problem(file, what, RESTORE))
        if evidence.untold is not None:
            self.found.append(Remark(layout.STATE, evidence.untold))
        self.stateful = evidence.stateful

    def _operator(self, folder: OperatorFolder, newest: int, offsets: OffsetLog | None) -> None:
        metadata = readable(partial(read_operator, self._storage, folder.metadata_path))
        lost = [*lost_notes(self._tree, folder, metadata, offsets)]
        self.found += [Problem(file, what, RESTORE) for file, what in lost]
        if folder.metadata_path is None and not lost:
            self._unnoted(folder.operator_id)
        names = store_names(metadata, self._tree.names(f"{layout.STATE}/{folder.operator_id}/0"))
        count = partitions_of(self._storage, folder, metadata, offsets, newest).count
        if metadata is not None:
            self._schemas(metadata, folder)
            self._partitions_agree(metadata, folder.metadata_path or "", count, newest)
        if not self._ids_agree(folder.operator_id, count, len(names), newest):
            return
        provider = None if offsets is None else provider_class(offsets.confs)
        if provider is not None and provider not in PROVIDERS:
            what = f"state provider {provider} is not supported, so its files were not checked"
            self.found.append(Remark(f"{layout.STATE}/{folder.operator_id}", what))
            self.foreign = provider
            return
        for partition in sorted({*range(count), *folder.partitions}):
            for index, name in enumerate(names):
                store = StoreId(folder.operator_id, partition, name)
                if partition < count:
                    self._store(store, index, newest)
                else:
                    self._beyond(store, newest, count)

    def _unnoted(self, operator_id: int) -> None:
        """Report an operator of Spark before 4.0 whose type cannot be inferred from its state."""
        stores = store_names(None, self._tree.names(f"{layout.STATE}/{operator_id}/0"))
        if not inferred_name(self._storage, operator_id, stores):
            what = (
                f"Spark before 4.0 records no operators, and the type of operator {operator_id} "
                "cannot be inferred from its state: it cannot be rescaled"
            )
            self.found.append(Remark(f"{layout.STATE}/{operator_id}", what))

    def _partitions_agree(self, metadata: OperatorMetadata, path: str, count: int, newest: int) -> None:
        # Earlier batches may have been planned for a different number of partitions.
        for batch_id in (planned_id for planned_id in self._logs.offered if planned_id >= newest):
            offsets = readable(partial(self._logs.offsets, batch_id))
            fixed = None if offsets is None else offsets.partitions
            for store in metadata.stores:
                # An operator without a key has one partition, regardless of the setting.
                if fixed not in (None, store.partitions, count) and 1 not in (store.partitions, count):
                    file = layout.LogFile(layout.Log.OFFSETS, batch_id).render()
                    what = f"the batch has {fixed} partitions, but {path} has {store.partitions}"
                    hint = (
                        "restore both files from the same copy; with the wrong number of partitions, "
                        "keys lose their state"
                    )
                    self.found.append(Problem(file, what, hint))
                    return

    def _ids_agree(self, operator_id: int, partitions: int, stores: int, newest: int) -> bool:
        """Check that the number of files in the commit log equals the number of stores."""
        commit = readable(partial(self._logs.commit, newest))
        if commit is None:
            return False
        if commit.state_ids is None or operator_id not in commit.state_ids:
            return True
        given = [len(stores_named) for stores_named in commit.state_ids[operator_id]]
        # The stores of a join that share one folder are distinguished only by the first id.
        if len(given) == partitions and all(named >= stores for named in given):
            return True
        file = layout.LogFile(layout.Log.COMMITS, newest).render()
        what = (
            f"the commit names {given} files for operator {operator_id}, which has {partitions} x "
            f"{stores} stores"
        )
        self.found.append(Problem(file, what, RESTORE))
        return False

    def _schemas(self, metadata: OperatorMetadata, folder: OperatorFolder) -> None:
        path = folder.metadata_path or ""
        if metadata.version == 1:
            return
        for schema in (schema for store in metadata.stores for schema in store.schema_paths):
            place = schema_place(schema)
            if place is not None and self._tree.has(place) and not self._is_here(schema_root(schema)):
                what = (
                    f"schemas are referenced in {schema_root(schema)}: a restart reads and writes them there"
                )
                self.found.append(Remark(path, what))
                return

    def _is_here(self, root: str | None) -> bool:
        if root is None:
            return False
        try:
            recorded, here = (canonical_uri(each, _NOWHERE) for each in (root, self._storage.uri))
        except HoldfastError:
            return False
        if recorded.startswith("hdfs:") and here.startswith("webhdfs:"):
            # One NameNode may have two addresses, and several may have the same name.
            return urlsplit(recorded).path == urlsplit(here).path
        return recorded == here

    def _beyond(self, store: StoreId, newest: int, count: int) -> None:
        names = self._tree.names(store.folder)
        files = (layout.version_file(store, name) for name in names)
        current = [file for file in files if file is not None and file.version == newest + 1]
        if current:
            what = f"batch {newest} wrote this file, but operator {store.operator_id} has {count} partitions"
            self.found.append(
                Problem(
                    current[0].render(),
                    what,
                    "restore the files of the batch from one copy: the number of partitions was edited",
                )
            )

    def _store(self, store: StoreId, index: int, newest: int) -> None:
        listing = self._tree.listing(store.folder)
        if listing is None:
            what = f"batch {newest} needs this partition of operator {store.operator_id}, but it is missing"
            self.found.append(Problem(store.folder, what, RESTORE))
            return
        known = {
            version: readable(partial(self._logs.unique_id, store, index, version))
            for version in (batch_id + 1 for batch_id in self._logs.committed)
        }
        unique_id = self._unique_ids(store, newest + 1, known)
        names = self._tree.names(store.folder)
        folder = StoreFolder(self._storage, store, listing, self._check.codec, unique_id, names)
        chain = folder.chain(newest + 1)
        if chain.missing is not None:
            what = f"the file is missing, and the state of batch {newest} cannot be read without it"
            self.found.append(Problem(chain.missing, what, RESTORE))
        self._lineages(folder, known, newest)
        self._data_files(folder, chain, newest)

    def _unique_ids(self, store: StoreId, version: int, known: Mapping[int, str | None]) -> UniqueId:
        """Return the ids of a version (from the commit log) and of older ones (from its lineage)."""
        newest = known.get(version)
        if newest is None:
            return lambda _: None
        path = StoreFile(store, version, FileKind.CHANGELOG, newest).render()
        before = {built_on.version: built_on.unique_id for built_on in self._content.lineages.get(path, ())}
        return lambda of: known.get(of) or before.get(of)

    def _lineages(self, folder: StoreFolder, known: Mapping[int, str | None], newest: int) -> None:
        """Check that a changelog's lineage agrees with the commit log."""
        for version in range(newest + 1, 0, -1):
            unique = known.get(version)
            if unique is None:
                return
            path = StoreFile(folder.store, version, FileKind.CHANGELOG, unique).render()
            lineage = self._content.lineages.get(path)
            if lineage is None:
                continue
            if lineage and lineage[-1].version != version - 1:
                what = f"the lineage ends at version {lineage[-1].version}, not at version {version - 1}"
                self._problem(path, what)
                continue
            for link in lineage:
                committed = known.get(link.version)
                if committed is not None and committed != link.unique_id:
                    what = (
                        f"the file builds on {link.unique_id} as version {link.version}, but {committed} "
                        "was committed"
                    )
                    self._problem(path, what)
                    break

    def _problem(self, path: str, what: str) -> None:
        self.found.append(Problem(path, what, _FOREIGN))

    def _data_files(self, folder: StoreFolder, chain: Chain, newest: int) -> None:
        """Check the data files of each snapshot.

        An old snapshot with missing data files is being deleted and is not damaged.
        """
        needed = {file.render() for file in chain.files}
        # The newest first: the end of a data file that a needed snapshot shares with older ones is read once.
        for file in sorted(folder.files(), key=attrgetter("version"), reverse=True):
            path = file.render()
            snapshot = self._content.snapshots.get(path)
            if snapshot is None or file.version > newest + 1:
                continue
            for shared in snapshot.shared:
                place = layout.SharedSstFile(folder.store, shared.folder, shared.name).render()
                if place not in self._shared:
                    self._shared[place] = self._check.check_data_file(place, shared.size_bytes)
                what = self._shared[place]
                if what is None and path in needed:
                    self._mixed(path, place, shared, snapshot)
                elif what is not None:
                    self.broken.add(path)
                    if path in needed:
                        cause = self._cause_of_missing(folder, place)
                        self.found.append(Problem(place, f"{what}, but {path} needs it{cause}", RESTORE))
            if path in needed and snapshot.live is not None:
                listed = {shared.local_name for shared in snapshot.shared}
                for name in sorted(snapshot.live.keys() - listed):
                    self.broken.add(path)
                    self.found.append(Problem(path, f"RocksDB needs {name}, which is not listed", RESTORE))

    def _mixed(self, path: str, place: str, shared: SharedFile, snapshot: SnapshotMetadata) -> None:
        """Check that a data file is the one that RocksDB's manifest means; otherwise RocksDB refuses to open
        the snapshot.
        """
        live = None if snapshot.live is None else snapshot.live.get(shared.local_name)
        if live is None:
            return
        session = None if live.session is None else self._check.session_of(place, shared.size_bytes)
        if live.size_bytes == shared.size_bytes and (session is None or session == live.session):
            return
        self.broken.add(path)
        cause = causes(Damage.MIXED, self._releases)
        what = (
            f"RocksDB refuses this snapshot: its manifest needs the {shared.local_name} of a different run,"
            f" not {place}{cause and f'; {cause}'}"
        )
        self.found.append(Problem(path, what, _MIXED))

    def _cause_of_missing(self, folder: StoreFolder, place: str) -> str:
        """Return the defect of Spark that may have deleted a data file; it occurs with changelogs only."""
        logged = any(file.kind is FileKind.CHANGELOG for file in folder.files())
        cause = causes(Damage.DELETED, self._releases) if logged and not self._tree.has(place) else ""
        return cause and f"; {cause}"
