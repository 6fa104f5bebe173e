"""Queries that run without Holdfast, known from the files of their checkpoints alone.

A checkpoint names neither the process of its query nor its rows. A query counts as running while its lock is
held or its batches are recent; one that waits for rows for a long time looks like one that has stopped.
"""

from __future__ import annotations

import datetime as dt
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from holdfast.changes.offsets.positions import SourcePosition, positions_of
from holdfast.checkpoints.checkpoint import (
    CheckpointReport,
    CommittedBatch,
    ListedCheckpoint,
    Tree,
    batch_times,
    history,
    read,
    read_query_id,
    state_bytes,
)
from holdfast.checkpoints.discovery import CHECKPOINTS, CheckpointAddress
from holdfast.checkpoints.logs import Logs
from holdfast.config.checks import local_path
from holdfast.errors import HoldfastError
from holdfast.external.view import open_checkpoint
from holdfast.formats.logs.batch_logs import OffsetLog
from holdfast.jobs.background import Throttle, one_line
from holdfast.jobs.registry.registry import JobRecord, job_id
from holdfast.model import (
    BatchProgress,
    JobKind,
    JobState,
    OperatorProgress,
    PartitionPosition,
    QueryStarted,
    SourceProgress,
)
from holdfast.observe.job_metrics import CHECKPOINT_FILE_BYTES
from holdfast.ownership.checkpoint_lock import Owner, holder, lock_path
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

# The least time between two looks at one directory or checkpoint, whatever the number of readers.
LOOK_S: Final = 1.0
# The share of the time that repeated looks may take; a slow storage is looked at less often.
_SHARE: Final = 0.05
_LONGEST_S: Final = 60.0
_BATCHES: Final = 100
_RECENT: Final = 40
# The number of batches over which the usual interval is computed.
_INTERVALS: Final = 10
# A query is running if its newest batch is not older than this, or than three times the usual interval.
_SILENT_MS: Final = 60_000
# A planned batch is still running if it is not older than this, or than ten times the usual interval.
_UNCOMMITTED_MS: Final = 600_000
_AT_ONCE: Final = 16
_NAME_LENGTH: Final = 64
PROMISE: Final = "unknown: a checkpoint does not describe the sink of its query"


@dataclass(frozen=True, slots=True)
class LogLook:
    """The facts in the logs of a checkpoint; no state is read for them.

    Attributes:
        query_id: The permanent id of the query; empty if unknown.
        offered: The newest planned batch.
        batch_id: The newest committed batch.
        first_ms: The time when the oldest kept batch was planned, in epoch milliseconds.
        planned_ms: The time when the newest planned batch was planned.
        committed_ms: The commit time of the newest committed batch; the time of its planning where the
            storage keeps no times.
        duration_ms: The duration of that batch; None if unknown.
        watermark_ms: The watermark of the next batch.
        interval_ms: The usual time between two batches; None with fewer than two.
        sources: The sources with records that are planned but not committed.
        owner: The process of Holdfast that holds the lock of the checkpoint, as text.
        leads: Whether that process runs the query.
        problem: The error of the last look in one line.
    """

    query_id: str = ""
    offered: int | None = None
    batch_id: int | None = None
    first_ms: int | None = None
    planned_ms: int | None = None
    committed_ms: int | None = None
    duration_ms: int | None = None
    watermark_ms: int | None = None
    interval_ms: int | None = None
    sources: tuple[SourceProgress, ...] = ()
    owner: str | None = None
    leads: bool = False
    problem: str | None = None

    @property
    def last_ms(self) -> int | None:
        """Return the time of the newest sign of life in the logs."""
        return max((at for at in (self.planned_ms, self.committed_ms) if at is not None), default=None)

    def runs(self, now_ms: int) -> bool:
        """Return whether a query seems to be running."""
        if self.leads:
            return True
        if self.last_ms is None:
            return False
        interval_ms = self.interval_ms or 0
        uncommitted = self.offered is not None and self.offered != self.batch_id
        allowed_ms = max(_SILENT_MS, 3 * interval_ms)
        if uncommitted:
            allowed_ms = max(_UNCOMMITTED_MS, 10 * interval_ms)
        return now_ms - self.last_ms <= allowed_ms


class PlainQuery:
    """One query and its checkpoint. Every read is shared by all callers.

    Args:
        uri: The checkpoint's URI.
        home: The state home, which has the locks of checkpoints on other file systems.
        clock: Returns epoch milliseconds.
    """

    def __init__(self, uri: str, home: Path, clock: Callable[[], int]) -> None:
        self.uri = uri
        self.job_id = job_id(uri)
        self._lock_path = lock_path(uri, home)
        self._clock = clock
        self._looking, self._reading = threading.Lock(), threading.Lock()
        self._look: LogLook | None = None
        self._look_pace = Throttle(_SHARE, _LONGEST_S, LOOK_S)
        self._batches: tuple[BatchProgress, ...] | None = None
        self._batches_of: int | None = None
        self._batches_pace = Throttle(_SHARE, _LONGEST_S, LOOK_S)
        self._recent: deque[BatchProgress] = deque(maxlen=_RECENT)

    def look(self) -> LogLook:
        """Return the facts in the logs, read again at most once a second.

        Cost: two listings; two to four small files if a batch was planned or committed since.
        """
        known = self._look
        if known is not None and self._look_pace.wait_s():
            return known
        if not self._looking.acquire(blocking=known is None):
            return known or LogLook()
        try:
            if self._look is None or not self._look_pace.wait_s():
                began = time.monotonic()
                self._look = self._read_logs(self._look or LogLook())
                self._look_pace.took(time.monotonic() - began)
            return self._look
        finally:
            self._looking.release()

    def record(self, name: str) -> JobRecord:
        """Return the query as a job's record, with its state as far as the logs show it."""
        look = self.look()
        runs = look.runs(self._clock())
        last_ms = look.last_ms or 0
        return JobRecord(
            name,
            self.job_id,
            target="",
            checkpoint=self.uri,
            on_cancel="retain",
            state=JobState.RUNNING if runs else JobState.FINISHED,
            reason=self._reason(look, runs=runs),
            started_ms=look.first_ms or last_ms,
            updated_ms=last_ms,
            ended_ms=None if runs else last_ms,
            supervisor_pid=0,
            kind=JobKind.CHECKPOINT,
        )

    @staticmethod
    def _reason(look: LogLook, *, runs: bool) -> str | None:
        if look.problem is not None:
            return look.problem
        if look.owner is not None:
            return f"its lock is held by {look.owner}"
        if runs:
            return None
        return (
            "no batch yet"
            if look.last_ms is None
            else f"no batch since {_utc(look.last_ms):%Y-%m-%d %H:%M:%S} UTC"
        )

    def started(self, name: str) -> QueryStarted:
        """Return the query as a job's only query."""
        return QueryStarted(name, self.look().query_id, "", self.uri, PROMISE)

    def newest(self, name: str) -> list[BatchProgress]:
        """Return the newest committed batch as the logs show it; empty before the first.

        It has operators only if `batches` has read them before.
        """
        look = self.look()
        if look.batch_id is None:
            return []
        operators = self._batches[-1].operators if self._batches else ()
        return [replace(_from_look(name, look), operators=operators)]

    def recent(self, name: str) -> list[BatchProgress]:
        """Return the newest batch and those of the earlier looks, oldest first, without reading state."""
        for batch in self.newest(name):
            if not self._recent or self._recent[-1].batch_id < batch.batch_id:
                self._recent.append(batch)
            elif self._recent[-1].batch_id > batch.batch_id:  # the checkpoint was replaced
                self._recent.clear()
        return [replace(batch, query=name) for batch in self._recent.copy()]

    def batches(self, name: str, limit: int) -> list[BatchProgress]:
        """Return the newest batches with the sizes of their state, oldest first.

        Cost: lists each store's folder once per batch at most, and at most for 5 % of the time.

        Args:
            name: The query's name.
            limit: The number of newest batches.
        """
        newest = self.newest(name)
        if limit <= 0 or not newest:
            return []
        with self._reading:
            moved = self._batches_of != newest[-1].batch_id
            if self._batches is None or (moved and not self._batches_pace.wait_s()):
                began = time.monotonic()
                try:
                    self._batches = tuple(_read_batches(self.uri))
                    self._batches_of = newest[-1].batch_id
                except HoldfastError:  # the page of checkpoints shows the error
                    self._batches = self._batches or ()
                self._batches_pace.took(time.monotonic() - began)
            known = [replace(batch, query=name) for batch in self._batches]
        if not known or known[-1].batch_id < newest[-1].batch_id:
            known += [replace(newest[-1], operators=known[-1].operators if known else ())]
        known[-1] = replace(known[-1], sources=newest[-1].sources)
        return known[-limit:]

    def _read_logs(self, former: LogLook) -> LogLook:
        try:
            owner = holder(self._lock_path)
            leads = owner is not None and not owner.verb
            former = replace(former, owner=None if owner is None else _text(owner), leads=leads, problem=None)
            storage = open_storage(self.uri)
            logs = Logs(storage)
            offered = logs.offered[-1] if logs.offered else None
            query_id = former.query_id or read_query_id(storage, logs)
            if former.query_id and (offered, logs.newest) == (former.offered, former.batch_id):
                return former
            return _look_of(storage, logs, replace(former, query_id=query_id))
        except HoldfastError as error:
            return replace(former, problem=one_line(error))


def _text(owner: Owner) -> str:
    if owner.verb:
        return f"`holdfast {owner.verb}` (process {owner.pid})"
    return f"{owner.job!r} (process {owner.pid}, state home {owner.home})" if owner.job else "a process"


def _look_of(storage: Storage, logs: Logs, former: LogLook) -> LogLook:
    """Return the facts in logs that have changed."""
    offered = logs.offered[-1] if logs.offered else None
    planned = None if offered is None else logs.offsets(offered)
    done = None if logs.newest is None else logs.offsets(logs.newest)
    commit = None if logs.newest is None else logs.commit(logs.newest)
    first_ms, interval_ms = former.first_ms, None
    earlier = logs.offered[max(len(logs.offered) - 1 - _INTERVALS, 0)] if logs.offered else None
    if earlier is not None and offered is not None and earlier < offered and planned is not None:
        before = logs.offsets(earlier)
        if before is not None:
            interval_ms = max(planned.timestamp_ms - before.timestamp_ms, 0) // (offered - earlier)
    if first_ms is None and logs.offered:
        oldest = logs.offsets(logs.offered[0])
        first_ms = None if oldest is None else oldest.timestamp_ms
    committed_ms = duration_ms = None
    if logs.newest is not None and done is not None:
        committed_ms, duration_ms = batch_times(storage, logs.newest, done.timestamp_ms)
        committed_ms = committed_ms or done.timestamp_ms
    return replace(
        former,
        offered=offered,
        batch_id=logs.newest,
        first_ms=first_ms,
        planned_ms=None if planned is None else planned.timestamp_ms,
        committed_ms=committed_ms,
        duration_ms=duration_ms,
        watermark_ms=None if commit is None else commit.next_watermark_ms or None,
        interval_ms=interval_ms,
        sources=() if offered == logs.newest else tuple(_sources(done, planned)),
    )


def _sources(done: OffsetLog | None, planned: OffsetLog | None) -> Iterator[SourceProgress]:
    """Yield the sources whose planned batch has offsets beyond the committed one."""
    if done is None or planned is None:
        return
    before, after = _by_place(done), _by_place(planned)
    for number, name in enumerate(planned.offsets):
        positions = tuple(
            PartitionPosition(topic, partition, before[source, topic, partition], latest)
            for (source, topic, partition), latest in after.items()
            if source == name and (source, topic, partition) in before
        )
        if positions:
            yield SourceProgress(number, name, 0, positions)


def _by_place(offsets: OffsetLog) -> dict[tuple[str, str, int], int]:
    places: dict[tuple[str, str, int], int] = {}
    for position in positions_of(offsets.offsets):
        place = _place_of(position)
        if place is not None and position.next is not None:
            places[place] = position.next
    return places


def _place_of(position: SourcePosition) -> tuple[str, str, int] | None:
    if position.topic is None or position.partition is None:
        return None
    return position.source, position.topic, position.partition


def _from_look(name: str, look: LogLook) -> BatchProgress:
    return BatchProgress(
        query=name,
        batch_id=look.batch_id or 0,
        committed_ms=look.committed_ms or look.planned_ms or 0,
        input_rows=0,
        duration_ms=look.duration_ms or 0,
        watermark=_watermark(look.watermark_ms),
        operators=(),
        interval_ms=None,
        sources=look.sources,
        measured=False,
    )


def _read_batches(uri: str) -> Iterator[BatchProgress]:
    """Yield the kept batches of a checkpoint, whose directories are listed once."""
    storage = open_checkpoint(uri)
    listed = ListedCheckpoint(storage, Tree(storage))
    committed = history(listed, _BATCHES)
    sizes = state_bytes(listed, [batch.batch_id for batch in committed])
    report = read(listed)
    for batch in committed:
        yield _from_files(batch, report, sizes.get(batch.batch_id, {}))


def _from_files(batch: CommittedBatch, report: CheckpointReport, sizes: Mapping[int, int]) -> BatchProgress:
    return BatchProgress(
        query="",
        batch_id=batch.batch_id,
        committed_ms=batch.committed_ms or batch.planned_ms,
        input_rows=0,
        duration_ms=batch.duration_ms or 0,
        watermark=_watermark(batch.watermark_ms),
        operators=tuple(
            OperatorProgress(
                operator.named.label,
                rows=None,
                updated=0,
                removed=0,
                late_rows=0,
                memory_bytes=0,
                commit_ms=0,
                partitions=operator.partitions,
                store={CHECKPOINT_FILE_BYTES: sizes.get(operator.operator_id, 0)},
                spark_name=operator.named.spark_name,
                display_name=operator.named.display_name,
                operator_kind=operator.named.operator_kind,
            )
            for operator in report.operators
        ),
        measured=False,
    )


def _watermark(at_ms: int | None) -> str | None:
    """Return a watermark in Spark's format."""
    return None if not at_ms else f"{_utc(at_ms):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def _utc(at_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.timezone.utc)


class PlainQueries:
    """The queries at some addresses, found again when new checkpoints appear.

    Args:
        addresses: Returns the addresses: checkpoints, directories and patterns.
        home: The state home.
        clock: Returns epoch milliseconds.
    """

    def __init__(
        self, addresses: Callable[[], Collection[str]], home: Path, clock: Callable[[], int]
    ) -> None:
        self.addresses = addresses
        self._home = home
        self._clock = clock
        self._lock = threading.Lock()
        self._places: dict[str, _Place] = {}
        self._queries: dict[str, PlainQuery] = {}

    def named(self, names: Collection[str] = (), checkpoints: Collection[str] = ()) -> dict[str, PlainQuery]:
        """Return the queries by name, in the order of their names.

        Cost: lists the directories of the addresses at most once a second. No checkpoint is read.

        Args:
            names: Names that jobs have, which no query gets.
            checkpoints: Checkpoints of jobs, which are left out with all that is below them.
        """
        used = {uri.rstrip("/") for uri in checkpoints}
        with self._lock:
            uris = [uri for uri in self._uris() if not _is_used(uri, used)]
            for uri in uris:
                self._queries.setdefault(uri, PlainQuery(uri, self._home, self._clock))
            known = {uri: self._queries[uri] for uri in uris}
        return {name: known[uri] for uri, name in sorted(unique_names(uris, names).items(), key=_by_name)}

    def look(self, queries: Collection[PlainQuery]) -> None:
        """Look at the logs of all these queries, several at a time where the storage is remote."""
        remote = [query for query in queries if local_path(query.uri) is None]
        if len(remote) > 1:
            with ThreadPoolExecutor(_AT_ONCE, "holdfast-look") as pool:
                list(pool.map(PlainQuery.look, remote))

    def _uris(self) -> list[str]:
        uris: dict[str, None] = {}
        addresses = dict.fromkeys(self.addresses())
        for address in addresses:
            place = self._places.setdefault(address, _Place(address))
            uris.update(dict.fromkeys(place.find()))
        return list(uris)


class _Place:
    """One address, and the checkpoints found there by the last look."""

    def __init__(self, address: str) -> None:
        self._address = CheckpointAddress(address)
        self._pace = Throttle(_SHARE, _LONGEST_S, LOOK_S)
        self._found: tuple[str, ...] = ()

    def find(self) -> tuple[str, ...]:
        if not self._pace.wait_s():
            began = time.monotonic()
            with suppress(HoldfastError):  # the storage does not answer now: what was found stays
                self._found = self._address.find()
            self._pace.took(time.monotonic() - began)
        return self._found


def unique_names(uris: Sequence[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Return a name for each checkpoint: its directory's name, made unique where that is needed.

    The checkpoint of a pipeline's flow has the name of the flow. Names that several checkpoints or jobs share
    get the name of the directory above in front, and if that is not enough, the first digits of the query's
    id at the end.
    """
    names = {uri: _name(uri, 1) for uri in uris}
    ways: tuple[Callable[[str], str], ...] = (
        lambda uri: _name(uri, 2),
        lambda uri: f"{_name(uri, 1)[:57]}-{job_id(uri)[:6]}",
    )
    for make in ways:
        counts = Counter(names.values()) + Counter(dict.fromkeys(taken, 1))
        names = {uri: make(uri) if counts[name] > 1 else name for uri, name in names.items()}
    return names


def _name(uri: str, segments: int) -> str:
    parts = [part for part in uri.partition("://")[2].split("/") if part]
    if CHECKPOINTS in parts[:-1]:
        parts.pop()  # the version, which a full refresh changes
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts[-segments:])).lstrip("._-")
    return text[-_NAME_LENGTH:].lstrip("._-") or "query"


def _by_name(item: tuple[str, str]) -> str:
    return item[1]


def _is_used(uri: str, used: Collection[str]) -> bool:
    """Return whether a checkpoint is that of a job, or below the directory of a job's checkpoints."""
    parts = uri.split("/")
    return any("/".join(parts[:end]) in used for end in range(len(parts), 3, -1))
