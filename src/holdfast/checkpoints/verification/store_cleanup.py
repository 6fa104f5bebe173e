"""Which files of a state store Spark's own cleanup may have deleted.

Spark cleans up each store on its own, in a maintenance thread that may pause or be killed between two
deletions (`HDFSBackedStateStoreProvider.cleanup` and `RocksDBFileManager.deleteOldVersions`, alike in Spark
3.5 to 4.3):

1. A run lists the folder, chooses a base to keep, and deletes files of versions below that base only. So
   there is a base that is newer than any file that Spark has deleted. Which base a run keeps depends on
   `spark.sql.streaming.minBatchesToRetain`, which no file of a checkpoint records, and not on the unique ids
   of format 2.
2. The heap provider deletes one file of each version, in ascending order: the snapshot, where the version has
   one, else the delta. The delta of a version whose snapshot was deleted stays until a later run.
3. The RocksDB provider deletes data files first, then snapshots in ascending order, then changelogs in the
   order of the listing, which may be any, then checksums. It skips a file whose deletion fails.
4. Maintenance uploads snapshots too, in Spark 4.3 beside the cleanup, so a snapshot may appear batches after
   its changelog. An executor that has lost a partition may upload one after the files around it were deleted;
   the next run deletes it.

So before Spark deletes a file, the version before it can no longer be loaded from a base. A file is missing
without Spark's doing if no newer base exists, or if the version before it can still be loaded. Nothing tells
who has deleted the oldest base of a store, or changelogs of RocksDB below every base: these are not reported.
"""

from __future__ import annotations

from collections.abc import Collection, Container

from holdfast.layout import Kind, StoreFile


def unexplained(
    gone: Collection[StoreFile], present: Collection[StoreFile], incomplete: Container[str] = ()
) -> list[StoreFile]:
    """Return the missing files of one store that Spark's cleanup cannot have deleted.

    Args:
        gone: The recorded files that are missing.
        present: The files that exist.
        incomplete: Paths of existing snapshots that have lost data files. They cannot be loaded.
    """
    changes = {file.version: file.kind for file in present if not file.kind.whole}
    with_changes = bool(changes) or any(not file.kind.whole for file in gone)

    def uploaded_late(base: StoreFile) -> bool:
        return with_changes and changes.keys().isdisjoint((base.version, base.version + 1))

    newest_base = max((file.version for file in present if file.kind.whole), default=0)
    bases = {
        file.version
        for file in present
        if file.kind.whole and file.render() not in incomplete and not uploaded_late(file)
    }
    # Changelogs are deleted in any order, so versions that only changelogs make up prove nothing.
    loadable = {*bases} if Kind.CHANGELOG in changes.values() else {0, *bases}
    for version in sorted(changes):
        if version - 1 in loadable:
            loadable.add(version)
    # The heap provider leaves the delta of a version whose snapshot it has deleted.
    left_behind = {file.version for file in gone if file.kind is Kind.SNAPSHOT}
    spared = loadable - left_behind - {0}

    def is_unexplained(file: StoreFile) -> bool:
        beside_base = not file.kind.whole and file.version in bases
        return file.version >= newest_base or file.version - 1 in spared or beside_base

    first = min((file.version for file in gone if is_unexplained(file)), default=None)
    # Spark deletes newer versions after older ones, so it has not deleted any newer file either.
    return [] if first is None else [file for file in gone if file.version >= first]
