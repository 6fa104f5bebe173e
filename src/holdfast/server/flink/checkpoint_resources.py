"""Flink's resources for the checkpoints and metrics of a job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

from holdfast.checkpoints.checkpoint import CommittedBatch
from holdfast.config.spark_defaults import MEMORY_PROVIDER, ROCKSDB_PROVIDER
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.providers import DATABASES, provider_name
from holdfast.jobs.registry.client import JobDetails
from holdfast.jobs.reports import flink_metrics
from holdfast.model import BatchProgress, JobKind, SavepointNote
from holdfast.server.control_plane import ControlPlane
from holdfast.server.flink.calls import Call, FlinkRefusal, Resource, Vertex, stats, unreadable, vertices

# Flink's default number of shown checkpoints (`web.checkpoints.history`), and Spark's default number of kept
# batches.
SHOWN: Final = 10
LOOKED_AT: Final = 100
_BACKENDS: Final = {
    provider_name(ROCKSDB_PROVIDER): "EmbeddedRocksDBStateBackend",
    provider_name(MEMORY_PROVIDER): "HashMapStateBackend",
    **{provider_name(provider): f"{database}StateBackend" for provider, database in DATABASES.items()},
}


@dataclass(frozen=True, slots=True)
class FlinkCheckpoint:
    """A committed batch, or a savepoint of one, in the form of a Flink checkpoint.

    Attributes:
        number: The checkpoint's id. For a batch it is derived from the batch id: with several queries, the id
            modulo the number of queries is the index of the query.
        vertex: The query.
        began_ms: The time when the batch was planned.
        ended_ms: The time when the batch was committed.
        new_bytes: The bytes of state that the batch added.
        size_bytes: The bytes of state that a restart after the batch reads.
        address: The address of the checkpoint or savepoint.
        savepoint: Whether this is a savepoint.
    """

    number: int
    vertex: Vertex
    began_ms: int
    ended_ms: int
    new_bytes: int
    size_bytes: int
    address: str
    savepoint: bool = False

    def facts(self) -> dict[str, Any]:
        """Return the fields that Flink shows for a checkpoint and for each of its tasks."""
        return {
            "id": self.number,
            "status": "COMPLETED",
            "latest_ack_timestamp": self.ended_ms,
            "checkpointed_size": self.new_bytes,
            "state_size": self.size_bytes,
            "end_to_end_duration": self.ended_ms - self.began_ms,
            "alignment_buffered": 0,
            "processed_data": 0,
            "persisted_data": 0,
            "num_subtasks": self.vertex.parallelism,
            "num_acknowledged_subtasks": self.vertex.parallelism,
        }

    def as_dict(self, *, tasks: bool = False) -> dict[str, Any]:
        """Return the checkpoint in Flink's format."""
        return {
            "className": "completed",
            **self.facts(),
            "is_savepoint": self.savepoint,
            "savepointFormat": "NATIVE" if self.savepoint else None,
            "trigger_timestamp": self.began_ms,
            "checkpoint_type": "SAVEPOINT" if self.savepoint else "CHECKPOINT",
            "tasks": {self.vertex.vertex_id: self.facts()} if tasks else {},
            "external_path": self.address,
            "discarded": False,
        }


def history(call: Call) -> Any:
    """Return the newest checkpoints and their summary."""
    details = call.job(LOOKED_AT)
    nodes = vertices(details)
    done = completed(call.plane, details, nodes)
    saved = savepoints(details, nodes)
    pending = in_progress(call.plane, details, nodes)
    shown = sorted([*done, *saved], key=lambda one: (one.ended_ms, one.number), reverse=True)
    total = sum(node.batches[-1].batch_id + 1 for node in nodes if node.batches) + len(saved)
    failed = details.counts.failed_running
    return {
        "counts": {
            "restored": details.counts.restored,
            "total": total + failed + len(pending),
            "in_progress": len(pending),
            "completed": total,
            "failed": failed,
        },
        "summary": _summary([*done, *saved]),
        "latest": {
            "completed": _first([line for line in shown if not line.savepoint]),
            "savepoint": _first([line for line in shown if line.savepoint]),
            "failed": None,
            "restored": _restored(details, nodes),
        },
        "history": [*pending, *(line.as_dict() for line in shown)][:SHOWN],
    }


def details(call: Call) -> Any:
    """Return one checkpoint with the details of each query."""
    return _checkpoint(call)[1].as_dict(tasks=True)


def subtasks(call: Call) -> Any:
    """Return the size of each partition in a checkpoint; known only for the newest one, from its files."""
    details, one = _checkpoint(call)
    wanted = call.id("vertexid")
    if one.vertex.vertex_id != wanted:
        raise FlinkRefusal(404, f"There is no checkpoint statistics for task {wanted}.")
    partitions = _partitions(call.plane, one)
    took, commit_ms = one.ended_ms - one.began_ms, _commit_ms(details, one)
    spread = partial(stats, percentiles=False)
    nothing = [0] * len(partitions)
    aligned = dict.fromkeys(("buffered", "processed", "persisted", "duration"), stats(nothing))
    return {
        **one.facts(),
        "summary": {
            "checkpointed_size": spread([new for new, _ in partitions]),
            "state_size": spread([size for _, size in partitions]),
            "end_to_end_duration": spread([took for _ in partitions]),
            "checkpoint_duration": {
                "sync": spread([commit_ms for _ in partitions]),
                "async": spread(nothing),
            },
            "alignment": aligned,
            "start_delay": spread(nothing),
        },
        "subtasks": [
            {
                "className": "completed",
                "index": index,
                "ack_timestamp": one.ended_ms,
                "end_to_end_duration": took,
                "checkpointed_size": new,
                "state_size": size,
                "checkpoint": {"sync": commit_ms, "async": 0},
                "alignment": {"buffered": 0, "processed": 0, "persisted": 0, "duration": 0},
                "start_delay": 0,
                "unaligned_checkpoint": False,
                "aborted": False,
                "status": "completed",
            }
            for index, (new, size) in enumerate(partitions)
        ],
    }


def config(call: Call) -> Any:
    """Return a job's checkpoint settings; the interval is the observed one."""
    details = call.job(SHOWN)
    checkpoints = [call.plane.readable(query.checkpoint) for query in details.queries]
    providers = [checkpoint.provider for checkpoint in checkpoints if checkpoint is not None]
    backend = next((_BACKENDS[kind] for kind in providers if kind in _BACKENDS), "HashMapStateBackend")
    return {
        "mode": "exactly_once",
        "interval": _interval(details.batches),
        "timeout": 0,
        "min_pause": 0,
        "max_concurrent": 1,
        "externalization": {
            "enabled": True,
            "delete_on_cancellation": details.status.job.on_cancel == "delete",
        },
        "state_backend": backend,
        "checkpoint_storage": "FileSystemCheckpointStorage",
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": 0,
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": backend == "EmbeddedRocksDBStateBackend",
        "changelog_periodic_materialization_interval": 0,
        "changelog_storage": "filesystem",
    }


def number_of(nodes: Sequence[Vertex], index: int, batch_id: int) -> int:
    """Return the checkpoint id of a query's batch."""
    return batch_id * len(nodes) + index


def completed(plane: ControlPlane, details: JobDetails, nodes: Sequence[Vertex]) -> list[FlinkCheckpoint]:
    """Return the committed batches that are still in a job's checkpoints."""
    shown = []
    for index, vertex in enumerate(nodes):
        uri = vertex.query.checkpoint
        try:
            batches = plane.batches(uri, LOOKED_AT)
            sizes = plane.sizes(uri, tuple(batch.batch_id for batch in batches))
        except (NotFound, Corrupt, Unsupported):
            continue  # no batch exists yet, or `holdfast checkpoint` reports the error
        heard = {batch.batch_id: batch for batch in details.batches_of(vertex.query.name)}
        for batch in batches:
            began, ended = _times(batch, heard.get(batch.batch_id))
            size = sum(sizes.get(batch.batch_id, {}).values())
            number = number_of(nodes, index, batch.batch_id)
            address = f"{uri}@{batch.batch_id}"
            shown.append(FlinkCheckpoint(number, vertex, began, ended, batch.new_bytes, size, address))
    return shown


def savepoints(details: JobDetails, nodes: Sequence[Vertex]) -> list[FlinkCheckpoint]:
    """Return the savepoints of a job."""
    places = {node.query.name: (index, node) for index, node in enumerate(nodes)}
    return [
        _saved(note, places[note.query][1], number_of(nodes, places[note.query][0], note.batch_id))
        for note in details.savepoints
        if note.uri is not None and note.batch_id is not None and note.query in places
    ]


def in_progress(plane: ControlPlane, details: JobDetails, nodes: Sequence[Vertex]) -> list[dict[str, Any]]:
    """Return the batches that are planned but not committed."""
    if details.status.job.state.terminal:
        return []
    shown = []
    for index, vertex in enumerate(nodes):
        checkpoint = plane.readable(vertex.query.checkpoint)
        if checkpoint is None or checkpoint.uncommitted is None:
            continue
        since = max((batch.committed_ms for batch in vertex.batches), default=details.status.job.started_ms)
        number = number_of(nodes, index, checkpoint.uncommitted)
        one = FlinkCheckpoint(number, vertex, since, since, 0, 0, "").as_dict()
        running = {"className": "in_progress", "status": "IN_PROGRESS", "num_acknowledged_subtasks": 0}
        shown.append({**{k: v for k, v in one.items() if k not in ("external_path", "discarded")}, **running})
    return shown


def _saved(note: SavepointNote, vertex: Vertex, number: int) -> FlinkCheckpoint:
    size, new, took = note.size_bytes or 0, note.new_bytes or 0, note.took_ms or 0
    return FlinkCheckpoint(
        number, vertex, note.at_ms - took, note.at_ms, new, size, note.uri or "", savepoint=True
    )


def _checkpoint(call: Call) -> tuple[JobDetails, FlinkCheckpoint]:
    """Return the checkpoint in the path.

    Raises:
        Refused: The checkpoint does not exist.
    """
    number = call.number("checkpointid")
    details = call.job(LOOKED_AT)
    nodes = vertices(details)
    for one in [*completed(call.plane, details, nodes), *savepoints(details, nodes)]:
        if one.number == number:
            return details, one
    raise FlinkRefusal(404, f"Could not find checkpointing statistics for checkpoint {number}.")


def _partitions(plane: ControlPlane, one: FlinkCheckpoint) -> list[tuple[int, int]]:
    """Return the new bytes and all bytes of each partition; empty unless the checkpoint is the newest."""
    checkpoint = plane.readable(one.vertex.query.checkpoint)
    if checkpoint is None or f"{checkpoint.uri}@{checkpoint.batch_id}" != one.address:
        return []
    partitions: dict[int, tuple[int, int]] = dict.fromkeys(range(one.vertex.parallelism), (0, 0))
    for store in plane.stores(checkpoint.uri):
        new, size = partitions.get(store.id.partition, (0, 0))
        partitions[store.id.partition] = (new + store.new_bytes, size + store.size_bytes)
    return [partitions[partition] for partition in sorted(partitions)]


def _commit_ms(details: JobDetails, one: FlinkCheckpoint) -> int:
    """Return the commit time of a batch's stores."""
    for batch in details.batches:
        if batch.query == one.vertex.query.name and one.address.endswith(f"@{batch.batch_id}"):
            return max((operator.commit_ms for operator in batch.operators), default=0)
    return 0


def _times(batch: CommittedBatch, heard: BatchProgress | None) -> tuple[int, int]:
    """Return the start and end of a batch; if its progress is unknown, from the times of its log files."""
    if heard is None:
        return batch.planned_ms, batch.committed_ms or batch.planned_ms
    return heard.committed_ms - heard.duration_ms, heard.committed_ms


def _interval(batches: Sequence[BatchProgress]) -> int:
    """Return the median time between two batches."""
    by_query: dict[str, list[int]] = {}
    for batch in batches:
        by_query.setdefault(batch.query, []).append(batch.committed_ms)
    gaps = sorted(later - former for times in by_query.values() for former, later in pairwise(times))
    return gaps[len(gaps) // 2] if gaps else 0


def _summary(done: Sequence[FlinkCheckpoint]) -> dict[str, Any]:
    nothing = stats([0] * len(done))
    return {
        "checkpointed_size": stats([one.new_bytes for one in done]),
        "state_size": stats([one.size_bytes for one in done]),
        "end_to_end_duration": stats([one.ended_ms - one.began_ms for one in done]),
        "alignment_buffered": nothing,
        "processed_data": nothing,
        "persisted_data": nothing,
    }


def _first(shown: Sequence[FlinkCheckpoint]) -> dict[str, Any] | None:
    return shown[0].as_dict() if shown else None


def _restored(details: JobDetails, nodes: Sequence[Vertex]) -> dict[str, Any] | None:
    """Return the checkpoint from which the running driver resumed."""
    attempt = details.attempts[-1] if details.attempts else None
    if attempt is None or attempt.running_ms is None or not nodes or not nodes[0].batches:
        return None
    before = [batch.batch_id for batch in nodes[0].batches if batch.committed_ms < attempt.running_ms]
    if not before:
        return None
    return {
        "id": number_of(nodes, 0, before[-1]),
        "restore_timestamp": attempt.running_ms,
        "is_savepoint": False,
        "external_path": f"{nodes[0].query.checkpoint}@{before[-1]}",
    }


CHECKPOINT_RESOURCES: Final = (
    Resource("GET", "/jobs/{jobid}/checkpoints", history),
    Resource("GET", "/jobs/{jobid}/checkpoints/config", config),
    Resource("GET", "/jobs/{jobid}/checkpoints/details/{checkpointid}", details),
    Resource("GET", "/jobs/{jobid}/checkpoints/details/{checkpointid}/subtasks/{vertexid}", subtasks),
)


_SEEN: Final = 100
_FRESH_S: Final = 2.0
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_SUMS: Final = ("min", "max", "avg", "sum", "skew")


def job(call: Call) -> Any:
    """Return the names of a job's metrics; with `get`, their values as text."""
    return _requested_values(call, _of_job(call))


def jobs(call: Call) -> Any:
    """Return the metrics of all jobs, aggregated."""
    by_name: dict[str, list[float]] = {}
    for status in call.plane.jobs():
        for name, value in _of_job(Call(call.plane, {"jobid": status.job.job_id})).items():
            if _NUMBER.fullmatch(value):  # a path is not additive
                by_name.setdefault(name, []).append(float(value))
    return _aggregated(call, by_name)


def vertex(call: Call) -> Any:
    """Return the metrics of a query by partition, named `<subtask>.<name>`."""
    subtasks = enumerate(_subtasks(call))
    return _requested_values(
        call, {f"{n}.{name}": text for n, known in subtasks for name, text in known.items()}
    )


def subtask_metrics(call: Call) -> Any:
    """Return the metrics of a query, aggregated over its partitions."""
    chosen = _range(call.query.get("subtasks", ""))
    by_name: dict[str, list[float]] = {}
    for index, known in enumerate(_subtasks(call)):
        if chosen is None or index in chosen:
            for name, value in known.items():
                by_name.setdefault(name, []).append(float(value))
    return _aggregated(call, by_name)


def _of_job(call: Call) -> dict[str, str]:
    details = call.job(_SEEN)
    now = call.plane.clock()
    record = details.status.job
    nodes = vertices(details)
    done = completed(call.plane, details, nodes)
    restarts = details.counts.restarts
    running = details.attempts[-1].running_ms if details.attempts else None
    uptime = -1 if record.state.terminal or running is None else now - running
    committed = sum(node.batches[-1].batch_id + 1 for node in nodes if node.batches)
    values: dict[str, int] = {
        "numRestarts": restarts,
        "fullRestarts": restarts,
        "uptime": uptime,
        "runningTime": uptime,
        "downtime": 0 if record.state.value == "RUNNING" else now - record.updated_ms,
        "numberOfCompletedCheckpoints": committed,
        "totalNumberOfCheckpoints": committed,
        "numberOfFailedCheckpoints": details.counts.failed,
        "numberOfInProgressCheckpoints": 0,
    }
    if done:
        last = max(done, key=lambda one: one.ended_ms)
        values["lastCheckpointSize"] = last.new_bytes
        values["lastCheckpointFullSize"] = last.size_bytes
        values["lastCheckpointDuration"] = last.ended_ms - last.began_ms
        values["lastCheckpointCompletedTimestamp"] = last.ended_ms
    if details.recoveries_ms:
        values["lastRecoveryTime"] = details.recoveries_ms[-1]
    key = ("flink metrics", record.name)
    known: dict[str, str] = {}
    if record.kind is not JobKind.CHECKPOINT:
        known = call.plane.cache.get(key, lambda: flink_metrics(call.plane.home, record.name, now), _FRESH_S)
    return {**known, **{name: str(value) for name, value in values.items()}}


def _subtasks(call: Call) -> list[dict[str, str]]:
    """Return the metrics of each partition; rows are divided evenly, bytes are the sizes of its files."""
    one = call.vertex(_SEEN)[1]
    sizes: Counter[int] = Counter()
    for store in call.plane.stores(one.query.checkpoint):
        sizes[store.id.partition] += store.size_bytes
    rows, rate, busy = _rates(one)
    share = one.parallelism
    return [
        {
            "numRecordsIn": str(rows // share),
            "numRecordsInPerSecond": f"{rate / share:.3f}",
            "busyTimeMsPerSecond": f"{busy:.3f}",
            "idleTimeMsPerSecond": f"{max(0.0, 1000.0 - busy):.3f}",
            "stateSize": str(sizes[index]),
        }
        for index in range(share)
    ]


def _rates(one: Vertex) -> tuple[int, float, float]:
    """Return the number of rows read, the rows per second, and the busy milliseconds per second."""
    rows = sum(batch.input_rows for batch in one.batches)
    if not one.batches:
        return 0, 0.0, 0.0
    began = one.batches[0].committed_ms - one.batches[0].duration_ms
    seconds = max(1, one.batches[-1].committed_ms - began) / 1000
    busy = sum(batch.duration_ms for batch in one.batches) / seconds
    return rows, rows / seconds, min(1000.0, busy)


def _requested_values(call: Call, values: Mapping[str, str]) -> list[dict[str, str]]:
    wanted = call.listed("get")
    if not wanted:
        return [{"id": name} for name in values]
    return [{"id": name, "value": values[name]} for name in wanted if name in values]


def _aggregated(call: Call, values: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    wanted = call.listed("get")
    if not wanted:
        return [{"id": name} for name in values]
    ways = call.listed("agg", ",".join(_SUMS[:4]))
    unknown = [way for way in ways if way not in _SUMS]
    if unknown:
        raise unreadable("query", "agg", unknown[0])
    return [{"id": n, **{way: _sum(way, values[n]) for way in ways}} for n in wanted if values.get(n)]


def _sum(way: str, values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    if way == "skew":  # the deviation from an even distribution, in percent
        spread = sum(abs(value - mean) for value in values) / len(values)
        return 100 * spread / mean if mean else 0.0
    return {"min": min(values), "max": max(values), "avg": mean, "sum": sum(values)}[way]


def _range(text: str) -> set[int] | None:
    """Parse `0-3,5` into numbers; None for all."""
    if not text:
        return None
    chosen: set[int] = set()
    for part in text.split(","):
        matched = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        if matched is None:
            raise unreadable("query", "subtasks", text)
        chosen.update(range(int(matched[1]), int(matched[2] or matched[1]) + 1))
    return chosen


METRIC_RESOURCES: Final = (
    Resource("GET", "/jobs/metrics", jobs),
    Resource("GET", "/jobs/{jobid}/metrics", job),
    Resource("GET", "/jobs/{jobid}/vertices/{vertexid}/metrics", vertex),
    Resource("GET", "/jobs/{jobid}/vertices/{vertexid}/subtasks/metrics", subtask_metrics),
    # No Flink process runs on this machine.
    Resource("GET", "/taskmanagers/metrics", lambda _: []),
    Resource("GET", "/jobmanager/metrics", lambda _: []),
)
