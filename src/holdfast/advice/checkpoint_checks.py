"""Lint checks over the files of a checkpoint and the newest batches of its query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Final

from holdfast.advice.source.values import CodeLocation, Const, WriterValue
from holdfast.checkpoints.checkpoint import (
    CheckpointReport,
    StatefulOperator,
    read,
    state_bytes,
    unfixed_partitions,
)
from holdfast.checkpoints.logs import Logs, numbers
from holdfast.checkpoints.naming import written_by
from holdfast.checkpoints.state.contents import StoreShares, shares
from holdfast.config.checks import SCHEME, local_path
from holdfast.config.spark_defaults import MEMORY_PROVIDER, ROCKSDB_PROVIDER
from holdfast.config.spark_defects import defects_of
from holdfast.errors import NotFound
from holdfast.formats.logs.table_logs import LOG_DIRECTORY, missing_batch, newest_batch
from holdfast.formats.operators import STREAM_JOIN
from holdfast.formats.providers import provider_class
from holdfast.layout import COMMITS, OFFSETS, StoreId
from holdfast.model import BatchProgress
from holdfast.quantities import rounded_size
from holdfast.storage.port import Storage

# The maximum number of kept batches that are examined.
_SAMPLES: Final = 24


@dataclass(frozen=True, slots=True)
class FileCounts:
    """The number of files of each kind in the first partition of an operator, over all kept versions."""

    snapshots: int
    changelogs: int


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """A checkpoint, with facts derived from several of its batches.

    Attributes:
        checkpoint: The checkpoint at its newest batch.
        sizes: The bytes of each operator's state after some of the kept batches, by batch.
        watermarks: The watermark after the first and the last of these batches; None without one.
        files: The files of each operator.
    """

    checkpoint: CheckpointReport
    sizes: Mapping[int, Mapping[int, int]]
    watermarks: tuple[int | None, int | None]
    files: Mapping[int, FileCounts]


def read_facts(storage: Storage) -> CheckpointFacts:
    """Read the facts of a checkpoint, whether or not its query is running.

    Cost: lists each store's directory, and reads the file sizes of about 24 batches and the index of each
        RocksDB snapshot among them. Does not read the state itself.

    Raises:
        NotFound: The checkpoint does not exist.
        Corrupt: A file that was read is damaged.
        Unavailable: The storage does not answer.
    """
    checkpoint = read(storage)
    if checkpoint.external is not None or not checkpoint.operators:
        return CheckpointFacts(checkpoint, {}, (None, None), {})
    step = max(1, len(checkpoint.committed) // _SAMPLES)
    batches = sorted({*checkpoint.committed[::step], *checkpoint.committed[-1:]})
    sizes = state_bytes(storage, batches, only_whole=True)
    marks = (
        (_watermark_of(storage, min(sizes)), _watermark_of(storage, max(sizes))) if sizes else (None, None)
    )
    return CheckpointFacts(checkpoint, sizes, marks, _files(storage, checkpoint))


def _watermark_of(storage: Storage, batch_id: int) -> int | None:
    try:
        commit = Logs(storage).commit(batch_id)
    except NotFound:
        return None
    return None if commit is None else commit.next_watermark_ms or None


def _files(storage: Storage, checkpoint: CheckpointReport) -> dict[int, FileCounts]:
    found = {}
    for operator in checkpoint.operators:
        names = [
            name
            for store in operator.store_names
            for name in storage.list(StoreId(operator.operator_id, 0, store).folder).names
            if not name.startswith(".")
        ]
        found[operator.operator_id] = FileCounts(
            sum(name.endswith(".zip") for name in names), sum(name.endswith(".changelog") for name in names)
        )
    return found


_STREAMING: Final = "spark.sql.streaming."
_LARGE_HEAP: Final = 100 << 20
_FEWEST_BATCHES: Final = 3
_MANY_PARTITIONS: Final = 32
_FEW_ROWS: Final = 100
_FEW_BYTES: Final = 16 << 10
_GROWTH: Final = 1.2
_UNEVEN: Final = 0.5
_LARGE_STORE: Final = 1 << 20
_LONG_WITHOUT: Final = 10
# Operators that remove no state without a watermark.
_NEED_WATERMARK: Final = frozenset(("dedupe", STREAM_JOIN))
_THIRDS: Final = 3

# The id of a rule, and the observation.
Seen = tuple[str, str]


def checkpoint_findings(facts: CheckpointFacts) -> list[Seen]:
    """Return all findings of a checkpoint, by rule."""
    return sorted({seen for check in CHECKPOINT_CHECKS for seen in check(facts)})


def _settings(facts: CheckpointFacts) -> Iterator[Seen]:
    confs = facts.checkpoint.confs
    if confs.get(f"{_STREAMING}multipleWatermarkPolicy") == "max":
        yield "HF207", "the checkpoint fixes the policy for several watermarks to max"
    if facts.checkpoint.operators and confs.get(f"{_STREAMING}stateStore.rowChecksum.enabled") == "false":
        yield "HF309", "the checkpoint fixes row checksums of state to off"


def _retained(facts: CheckpointFacts) -> Iterator[Seen]:
    seen = retains_few(facts.checkpoint)
    if seen is not None:
        yield "HF307", seen


def _provider(facts: CheckpointFacts) -> Iterator[Seen]:
    checkpoint = facts.checkpoint
    if checkpoint.external is not None or not checkpoint.operators:
        return
    heap = heap_outgrown(checkpoint)
    if heap is not None:
        yield "HF301", heap
    if provider_class(checkpoint.confs) != ROCKSDB_PROVIDER:
        return
    for operator in checkpoint.operators:
        snapshots = without_changelog(facts, operator)
        if snapshots is not None:
            yield "HF308", snapshots
        if operator.format_version == 1:
            yield "HF310", f"{name_of(operator)} has state of checkpoint format 1"
    releases = written_by(checkpoint.confs)
    logged = any(files.changelogs for files in facts.files.values())
    defects = defects_of(releases, changelogs=logged)
    if all(defects_of([release], changelogs=logged) for release in releases):
        yield "HF605", f"Spark {' or '.join(releases)} has {', '.join(defect.issue for defect in defects)}"


def _partitions(facts: CheckpointFacts) -> Iterator[Seen]:
    unfixed = unfixed_partitions(facts.checkpoint)
    if unfixed is not None:
        yield "HF606", f"the checkpoint does not fix the number of partitions, which is {unfixed}"
    yield from _each("HF601", map(tiny_partitions, facts.checkpoint.operators))


def _uneven(facts: CheckpointFacts) -> Iterator[Seen]:
    yield from _each("HF603", map(uneven, shares(facts.checkpoint)))


def _growth(facts: CheckpointFacts) -> Iterator[Seen]:
    yield from _each("HF602", (grown(facts, operator) for operator in facts.checkpoint.operators))


def _watermark(facts: CheckpointFacts) -> Iterator[Seen]:
    checkpoint = facts.checkpoint
    yield from _each("HF604", (lacks_watermark(checkpoint, operator) for operator in checkpoint.operators))


def _each(rule: str, found: Iterable[str | None]) -> Iterator[Seen]:
    return ((rule, seen) for seen in found if seen is not None)


def retains_few(checkpoint: CheckpointReport) -> str | None:
    """Report a checkpoint that keeps fewer batches than a fallback needs."""
    batch_id, kept = checkpoint.batch_id, len(checkpoint.committed)
    if batch_id is None or batch_id < _LONG_WITHOUT or kept >= _FEWEST_BATCHES:
        return None
    return f"only {kept} of {batch_id + 1} batches are kept"


def heap_outgrown(checkpoint: CheckpointReport) -> str | None:
    """Report large state on the heap of the executors."""
    if provider_class(checkpoint.confs) != MEMORY_PROVIDER or checkpoint.size_bytes < _LARGE_HEAP:
        return None
    return f"{rounded_size(checkpoint.size_bytes)} of state is kept on the heap"


def without_changelog(facts: CheckpointFacts, operator: StatefulOperator) -> str | None:
    """Report RocksDB state that is written as a snapshot in each batch."""
    files = facts.files.get(operator.operator_id)
    if files is None or files.snapshots <= 1 or files.changelogs:
        return None
    return f"{name_of(operator)} has {files.snapshots} snapshots and no changelog"


def tiny_partitions(operator: StatefulOperator) -> str | None:
    """Report many partitions that are nearly empty."""
    if operator.gathered or operator.partitions < _MANY_PARTITIONS:
        return None
    rows = operator.base_keys
    if rows is not None and rows < _FEW_ROWS * operator.partitions:
        return f"{name_of(operator)} has {rows:,} rows in {operator.partitions} partitions"
    if rows is None and operator.size_bytes < _FEW_BYTES * operator.partitions:
        return (
            f"{name_of(operator)} has {rounded_size(operator.size_bytes)} in {operator.partitions} partitions"
        )
    return None


def uneven(store: StoreShares) -> str | None:
    """Report a store whose rows are mostly in one partition."""
    largest = store.largest
    if largest is None or len(store.partitions) < 4 or store.bytes < _LARGE_STORE:
        return None
    if store.largest_share < _UNEVEN:
        return None
    return (
        f"partition {largest.partition} of {len(store.partitions)} holds {store.largest_share:.1%} of"
        f" `{store.state_name}`, {rounded_size(store.bytes)}"
    )


def grown(facts: CheckpointFacts, operator: StatefulOperator) -> str | None:
    """Report state that grows without bound."""
    first_mark, last_mark = facts.watermarks
    if last_mark is not None and last_mark != first_mark:
        return None  # time passes, and rows older than the watermark are removed
    batches = sorted(facts.sizes)
    least = least_of_thirds([facts.sizes[batch_id].get(operator.operator_id, 0) for batch_id in batches])
    if least is None or not (least[0] < least[1] < least[2] and least[2] >= least[0] * _GROWTH):
        return None
    why = "no watermark" if last_mark is None else "a watermark that does not move"
    return (
        f"{name_of(operator)} grew from {rounded_size(least[0])} to {rounded_size(least[2])} between"
        f" batches {batches[0]} and {batches[-1]}, with {why}"
    )


def lacks_watermark(checkpoint: CheckpointReport, operator: StatefulOperator) -> str | None:
    """Report an operator that needs a watermark to remove state and has none."""
    if checkpoint.watermark_ms is not None or (checkpoint.batch_id or 0) < _LONG_WITHOUT:
        return None
    if operator.name not in _NEED_WATERMARK:
        return None
    return f"{name_of(operator)} had no watermark up to batch {checkpoint.batch_id}"


def least_of_thirds(series: Sequence[int]) -> tuple[int, int, int] | None:
    """Return the smallest size of each third of a series, which excludes changes that a new base replaces."""
    length = len(series) // _THIRDS
    if length < _THIRDS:
        return None
    return min(series[:length]), min(series[length : 2 * length]), min(series[-length:])


def name_of(operator: StatefulOperator) -> str:
    """Return the name of an operator for a sentence."""
    return f"operator {operator.named.label}"


CHECKPOINT_CHECKS: Final[tuple[Callable[[CheckpointFacts], Iterator[Seen]], ...]] = (
    _settings,
    _retained,
    _provider,
    _partitions,
    _uneven,
    _growth,
    _watermark,
)


def sink_hits(writers: Iterable[WriterValue]) -> Iterator[CodeLocation]:
    """Find file sinks of a program whose log does not match the checkpoint of the query.

    Checks only directories that are literals in the code and exist on this machine. A relative directory is
    resolved against the working directory, as in Spark.
    """
    for writer in writers:
        checkpoint, node = writer.options.get("checkpointlocation", (None, None))
        path, _ = writer.options.get("path", (writer.path, None))
        place, output = _local(checkpoint), _local(path)
        if node is None or place is None or output is None:
            continue
        for rule, look in (("HF413", _ahead), ("HF414", _gap)):
            try:
                seen = look(place, output)
            except (OSError, ValueError):  # an unreadable file is no evidence, and no file has such a name
                continue
            if seen is not None:
                yield CodeLocation(rule, node, seen)


def _ahead(checkpoint: Path, output: Path) -> str | None:
    written = newest_batch(_names(output / LOG_DIRECTORY))
    planned = max(numbers(_names(checkpoint / OFFSETS)), default=-1)
    if written is None or written <= planned:
        return None
    first = planned + 1
    lost = f"batch {first}" if first == written else f"batches {first} to {written}"
    return (
        f"{output} already has batch {written}, but the checkpoint resumes at batch {first}: {lost} would"
        " be lost"
    )


def _gap(checkpoint: Path, output: Path) -> str | None:
    committed = max(numbers(_names(checkpoint / COMMITS)), default=-1)
    names = list(_names(output / LOG_DIRECTORY))
    missing = missing_batch(names, committed + 1)
    written = newest_batch(names)
    if missing is None or (written is not None and written > committed + 1):  # reported by HF413
        return None
    return (
        f"{output} has no entry for batch {missing}, but the checkpoint has committed batch {committed}:"
        " the query would fail at the next compaction of the log"
    )


def _names(log: Path) -> Iterator[str]:
    """Yield the names of a log's files; nothing if the log does not exist."""
    if log.is_dir():
        yield from (file.name for file in log.iterdir())


def _local(given: Any) -> Path | None:
    if not isinstance(given, Const) or not given.whole or not isinstance(given.value, str) or not given.value:
        return None
    if SCHEME.match(given.value) and not given.value.startswith("file:"):
        return None
    return local_path(given.value) or Path(given.value)


_MOUNTS: Final = Path("/proc/mounts")
_IN_MEMORY: Final = frozenset(("tmpfs", "ramfs"))
_OF_CONTAINER: Final = frozenset(("overlay", "aufs"))
_SHARED: Final = frozenset(
    (
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.ceph",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.s3fs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "smb3",
    )
)
_TEMPORARY: Final = tuple(map(PurePosixPath, ("/tmp", "/var/tmp", "/dev/shm")))  # noqa: S108 - searched for
_ESCAPES: Final = (("\\040", " "), ("\\011", "\t"), ("\\134", "\\"))


class Lasting(str, Enum):
    """The durability of a location."""

    SHARED = "shared"
    DISK = "disk"
    CONTAINER = "container"
    TEMPORARY = "temporary"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class CheckpointLocation:
    """The location of a checkpoint.

    Attributes:
        lasting: The durability of the location.
        what: The location as a phrase for messages.
    """

    lasting: Lasting
    what: str


def place_of(uri: str) -> CheckpointLocation:
    """Return the location of an address; for a local path, read its mount."""
    path = local_path(uri)
    if path is None:
        return CheckpointLocation(Lasting.SHARED, f"on {uri.partition(':')[0]}")
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        mounts = ""
    return local_place(PurePosixPath(path), mounts)


def local_place(path: PurePosixPath, mounts: str) -> CheckpointLocation:
    """Return the location of a local path, from the lines of `/proc/mounts`."""
    kind = _file_system(path, mounts)
    if kind in _IN_MEMORY:
        return CheckpointLocation(Lasting.MEMORY, f"on {kind}, which is in memory")
    if kind in _SHARED:
        return CheckpointLocation(Lasting.SHARED, f"on {kind}")
    if any(path.is_relative_to(folder) for folder in _TEMPORARY):
        return CheckpointLocation(
            Lasting.TEMPORARY, "in a temporary directory, which may be emptied at a restart"
        )
    if kind in _OF_CONTAINER:
        return CheckpointLocation(Lasting.CONTAINER, f"on {kind}, which is deleted with its container")
    disk = "on a local disk of this machine" if kind is None else f"on {kind}, a local disk of this machine"
    return CheckpointLocation(Lasting.DISK, disk)


def _file_system(path: PurePosixPath, mounts: str) -> str | None:
    """Return the type of the file system of a path, from the longest mount point that contains it."""
    found: tuple[int, str] | None = None
    for line in mounts.splitlines():
        parts = line.split(" ")
        if len(parts) < 3:
            continue
        point = parts[1]
        for escape, character in _ESCAPES:
            point = point.replace(escape, character)
        if path.is_relative_to(point) and (found is None or len(point) >= found[0]):
            found = len(point), parts[2]
    return None if found is None else found[1]


# The minimum number of batches for a finding.
_FEWEST: Final = 20
_LATE_SHARE: Final = 0.001
_MANY_STATE_ROWS: Final = 1_000
_HEAVY: Final = 0.3
_MANY_KEYED_ROWS: Final = 1_000
_EMPTY_SHARE: Final = 0.9
_COMMIT_SHARE: Final = 0.5
_SLOW_MS: Final = 1_000
# The phases in which Spark writes the logs of a batch.
_NOTING: Final = ("walCommit", "commitOffsets", "commitBatch")


def progress_findings(batches: Sequence[BatchProgress]) -> list[Seen]:
    """Return all findings of the batches of one query, by rule; oldest batch first."""
    return sorted({seen for check in PROGRESS_CHECKS for seen in check(batches)})


def _late(batches: Sequence[BatchProgress]) -> Iterator[Seen]:
    late, rows = sum(each.late_rows for each in batches), sum(each.input_rows for each in batches)
    if late and late >= rows * _LATE_SHARE:
        times = sum(each.late_rows > 0 for each in batches)
        share = f", {late / rows:.1%} of the input" if rows >= late else ""
        dropped = "1 row was" if late == 1 else f"{late:,} rows were"
        yield "HF701", f"{dropped} dropped as late{share}, in {times} of {_span(batches)}"


def _growth_of_state(batches: Sequence[BatchProgress]) -> Iterator[Seen]:
    """Find state whose row count never fell and still grows."""
    worked = [each for each in batches if each.input_rows]
    if len(worked) < _FEWEST:
        return
    names = dict.fromkeys(operator.display_name or operator.name for operator in worked[-1].operators)
    for position, name in enumerate(names):
        rows = [each.operators[position].rows if position < len(each.operators) else None for each in worked]
        counts = [count for count in rows if count is not None]
        removed = sum(each.operators[position].removed for each in worked if position < len(each.operators))
        falls = any(later < earlier for earlier, later in pairwise(counts))
        if len(counts) < len(rows) or removed or falls or counts[-1] < _MANY_STATE_ROWS:
            continue
        middle = counts[len(counts) // 2]
        if counts[0] < middle and counts[-1] >= middle * _GROWTH:
            grew = f"{name} grew from {counts[0]:,} to {counts[-1]:,} rows"
            yield "HF702", f"{grew} in {_span(worked)} with input, and lost none"


def _hot(batches: Sequence[BatchProgress]) -> Iterator[Seen]:
    newest = {
        report.name: report
        for each in batches
        for report in each.skew
        if report.looked_at >= _MANY_KEYED_ROWS
    }
    for report in newest.values():
        if report.heavy and report.heavy[0].share - report.error >= _HEAVY:
            first = report.heavy[0]
            key = ", ".join(str(value) for value in first.key)
            yield (
                "HF703",
                f"key {key} of `{report.name}` had {first.share:.1%} of the rows of the newest batch",
            )


def _commits(batches: Sequence[BatchProgress]) -> Iterator[Seen]:
    worked = [each for each in batches if each.input_rows]
    if len(worked) < _FEWEST:
        return
    whole = sum(each.duration_ms for each in worked)
    noting = sum(each.phases_ms.get(phase, 0) for each in worked for phase in _NOTING)
    if whole and whole >= _SLOW_MS * len(worked) and noting >= whole * _COMMIT_SHARE:
        mean = whole // len(worked)
        yield (
            "HF704",
            (
                f"{noting / whole:.1%} of an average batch of {mean:,} ms was spent writing logs, over"
                f" {_span(worked)}"
            ),
        )


def _stores(batches: Sequence[BatchProgress]) -> Iterator[Seen]:
    """Find stores whose commits take most of a batch.

    Spark sums the times of the tasks of all partitions. The mean over tasks is less than the share of the
    batch's duration, because tasks wait for free cores.
    """
    worked = [each for each in batches if each.input_rows]
    if len(worked) < _FEWEST:
        return
    whole = sum(each.phases_ms.get("addBatch", 0) for each in worked)
    if whole < _SLOW_MS * len(worked):
        return
    commits = sum(
        operator.commit_ms / max(operator.partitions, 1) for each in worked for operator in each.operators
    )
    if commits >= whole * _COMMIT_SHARE:
        share = commits / whole
        yield (
            "HF704",
            f"committing the state of a partition took {share:.1%} of a batch, over {_span(worked)}",
        )


def _empty(batches: Sequence[BatchProgress]) -> Iterator[Seen]:
    if len(batches) < _FEWEST:
        return
    empty = sum(each.input_rows == 0 for each in batches)
    if empty >= len(batches) * _EMPTY_SHARE:
        yield "HF705", f"{empty} of {_span(batches)} had no input"


def _span(batches: Sequence[BatchProgress]) -> str:
    return f"{len(batches)} batches"


PROGRESS_CHECKS: Final[tuple[Callable[[Sequence[BatchProgress]], Iterator[Seen]], ...]] = (
    _late,
    _growth_of_state,
    _hot,
    _commits,
    _stores,
    _empty,
)
