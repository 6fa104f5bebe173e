"""The checks that the logs of a checkpoint are consistent with each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, pairwise

from holdfast import layout
from holdfast.checkpoints.checkpoint import Tree
from holdfast.checkpoints.logs import (
    Logs,
    has_unlisted_names,
    log_files,
    read_twice,
    readable,
    source_folders,
)
from holdfast.checkpoints.verification.file_checks import RESTORE, Problem, Remark, error_sentence
from holdfast.errors import NotFound, Unsupported
from holdfast.formats.logs.batch_logs import CommitLog, OffsetLog, log_offset
from holdfast.formats.logs.table_logs import SeenFile, SourceLog, compact_interval, parse_source
from holdfast.formats.text import foreign_json
from holdfast.storage.port import Storage

# The maximum number of consecutive missing files that are named individually.
_MOST_NAMED = 100
_EDITED = "one of the two was edited or comes from a different time; restore both from the same copy"


def check_logs(tree: Tree, logs: Logs) -> Iterator[Problem | Remark]:
    """Check that both logs are continuous and that neighbouring batches agree."""
    if not tree.has(layout.METADATA) and (logs.offered or logs.committed):
        hint = (
            "restore the file from a copy: sinks identify the query by this id, and Spark needs it to start"
        )
        yield Problem(layout.METADATA, "the file with the query's id is missing", hint)
    stateful = bool(tree.names(layout.STATE))
    yield from _gaps(layout.Log.OFFSETS, logs.offered, stateful)
    yield from _gaps(layout.Log.COMMITS, logs.committed, stateful)
    yield from _ends(logs, stateful)
    yield from _neighbours(logs)


def check_origin(storage: Storage, logs: Logs) -> Iterator[Problem]:
    """Check that a checkpoint created from a savepoint still has the savepoint's batch."""
    try:
        origin = foreign_json(storage.read(layout.ORIGIN))
    except (NotFound, ValueError):
        return
    batch_id = origin.get("batch") if isinstance(origin, dict) else None
    if type(batch_id) is not int or (logs.newest is not None and logs.newest >= batch_id):
        return
    # A savepoint of the previous batch, taken of such a checkpoint, contains nothing of this batch.
    if logs.newest != batch_id - 1 or batch_id in logs.offered:
        what = f"the checkpoint was made at batch {batch_id}, but the commit of that batch is missing"
        yield Problem(layout.LogFile(layout.Log.COMMITS, batch_id).render(), what, RESTORE)


def _gaps(log: layout.Log, batches: Sequence[int], stateful: bool) -> Iterator[Problem | Remark]:
    for before, after in pairwise(batches):
        for batch_id in range(before + 1, after):
            file = layout.LogFile(log, batch_id).render()
            what = f"batch {batch_id} is missing from the log, though it has batches {before} and {after}"
            if batch_id - before > _MOST_NAMED:
                yield Problem(file, f"{what}; all batches up to {after} are missing too", RESTORE)
                break
            if stateful:
                yield Problem(file, what, RESTORE)
            else:
                yield Remark(
                    file,
                    (
                        f"{what}; this is normal under asynchronous progress tracking, otherwise a file "
                        "is missing"
                    ),
                )


def _ends(logs: Logs, stateful: bool) -> Iterator[Problem]:
    yield from _never_committed(logs, stateful)
    if not logs.committed:
        return
    newest = logs.committed[-1]
    offered = logs.offered[-1] if logs.offered else None
    if offered is None or offered < newest:
        file = layout.LogFile(layout.Log.OFFSETS, newest).render()
        what = f"batch {newest} is committed, but the offset log ends " + (
            "before its first batch" if offered is None else f"at batch {offered}"
        )
        yield Problem(
            file,
            what,
            "restore the file from a copy; otherwise Spark reports that a second query is running",
        )
        return
    if stateful and offered > 0 and offered - 1 not in logs.offered:
        file = layout.LogFile(layout.Log.OFFSETS, offered - 1).render()
        yield Problem(
            file, f"batch {offered} cannot start without the offsets of the batch before it", RESTORE
        )


def _never_committed(logs: Logs, stateful: bool) -> Iterator[Problem]:
    """Yield batches with lost commits: Spark plans a batch only after committing the previous one.

    Under asynchronous progress tracking, neither log has every batch, but each batch in the offset log is
    committed before the next one is written, because one thread writes both logs. Continuous processing
    records no settings with its offsets and commits later.
    """
    newest = logs.newest
    pending = [planned_id for planned_id in logs.offered if newest is None or planned_id > newest]
    first = pending[0] if pending else 0
    skipped = len(pending) > 1 or (first > 0 and newest is None) or (stateful and first > (newest or 0) + 1)
    if not pending or not skipped:
        return
    planned = readable(partial(logs.offsets, pending[-1]))
    if planned is not None and planned.fields is None:
        return
    lost = first if newest is None or not stateful else newest + 1
    if newest is None and len(pending) == 1:
        lost = first - 1
    end = "is empty" if newest is None else f"ends at batch {newest}"
    yield Problem(
        layout.LogFile(layout.Log.COMMITS, lost).render(),
        f"batch {pending[-1]} was planned, but the commit log {end}",
        "restore the missing commits from a copy; otherwise Spark repeats committed batches",
    )


def _neighbours(logs: Logs) -> Iterator[Problem]:
    before: tuple[int, OffsetLog] | None = None
    for batch_id in logs.offered:
        offsets = readable(partial(logs.offsets, batch_id))
        if offsets is None:
            before = None
            continue
        if before is not None and before[0] == batch_id - 1:
            yield from _sources_agree(before[1], offsets, batch_id)
            commit = _commit(logs, batch_id - 1)
            if commit is not None:
                yield from _watermarks_agree(before[1], commit, offsets, batch_id)
        own = _commit(logs, batch_id)
        if own is not None and own.next_watermark_ms < offsets.watermark_ms:
            what = (
                f"the commit's watermark {own.next_watermark_ms} is behind the batch's watermark "
                f"{offsets.watermark_ms}"
            )
            yield Problem(layout.LogFile(layout.Log.COMMITS, batch_id).render(), what, _EDITED)
        before = (batch_id, offsets)
    yield from _ids_differ(logs)


def _commit(logs: Logs, batch_id: int) -> CommitLog | None:
    return readable(partial(logs.commit, batch_id)) if batch_id in logs.committed else None


def _watermarks_agree(
    before: OffsetLog, commit: CommitLog, offsets: OffsetLog, batch_id: int
) -> Iterator[Problem]:
    # A batch that rewrites state offline, as a repartition does, runs under the watermark of the previous
    # batch.
    if offsets.watermark_ms in (commit.next_watermark_ms, before.watermark_ms):
        return
    file = layout.LogFile(layout.Log.COMMITS, batch_id - 1).render()
    what = (
        f"the commit sets the watermark {commit.next_watermark_ms}, but batch {batch_id} ran with "
        f"{offsets.watermark_ms}"
    )
    yield Problem(file, what, _EDITED)


def _sources_agree(before: OffsetLog, offsets: OffsetLog, batch_id: int) -> Iterator[Problem]:
    file = layout.LogFile(layout.Log.OFFSETS, batch_id).render()
    if offsets.version == before.version == 1 and len(offsets.offsets) != len(before.offsets):
        what = (
            f"the batch has {len(offsets.offsets)} sources, but the batch before it has {len(before.offsets)}"
        )
        yield Problem(file, what, RESTORE)
        return
    for name, offset in offsets.offsets.items():
        old, new = log_offset(before.offsets.get(name)), log_offset(offset)
        if old is not None and (new is None or new < old):
            now = "has no entry" if new is None else f"is at entry {new}"
            what = f"source {name} {now}, but was at entry {old} in the batch before"
            yield Problem(file, what, _EDITED)


def _ids_differ(logs: Logs) -> Iterator[Problem]:
    """Yield commits that repeat the state ids of the previous batch, although each batch has new ids."""
    commits = {batch_id: _commit(logs, batch_id) for batch_id in logs.committed}
    ids = {batch_id: commit.state_ids for batch_id, commit in commits.items() if commit is not None}
    for before, after in pairwise(logs.committed):
        if ids.get(before) and ids.get(before) == ids.get(after):
            file = layout.LogFile(layout.Log.COMMITS, after).render()
            yield Problem(file, f"the commit names the state files of batch {before}", _EDITED)


def check_sources(storage: Storage, tree: Tree, logs: Logs) -> Iterator[Problem | Remark]:
    """Check that each source with a log has all entries that the offset log refers to."""
    kept = [
        offsets
        for batch_id in logs.offered
        if (offsets := readable(partial(logs.offsets, batch_id))) is not None
    ]
    folders = tree.names(layout.SOURCES)
    needed: dict[str, int] = {}
    twice = read_twice(folders, kept) if kept else []
    for offsets in kept[-2:]:
        if has_unlisted_names(folders, offsets):
            yield Remark(
                layout.SOURCES,
                "the sources have names that the offset log lacks, so their logs are not compared with it; "
                "Spark lists the names if spark.sql.streaming.offsetLog.formatVersion is 2",
            )
            break
        try:
            sources = source_folders(folders, offsets, lambda: kept, storage.uri)
        except Unsupported as error:
            yield Remark(layout.SOURCES, error_sentence(error, layout.SOURCES))
            break
        explained = {*sources.values(), *twice}
        places = [*sources.items(), *((name, name) for name in offsets.offsets if name not in explained)]
        for folder, name in places:
            entry = log_offset(offsets.offsets.get(name))
            if entry is not None and entry >= 0:
                needed[folder] = max(needed.get(folder, -1), entry)
    for name in twice:
        what = (
            f"source {name} has no log and always the offset of a different source: a stream that "
            "is read twice, or a missing log"
        )
        yield Remark(f"{layout.SOURCES}/{name}", what)
    for source, entry in needed.items():
        yield from _complete(tree, source, entry)
    for source in sorted(folders):
        yield from _repeated_alike(storage, tree, source)


def _entries(tree: Tree, source: str) -> tuple[set[int], set[int]]:
    places = log_files(source, tree.names(f"{layout.SOURCES}/{source}"))
    compact = {place.entry for place in places if place.compact}
    return {place.entry for place in places if not place.compact}, compact


def _complete(tree: Tree, source: str, needed: int) -> Iterator[Problem]:
    plain, compact = _entries(tree, source)
    newest = max([needed, *plain, *compact])
    start = max(compact, default=0)
    interval = compact_interval(compact)
    missing = (entry for entry in range(start, newest + 1) if entry not in plain and entry not in compact)
    for entry in islice(missing, _MOST_NAMED):
        place = layout.SourceLogFile(source, entry, (entry + 1) % interval == 0)
        what = f"entry {entry} of source {source} is missing, but the offset log refers to entry {needed}"
        hint = "restore the file from a copy; without it Spark does not know which files it has read"
        yield Problem(place.render(), what, hint)


def _repeated_alike(storage: Storage, tree: Tree, source: str) -> Iterator[Problem]:
    """Check that a compacted file repeats each entry exactly."""
    plain, compact = _entries(tree, source)
    repeated: dict[int, list[SeenFile]] = {}
    for entry in sorted(compact):
        place = layout.SourceLogFile(source, entry, True)
        listed = _seen_files(storage, place)
        for seen in listed:
            repeated.setdefault(seen.entry, []).append(seen)
        if listed and max(seen.entry for seen in listed) != entry:
            yield Problem(place.render(), f"the file ends before entry {entry}", RESTORE)
    for entry in sorted(plain):
        place = layout.SourceLogFile(source, entry)
        own = _seen_files(storage, place)
        if any(seen.entry != entry for seen in own):
            yield Problem(place.render(), f"the file lists files of entries other than {entry}", RESTORE)
        elif own and compact and entry < min(compact) and {*own} != {*repeated.get(entry, ())}:
            file = layout.SourceLogFile(source, min(compact), True).render()
            yield Problem(
                place.render(), f"the file does not list the same files as {file}, which repeats it", _EDITED
            )


def _seen_files(storage: Storage, place: layout.SourceLogFile) -> tuple[SeenFile, ...]:
    path = place.render()
    log: SourceLog | None = readable(lambda: parse_source(storage.read(path), path))
    return (readable(lambda: log.list_files(path)) or ()) if log is not None else ()
