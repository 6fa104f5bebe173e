"""Flink's metrics of a job, worked out of its newest batches."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.jobs.monitoring.flink_metrics import flink_metrics
from holdfast.server.flink.calls import Call, Resource, unreadable
from holdfast.server.flink.checkpoint_resources import completed
from holdfast.server.flink.vertices import Vertex, vertices

_SEEN: Final = 100
_FRESH_S: Final = 2.0
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_SUMS: Final = ("min", "max", "avg", "sum", "skew")


def job(call: Call) -> Any:
    """Names of metrics; with `get` their values, which are texts."""
    return _asked(call, _of_job(call))


def jobs(call: Call) -> Any:
    """The metrics of all jobs, added up."""
    by_name: dict[str, list[float]] = {}
    for status in call.plane.jobs():
        for name, value in _of_job(Call(call.plane, {"jobid": status.job.job_id})).items():
            if _NUMBER.fullmatch(value):  # a path is no sum
                by_name.setdefault(name, []).append(float(value))
    return _aggregated(call, by_name)


def vertex(call: Call) -> Any:
    """The metrics of a query, by partition: `<subtask>.<name>`."""
    subtasks = enumerate(_subtasks(call))
    return _asked(call, {f"{n}.{name}": text for n, known in subtasks for name, text in known.items()})


def subtask_metrics(call: Call) -> Any:
    """The metrics of a query, with its partitions added up."""
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
    known = call.plane.cache.get(key, lambda: flink_metrics(call.plane.home, record.name, now), _FRESH_S)
    return {**known, **{name: str(value) for name, value in values.items()}}


def _subtasks(call: Call) -> list[dict[str, str]]:
    """What is known of each partition: rows are shared out evenly, bytes are counted in its files."""
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
    """Rows that were read, rows a second, and milliseconds of each second at work."""
    rows = sum(batch.input_rows for batch in one.batches)
    if not one.batches:
        return 0, 0.0, 0.0
    began = one.batches[0].committed_ms - one.batches[0].duration_ms
    seconds = max(1, one.batches[-1].committed_ms - began) / 1000
    busy = sum(batch.duration_ms for batch in one.batches) / seconds
    return rows, rows / seconds, min(1000.0, busy)


def _asked(call: Call, values: Mapping[str, str]) -> list[dict[str, str]]:
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
    if way == "skew":  # how far the values are from even, in percent
        spread = sum(abs(value - mean) for value in values) / len(values)
        return 100 * spread / mean if mean else 0.0
    return {"min": min(values), "max": max(values), "avg": mean, "sum": sum(values)}[way]


def _range(text: str) -> set[int] | None:
    """`0-3,5` as numbers; None for all."""
    if not text:
        return None
    chosen: set[int] = set()
    for part in text.split(","):
        matched = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        if matched is None:
            raise unreadable("query", "subtasks", text)
        chosen.update(range(int(matched[1]), int(matched[2] or matched[1]) + 1))
    return chosen


RESOURCES: Final = (
    Resource("GET", "/jobs/metrics", jobs),
    Resource("GET", "/jobs/{jobid}/metrics", job),
    Resource("GET", "/jobs/{jobid}/vertices/{vertexid}/metrics", vertex),
    Resource("GET", "/jobs/{jobid}/vertices/{vertexid}/subtasks/metrics", subtask_metrics),
    # No process of Flink's runs here.
    Resource("GET", "/taskmanagers/metrics", lambda _: []),
    Resource("GET", "/jobmanager/metrics", lambda _: []),
)
