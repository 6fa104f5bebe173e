"""What a record of good batches says of a checkpoint besides the bytes of its files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from holdfast import layout
from holdfast.checkpoints.logs.logs import Logs
from holdfast.checkpoints.record import Record
from holdfast.checkpoints.tree import Tree
from holdfast.checkpoints.verification.findings import Problem, Remark
from holdfast.layout import Kind, OperatorMetadataFile, SchemaFile, StoreFile, StoreId

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


def check_record(record: Record, tree: Tree, logs: Logs) -> Iterator[Problem | Remark]:
    """Batches that the checkpoint has lost or come further by, files that are gone, and that nobody noted."""
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
    yield from _gone(record, tree)
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


def _gone(record: Record, tree: Tree) -> Iterator[Problem | Remark]:
    """Files that were noted, are gone, and that Spark has not cleaned up.

    Spark deletes versions of a store from the oldest on, and never all of them. So a file that is newer than
    one that is still there was taken away by somebody else, and so was the last one of a store.
    """
    lost: dict[StoreId, list[StoreFile]] = {}
    for path in record.files:
        place = layout.parse(path)
        if tree.has(path):
            continue
        if isinstance(place, StoreFile):
            oldest = _oldest(tree, place.store)
            if oldest is None or place.version > oldest:
                lost.setdefault(place.store, []).append(place)
        elif isinstance(place, (SchemaFile, OperatorMetadataFile)) and place.batch_id is None:
            yield Problem(path, "it was there when a batch was committed, and it is gone", _PUT_BACK)
    for store in sorted(lost):
        files = sorted(lost[store], key=lambda file: (-file.version, file.name))
        more = len(files) - _NAMED
        for file in files[:_NAMED]:
            what = f"it was there when batch {file.version - 1} was committed, and it is gone"
            if more > 0 and file is files[_NAMED - 1]:
                what += f"; so are {more} older ones"
            yield Problem(file.render(), what, _PUT_BACK)


def _oldest(tree: Tree, store: StoreId) -> int | None:
    """The oldest version that has not been cleaned up."""
    named = (layout.version_file(store, name) for name in tree.names(store.folder))
    files = [file for file in named if file is not None]
    versions = {file.version for file in files}
    bases = [file.version for file in files if file.kind.whole]
    # The changes before this one go back to the empty store, and need no base.
    first_gap = next(version for version in count(layout.FIRST_VERSION) if version not in versions)

    def left_behind(file: StoreFile) -> bool:
        if file.kind is Kind.CHANGELOG:
            # RocksDB's provider deletes all snapshots that are due before any of the changes.
            return first_gap <= file.version < min(bases, default=0)
        # The memory provider deletes a version's snapshot, and the changes of the same version a turn later.
        alone = versions.isdisjoint((file.version - 1, file.version + 1))
        return file.kind is Kind.DELTA and alone and file.version < max(bases, default=0)

    return min((file.version for file in files if not left_behind(file)), default=None)
