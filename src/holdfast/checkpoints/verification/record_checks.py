"""What a record of good batches says of a checkpoint besides the bytes of its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from holdfast import layout
from holdfast.checkpoints.logs.logs import Logs
from holdfast.checkpoints.record import Record
from holdfast.checkpoints.tree import Tree
from holdfast.checkpoints.verification.findings import Problem, Remark
from holdfast.checkpoints.verification.store_cleanup import unexplained
from holdfast.formats.files.snapshot import SnapshotMetadata
from holdfast.layout import OperatorMetadataFile, SchemaFile, StoreFile, StoreId

UNLIKE = (
    "put the file back from a savepoint or another copy, and do not start the query before; "
    "what was changed on purpose is taken for good by `holdfast watch --anew`"
)
# The checkpoint as a whole.
WHOLE = "."
_PUT_BACK = (
    "put it back from a savepoint or another copy; a restart that needs it fails, and older batches cannot "
    "be gone back to; what was deleted on purpose is taken for good by `holdfast watch --anew`"
)


# Of the files of one store that are gone, so many are named.
_NAMED = 20


def check_record(
    record: Record, tree: Tree, logs: Logs, snapshots: Mapping[str, SnapshotMetadata]
) -> Iterator[Problem | Remark]:
    """Yield what a checkpoint's batches and files show against the record of its good batches.

    Args:
        record: The record, read before the checkpoint was listed.
        tree: The checkpoint's files.
        logs: The checkpoint's logs.
        snapshots: The content of each RocksDB snapshot, by path.
    """
    recorded, newest = record.batch_id, logs.newest
    if recorded is None:
        return
    if newest is None or newest < recorded:
        file = layout.LogFile(layout.Log.COMMITS, recorded).render()
        end = "is empty" if newest is None else f"ends at {newest}"
        what = f"batch {recorded} was committed, and the commit log {end}"
        hint = (
            "put back what was lost from a savepoint or another copy, or the query does batches again "
            "that its sink has had; if that is meant, `holdfast watch --anew` takes the checkpoint as it is"
        )
        yield Problem(file, what, hint)
    elif newest > recorded:
        what = f"the record of good batches ends at batch {recorded}; what came later is not in it"
        yield Remark(WHOLE, what)
    yield from _gone(record, tree, snapshots)
    unknown = [
        path
        for path, place in tree.places()
        if isinstance(place, StoreFile) and place.version <= recorded + 1 and path not in record.files
    ]
    if record.sealed and newest == recorded and logs.offered[-1:] == (recorded,):
        for path in unknown:
            what = f"it was not there when the query had ended after batch {recorded}"
            hint = (
                "remove it: the query did not write it; `holdfast watch --anew` takes the checkpoint as it is"
            )
            yield Problem(path, what, hint)
    elif unknown:
        what = f"{len(unknown)} state files, such as {unknown[0]}, are not in the record of good batches"
        yield Remark(WHOLE, what)


def unlike_recorded(record: Record, files: Iterable[tuple[str, int, str]]) -> Iterator[Problem]:
    """Find the files that are not what they were when their batches were committed.

    Args:
        record: The record.
        files: Path, size and SHA-256 of each.
    """
    for path, size, sha256 in files:
        noted = record.files.get(path)
        if noted is not None and noted[1] != sha256:
            yield Problem(path, record.difference(path, size, sha256), UNLIKE)


def _gone(
    record: Record, tree: Tree, snapshots: Mapping[str, SnapshotMetadata]
) -> Iterator[Problem | Remark]:
    """Yield the recorded files that are missing, other than those that Spark may have cleaned up."""
    gone: dict[StoreId, list[StoreFile]] = {}
    for path in record.files:
        place = layout.parse(path)
        if tree.has(path):
            continue
        if isinstance(place, StoreFile):
            gone.setdefault(place.store, []).append(place)
        elif isinstance(place, (SchemaFile, OperatorMetadataFile)) and place.batch_id is None:
            yield Problem(path, "it was there when a batch was committed, and it is gone", _PUT_BACK)
    for store in sorted(gone):
        present = _present(tree, store)
        incomplete = {file.render() for file in present if _lacks_data_files(file, tree, snapshots)}
        lost = unexplained(gone[store], present, incomplete)
        files = sorted(lost, key=lambda file: (-file.version, file.name))
        more = len(files) - _NAMED
        for file in files[:_NAMED]:
            what = f"it was there when batch {file.version - 1} was committed, and it is gone"
            if more > 0 and file is files[_NAMED - 1]:
                what += f"; so are {more} older ones"
            yield Problem(file.render(), what, _PUT_BACK)


def _present(tree: Tree, store: StoreId) -> list[StoreFile]:
    files = (layout.version_file(store, name) for name in tree.names(store.folder))
    return [file for file in files if file is not None]


def _lacks_data_files(file: StoreFile, tree: Tree, snapshots: Mapping[str, SnapshotMetadata]) -> bool:
    snapshot = snapshots.get(file.render())
    return snapshot is not None and not all(
        tree.has(layout.SharedFile(file.store, shared.folder, shared.name).render())
        for shared in snapshot.shared
    )
