"""Whether the state that the newest committed batch left can be read by the next."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from holdfast import layout
from holdfast.checkpoints.copy.lost_state import lost_notes, state_evidence
from holdfast.checkpoints.logs.logs import Logs, OperatorFolder, operator_folders, read_operator, readable
from holdfast.checkpoints.stores import (
    Chain,
    StoreFolder,
    UniqueId,
    inferred_name,
    partitions_of,
    store_names,
)
from holdfast.checkpoints.verification.file_checks import RESTORE, ContentCheck
from holdfast.checkpoints.verification.findings import Problem, Remark
from holdfast.config.locations import canonical_uri
from holdfast.errors import HoldfastError
from holdfast.formats.logs.offset_log import OffsetLog
from holdfast.formats.logs.operator_metadata import OperatorMetadata, schema_place, schema_root
from holdfast.formats.providers import PROVIDERS, provider_class
from holdfast.layout import Kind, StoreFile, StoreId

_FOREIGN = "it belongs to another partition, store or batch; put back the right file from a copy"
_NOWHERE = Path("/")


class StateCheck:
    """Checks the state of every operator against the logs.

    Args:
        check: What has read the files, and reads the data files of RocksDB.
        logs: The checkpoint's logs.

    Attributes:
        found: Problems and remarks.
        broken: Paths of snapshots of RocksDB that have lost a data file, or have a damaged one.
        stateful: Whether the query keeps state; None where nothing tells.
        foreign: The provider, if its files are not known here.
    """

    def __init__(self, check: ContentCheck, logs: Logs) -> None:
        self._storage = check.storage
        self._tree = check.tree
        self._logs = logs
        self._content = check.found
        self._check = check
        self._shared: dict[str, str | None] = {}
        self.found: list[Problem | Remark] = []
        self.broken: set[str] = set()
        self.stateful: bool | None = None
        self.foreign: str | None = None

    def run(self) -> None:
        """Look at every operator."""
        newest = self._logs.newest
        if newest is None:
            return
        folders = operator_folders(self._storage, newest)
        offsets = readable(partial(self._logs.offsets, newest))
        for folder in folders:
            self._operator(folder, newest, offsets)
        # Operators of which nothing is there.
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
            what = f"the provider {provider} keeps its state in a way that is not known here"
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
        """An operator of a Spark before 4.0: what it does is told by its state."""
        stores = store_names(None, self._tree.names(f"{layout.STATE}/{operator_id}/0"))
        if not inferred_name(self._storage, operator_id, stores):
            what = (
                "Spark before 4.0 notes no operators, and the state does not tell what operator"
                f" {operator_id} does: it cannot be rescaled"
            )
            self.found.append(Remark(f"{layout.STATE}/{operator_id}", what))

    def _partitions_agree(self, metadata: OperatorMetadata, path: str, count: int, newest: int) -> None:
        # What was planned before may have been for another number, which the batch has changed.
        for batch_id in (planned_id for planned_id in self._logs.offered if planned_id >= newest):
            offsets = readable(partial(self._logs.offsets, batch_id))
            fixed = None if offsets is None else offsets.partitions
            for store in metadata.stores:
                # An operator that gathers everything in one place has one partition, whatever is set.
                if fixed not in (None, store.partitions, count) and 1 not in (store.partitions, count):
                    file = layout.LogFile(layout.Log.OFFSETS, batch_id).render()
                    what = f"it fixes {fixed} partitions, and {path} says {store.partitions}"
                    hint = "put back both from the same copy; with the wrong number keys lose their state"
                    self.found.append(Problem(file, what, hint))
                    return

    def _ids_agree(self, operator_id: int, partitions: int, stores: int, newest: int) -> bool:
        """Whether the commit log names as many files as there are stores."""
        commit = readable(partial(self._logs.commit, newest))
        if commit is None:
            return False
        if commit.state_ids is None or operator_id not in commit.state_ids:
            return True
        given = [len(stores_named) for stores_named in commit.state_ids[operator_id]]
        # The stores of a join that shares one folder are told by the first id alone.
        if len(given) == partitions and all(named >= stores for named in given):
            return True
        file = layout.LogFile(layout.Log.COMMITS, newest).render()
        what = f"it names {given} files for operator {operator_id}, which has {partitions} x {stores} stores"
        self.found.append(Problem(file, what, RESTORE))
        return False

    def _schemas(self, metadata: OperatorMetadata, folder: OperatorFolder) -> None:
        path = folder.metadata_path or ""
        if metadata.version == 1:
            return
        for schema in (schema for store in metadata.stores for schema in store.schema_paths):
            place = schema_place(schema)
            if place is not None and self._tree.has(place) and not self._is_here(schema_root(schema)):
                what = f"it names schemas in {schema_root(schema)}: a restart reads and writes them there"
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
            # One NameNode has two addresses, and several have one name.
            return urlsplit(recorded).path == urlsplit(here).path
        return recorded == here

    def _beyond(self, store: StoreId, newest: int, count: int) -> None:
        names = self._tree.names(store.folder)
        files = (layout.version_file(store, name) for name in names)
        current = [file for file in files if file is not None and file.version == newest + 1]
        if current:
            what = f"batch {newest} wrote it, and operator {store.operator_id} should have {count} partitions"
            self.found.append(
                Problem(current[0].render(), what, "the number of partitions was changed by hand")
            )

    def _store(self, store: StoreId, index: int, newest: int) -> None:
        listing = self._tree.listing(store.folder)
        if listing is None:
            what = f"batch {newest} needs this partition of operator {store.operator_id}, and it is not there"
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
            what = f"batch {newest} left state that cannot be read without it, and it is not there"
            self.found.append(Problem(chain.missing, what, RESTORE))
        self._lineages(folder, known, newest)
        self._data_files(folder, chain, newest)

    def _unique_ids(self, store: StoreId, version: int, known: Mapping[int, str | None]) -> UniqueId:
        """The ids of a version and those before: by the commit log, and before that by lineage."""
        newest = known.get(version)
        if newest is None:
            return lambda _: None
        path = StoreFile(store, version, Kind.CHANGELOG, newest).render()
        before = {built_on.version: built_on.unique_id for built_on in self._content.lineages.get(path, ())}
        return lambda of: known.get(of) or before.get(of)

    def _lineages(self, folder: StoreFolder, known: Mapping[int, str | None], newest: int) -> None:
        """A changelog names the versions before it; the commit log has named them too."""
        for version in range(newest + 1, 0, -1):
            unique = known.get(version)
            if unique is None:
                return
            path = StoreFile(folder.store, version, Kind.CHANGELOG, unique).render()
            lineage = self._content.lineages.get(path)
            if lineage is None:
                continue
            if lineage and lineage[-1].version != version - 1:
                what = f"its lineage ends at version {lineage[-1].version} and not at {version - 1}"
                self._problem(path, what)
                continue
            for link in lineage:
                committed = known.get(link.version)
                if committed is not None and committed != link.unique_id:
                    what = (
                        f"it builds on {link.unique_id} as version {link.version}, committed was {committed}"
                    )
                    self._problem(path, what)
                    break

    def _problem(self, path: str, what: str) -> None:
        self.found.append(Problem(path, what, _FOREIGN))

    def _data_files(self, folder: StoreFolder, chain: Chain, newest: int) -> None:
        """The data files of each snapshot. An old one that lost some is on its way out, and no damage."""
        needed = {file.render() for file in chain.files}
        for file in folder.files():
            path = file.render()
            snapshot = self._content.snapshots.get(path)
            if snapshot is None or file.version > newest + 1:
                continue
            for shared in snapshot.shared:
                place = layout.SharedFile(folder.store, shared.folder, shared.name).render()
                if place not in self._shared:
                    self._shared[place] = self._check.check_data_file(place, shared.size_bytes)
                what = self._shared[place]
                if what is not None:
                    self.broken.add(path)
                    if path in needed:
                        self.found.append(Problem(place, f"{what}; {path} needs it", RESTORE))
