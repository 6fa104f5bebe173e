"""Flink's vertices, told of a job's queries: each query is one, with all of its operators chained in it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, Final

from holdfast.jobs.registry.client import JobDetails
from holdfast.model import BatchProgress, JobState, QueryStarted
from holdfast.observe.totals import shown_name

# As many key groups as Flink can have; Spark itself knows no bound.
MAX_PARALLELISM: Final = 1 << 15
SUSPENDED: Final = "SUSPENDED"

_JOB_STATES: Final = (
    "INITIALIZING",
    "CREATED",
    "RUNNING",
    "FAILING",
    "FAILED",
    "CANCELLING",
    "CANCELED",
    "FINISHED",
    "RESTARTING",
    "SUSPENDED",
    "RECONCILING",
)
_TASK_STATES: Final = (
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
)
# Where a job's tasks are in a state of another name than the job.
_TASK_OF_JOB: Final = {"RESTARTING": "SCHEDULED", "CANCELLING": "CANCELING", SUSPENDED: "CANCELED"}


@dataclass(frozen=True, slots=True)
class Vertex:
    """A query of a job.

    Attributes:
        vertex_id: 32 digits that depend on the names of job and query alone.
        query: The query.
        parallelism: The partitions of its state; one where it has none, or none was seen yet.
        batches: Its newest batches, oldest first.
    """

    vertex_id: str
    query: QueryStarted
    parallelism: int
    batches: tuple[BatchProgress, ...]

    @property
    def name(self) -> str:
        """The query's name, and its operators in the order of the plan."""
        operators = self.batches[-1].operators if self.batches else ()
        return " -> ".join([self.query.name, *(shown_name(operator) for operator in operators), "Sink"])


def vertices(details: JobDetails) -> list[Vertex]:
    """The vertices of a job, in the order in which its queries were started."""
    job_id = details.status.job.job_id
    nodes = []
    for query in details.queries:
        batches = tuple(details.batches_of(query.name))
        partitions = [operator.partitions for operator in batches[-1].operators] if batches else []
        nodes.append(Vertex(vertex_id(job_id, query.name), query, max(partitions, default=0) or 1, batches))
    return nodes


def vertex_id(job_id: str, query: str) -> str:
    """The id of a query as a vertex."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"holdfast:{job_id}:{query}").hex


def state_of(details: JobDetails) -> str:
    """The job's state in Flink's words; one whose supervisor died is suspended until it is run again."""
    status = details.status
    return SUSPENDED if not status.job.state.terminal and not status.supervised else status.job.state.value


def job_counts(state: str, tasks: int) -> dict[str, int]:
    """How many tasks of a job are in each state, as the overview of jobs counts them."""
    return {"total": tasks, **{name.lower(): count for name, count in task_counts(state, tasks).items()}}


def task_counts(state: str, tasks: int) -> dict[str, int]:
    """How many tasks are in each state."""
    return {name: tasks * (name == task_state(state)) for name in _TASK_STATES}


def task_state(state: str) -> str:
    """The state of a job's tasks."""
    return _TASK_OF_JOB.get(state, state)


def timestamps(details: JobDetails) -> dict[str, int]:
    """When a job came into each of its states; 0 for those it never was in."""
    job = details.status.job
    times = dict.fromkeys(_JOB_STATES, 0)
    times["INITIALIZING"] = times["CREATED"] = job.started_ms
    own = [attempt for attempt in details.attempts if attempt.began_ms >= job.started_ms]
    for attempt in own:
        times["RUNNING"] = attempt.running_ms or times["RUNNING"]
        if attempt.ending == "failed":
            times["FAILING"] = attempt.ended_ms or times["FAILING"]
        if attempt.recovers:
            times["RESTARTING"] = attempt.began_ms
    if job.state.terminal or job.state is JobState.CANCELLING:
        times[job.state.value] = job.ended_ms or job.updated_ms
    return times


def traffic(vertex: Vertex) -> dict[str, Any]:
    """What a query has read and how long it was at work, over the batches that are kept."""
    rows = sum(batch.input_rows for batch in vertex.batches)
    whole = bool(vertex.batches) and vertex.batches[0].batch_id == 0
    return {
        "read-bytes": 0,
        "read-bytes-complete": False,
        "write-bytes": 0,
        "write-bytes-complete": False,
        "read-records": rows,
        "read-records-complete": whole,
        "write-records": 0,
        "write-records-complete": False,
        "accumulated-backpressured-time": 0,
        "accumulated-idle-time": 0,
        "accumulated-busy-time": float(sum(batch.duration_ms for batch in vertex.batches)),
    }
