"""The views of the dashboard as dataclasses, from which pages and JSON are generated.

Fields are added but never removed. Times are epoch milliseconds; unknown values are None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Final, Protocol, TypeVar

from holdfast.advice.cost_report import CostReport
from holdfast.checkpoints.checkpoint import Source
from holdfast.jobs.reports import QuerySizing
from holdfast.model import JobKind, JobState, KeyedState
from holdfast.observe.lag import Lag
from holdfast.server.dashboard.charts import Chart, Marker


class _Fields(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


View = TypeVar("View", bound=_Fields)


def view_of(kind: type[View], source: object, **others: Any) -> View:
    """Return a view with the fields of `source` that have the same names, and the other fields as given."""
    names = (name for name in kind.__dataclass_fields__ if name not in others)
    return kind(**{name: getattr(source, name) for name in names}, **others)


class HealthLevel(str, Enum):
    """The health mark of a job or an operation in a list."""

    GOOD = "good"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"
    OVER = "over"


_STATE_WORDS: Final = {"CREATED": "Starting", "CANCELLING": "Ending", "CANCELED": "Cancelled"}
_VERB_WORDS: Final = {
    "savepoint": "Take a savepoint",
    "stop": "Stop with a savepoint",
    "dispose": "Delete",
    "diff": "Compare",
}
# The labels of an operation's arguments; `running` is only for the process that executes it.
_ARGUMENT_WORDS: Final = {
    "catalog": "Directory",
    "label": "Label",
    "queries": "Queries",
    "deep": "Read every row",
    "drop_expired": "Omit expired rows",
    "savepoint": "Savepoint",
    "savepoints": "Savepoints",
    "checkpoint": "New checkpoint",
    "first": "First",
    "second": "Second",
    "partitions": "Partitions",
}


@dataclass(frozen=True, slots=True)
class AlertLine:
    """An alert that is open or in the history.

    Attributes:
        job: The job's name.
        rule: The rule's name.
        phase: `pending`, `firing` or, in a history, `cleared`.
        severity: `warning` or `critical`.
        text: The alert as a sentence.
        advice: The first step.
        at_ms: The time when the alert opened, or in a history, when it was reported.
    """

    job: str
    rule: str
    phase: str
    severity: str
    text: str
    advice: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job in a list, and in the header of its pages.

    Attributes:
        state: The job's state, in Flink's terms.
        health: The health mark.
        supervised: Whether its supervisor is running.
        reason: The reason for the state, or None.
        failure: The failure of the last driver, until the job has recovered.
        queries: The number of queries.
        batch: The newest committed batch of the query that committed last.
        committed_ms: The commit time of that batch.
        duration_ms: The duration of that batch.
        rows_per_second: The number of rows read per second in the last batches, over all queries.
        state_rows: The number of rows in state after the newest batch of each query.
        state_bytes: The size of the stores.
        recent_ms: The durations of the newest batches, oldest first.
        restarts: The number of drivers that followed a failed one.
        firing: The number of firing alerts.
        kind: `job`, `watched` or `guarded`, or `checkpoint` for a query known from its checkpoint alone.
        accepts: The operations that can be requested now.
    """

    name: str
    job_id: str
    state: str
    health: HealthLevel
    supervised: bool
    reason: str | None
    failure: str | None
    target: str
    started_ms: int
    ended_ms: int | None
    queries: int
    batch: int | None
    committed_ms: int | None
    duration_ms: int | None
    rows_per_second: float | None
    state_rows: int | None
    state_bytes: int | None
    recent_ms: tuple[int, ...]
    restarts: int
    firing: int
    kind: JobKind = JobKind.JOB
    accepts: tuple[str, ...] = ()

    @property
    def state_words(self) -> str:
        """The state, for display."""
        if self.kind is JobKind.CHECKPOINT and self.state == JobState.FINISHED.value:
            return "Stopped or waiting"
        if self.supervised or self.kind is JobKind.CHECKPOINT or JobState(self.state).terminal:
            return _STATE_WORDS.get(self.state, self.state.capitalize())
        return "No supervisor" if self.kind is JobKind.JOB else "Process ended"


@dataclass(frozen=True, slots=True)
class StateFilter:
    """A state by which the list of jobs is filtered.

    Attributes:
        value: The value in the address of a page.
        label: The name for display.
        health: The health mark of jobs in this state.
        jobs: The number of jobs in this state.
    """

    value: str
    label: str
    health: HealthLevel
    jobs: int


@dataclass(frozen=True, slots=True)
class JobsView:
    """The jobs of a state home.

    Attributes:
        jobs: The jobs that the filters select.
        filters: The states to filter by, with the number of jobs in each.
        state: The selected state; None for all.
        name: The selected part of a name; None for all.
        all_jobs: The number of all jobs.
    """

    now_ms: int
    home: str
    jobs: tuple[JobLine, ...]
    firing: int
    filters: tuple[StateFilter, ...] = ()
    state: str | None = None
    name: str | None = None
    all_jobs: int = 0


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """A stateful operator of a query after its newest batch.

    Attributes:
        name: The operator's name in Spark, or the user's.
        display_name: The name for display.
        operator_kind: The kind of operator, as in Spark's documentation.
        updated: The number of rows that the batch wrote; like other counts None for a batch that is known
            from the checkpoint alone.
        rows: The number of rows in state, or of keys for a keyed operator; None if not counted.
        access_ms: The mean time of a get or put, or of a request to a database; for a keyed operator, the
            mean time to read or write one key.
        cache_hits: The share of reads that found their block in memory.
        share: The operator's share of the query's state.
        keyed: Whether this is a keyed operator.
        timers: The number of timers of a keyed operator; None if not counted.
        states: The states of a keyed operator after the newest batch, with the rows expired in the stored
            batches.
    """

    name: str
    display_name: str
    operator_kind: str
    rows: int | None
    updated: int | None
    removed: int | None
    late_rows: int | None
    size_bytes: int
    memory_bytes: int | None
    commit_ms: int | None
    access_ms: float | None
    cache_hits: float | None
    partitions: int
    share: float
    keyed: bool = False
    timers: int | None = None
    states: tuple[KeyedState, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A committed batch; the rows are None for a batch that is known from the checkpoint alone."""

    batch: int
    committed_ms: int
    duration_ms: int | None
    input_rows: int | None
    late_rows: int | None
    state_rows: int | None
    watermark_ms: int | None


@dataclass(frozen=True, slots=True)
class HeavyKeyLine:
    """A key among the most frequent ones of a query."""

    key: str
    rows: int
    share: float
    partition: int | None


@dataclass(frozen=True, slots=True)
class SkewLine:
    """The key skew of a watched name."""

    name: str
    by: tuple[str, ...]
    rows: int
    error: float
    keys: tuple[HeavyKeyLine, ...]


@dataclass(frozen=True, slots=True)
class QueryView:
    """A query of a job.

    Attributes:
        lag_ms: The time by which the watermark is behind the clock.
        late_rows: The number of rows dropped as late in the stored batches; None if it is not reported.
        charts: The charts of its batches.
        markers: The restarts and savepoints to mark in the charts.
        batches: The last batches, newest first.
        sizing: The present and the recommended resources, and the growth of the state; None before the first
            batch.
        lags: The lag behind each partition of its topics.
    """

    name: str
    query_id: str
    checkpoint: str
    promise: str
    batch: int | None
    watermark_ms: int | None
    lag_ms: int | None
    late_rows: int | None
    charts: tuple[Chart, ...]
    operators: tuple[OperatorLine, ...]
    batches: tuple[BatchLine, ...]
    skew: tuple[SkewLine, ...]
    sizing: QuerySizing | None = None
    lags: tuple[Lag, ...] = ()
    markers: tuple[Marker, ...] = ()


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a recovery."""

    name: str
    ms: int


@dataclass(frozen=True, slots=True)
class RecoveryLine:
    """The phases of a recovery.

    Attributes:
        attempt: The attempt that recovered the job.
        at_ms: The time of the failure.
        cause: The failure, in one line.
        took_ms: The time from the failure to the first commit.
        phases: The phases, in order.
        went_back: The older batch from which the job resumed after a fallback; None without a fallback.
    """

    attempt: int
    at_ms: int
    cause: str
    took_ms: int
    phases: tuple[Phase, ...]
    went_back: str | None


@dataclass(frozen=True, slots=True)
class ExpectedLine:
    """The expected duration of the next recovery.

    Attributes:
        took_ms: The duration of the whole recovery.
        error_ms: The median error of earlier predictions; None with too few recoveries.
        phases: The expected phases, in order.
    """

    took_ms: int
    error_ms: int | None
    phases: tuple[Phase, ...]


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """A driver of a job.

    Attributes:
        ending: `finished`, `stopped`, `canceled`, `failed`, `lost`; None while it runs.
        failure: The failure, in one line.
        detail: The full text of the error.
    """

    number: int
    began_ms: int
    ended_ms: int | None
    ending: str | None
    failure: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class OperationLine:
    """An operation with its progress and outcome.

    Attributes:
        operation: The operation's id.
        verb: The verb.
        about: The savepoint, checkpoint or label that the operation concerns.
        state: `asked`, `running`, `completed` or `failed`.
        health: The health mark.
        done: The completed part of the progress.
        total: The total of the progress.
        what: The current step.
        outcome: The result, as a sentence.
        error: The error, in the common format of errors.
    """

    operation: str
    verb: str
    job: str | None
    about: str | None
    state: str
    health: HealthLevel
    asked_ms: int
    took_ms: int | None
    done: int | None
    total: int | None
    what: str | None
    outcome: str | None
    error: Mapping[str, Any] | None

    @property
    def verb_words(self) -> str:
        """The verb, for display."""
        return _VERB_WORDS.get(self.verb, self.verb.capitalize())


@dataclass(frozen=True, slots=True)
class JobView:
    """The details of a job and of one of its queries.

    Attributes:
        time_range: The range of time of the charts: `hour`, `day`, `week` or `all`.
    """

    now_ms: int
    job: JobLine
    queries: tuple[str, ...]
    query: QueryView | None
    recoveries: tuple[RecoveryLine, ...]
    expected: ExpectedLine | None
    attempts: tuple[AttemptLine, ...]
    alerts: tuple[AlertLine, ...]
    operations: tuple[OperationLine, ...]
    firing: int
    time_range: str = "all"


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """The state of one partition of a store."""

    partition: int
    size_bytes: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class StoreLine:
    """A store of an operator, with its distribution over partitions.

    Attributes:
        largest_share: The share of the largest partition.
        times_mean: The ratio of the largest partition to the mean.
    """

    operator_id: int
    operator: str
    display_name: str
    operator_kind: str
    store: str
    state_name: str
    format_version: int
    size_bytes: int
    rows: int | None
    largest: int | None
    largest_share: float
    times_mean: float
    partitions: tuple[PartitionLine, ...]


@dataclass(frozen=True, slots=True)
class FilesLine:
    """The files that a batch added to a checkpoint.

    Attributes:
        duration_ms: The duration of the batch; None if unknown.
        estimated: Whether the duration is estimated from the times of log files.
        failures: The number of drivers that failed before the batch was committed; None if unknown.
    """

    batch: int
    planned_ms: int
    duration_ms: int | None
    estimated: bool
    failures: int | None
    files: int
    new_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointsView:
    """The files of a query's checkpoint.

    Attributes:
        problem: The error that prevents the view, in the common format of errors.
        cost: The cost of the query's state; None if unknown.
    """

    now_ms: int
    job: JobLine
    queries: tuple[str, ...]
    firing: int
    query: str | None = None
    checkpoint: str | None = None
    problem: Mapping[str, Any] | None = None
    batch: int | None = None
    uncommitted: int | None = None
    oldest_batch: int | None = None
    kept: int = 0
    watermark_ms: int | None = None
    planned_ms: int | None = None
    provider: str | None = None
    size_bytes: int = 0
    new_bytes: int = 0
    charts: tuple[Chart, ...] = ()
    stores: tuple[StoreLine, ...] = ()
    sources: tuple[Source, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    batches: tuple[FilesLine, ...] = ()
    cost: CostReport | None = None


@dataclass(frozen=True, slots=True)
class SavepointLine:
    """A savepoint in a catalog.

    Attributes:
        mine: Whether the savepoint is of a query of this job.
        proved: The verdict of the newest verification in this state home: `whole` or `damaged`; None without
            one.
        proved_ms: The time of the newest verification.
        content: The status of the row counts and digests: `recorded` or `pending`.
        problem: The problem with the manifest or the label; None without one.
    """

    savepoint: str
    id: str
    content: str | None
    problem: str | None
    label: str | None = None
    created_ms: int | None = None
    query: str | None = None
    batch: int | None = None
    files: int | None = None
    size_bytes: int | None = None
    new_bytes: int | None = None
    mine: bool = False
    proved: str | None = None
    proved_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CatalogView:
    """A directory of savepoints, the newest first."""

    catalog: str
    savepoints: tuple[SavepointLine, ...]
    problem: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class SavepointsView:
    """The savepoints of a job.

    Attributes:
        directory: The default directory for the next savepoint.
        beside: The suggested directory for a checkpoint restored from a savepoint.
        can_take: Whether the job has a query of which a savepoint can be taken.
        can_stop: Whether the job is running.
    """

    now_ms: int
    job: JobLine
    directory: str | None
    beside: str | None
    can_take: bool
    can_stop: bool
    catalogs: tuple[CatalogView, ...]
    operations: tuple[OperationLine, ...]
    firing: int


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {part}" for name, part in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "yes" if value is True else str(value)


@dataclass(frozen=True, slots=True)
class OperationView:
    """The details of an operation."""

    now_ms: int
    operation: OperationLine
    arguments: Mapping[str, Any]
    result: Mapping[str, Any] | None
    firing: int

    @property
    def shown_arguments(self) -> dict[str, Any]:
        """The arguments for display, without default values."""
        asked = {_ARGUMENT_WORDS.get(name): value for name, value in self.arguments.items()}
        return {name: _format_value(value) for name, value in asked.items() if name is not None and value}


@dataclass(frozen=True, slots=True)
class RuleLine:
    """An alert rule with its thresholds by job.

    Attributes:
        thresholds: The thresholds by job, for display; jobs that disable the rule are omitted.
    """

    name: str
    alert: str
    severity: str
    above: bool
    threshold: str
    advice: str


@dataclass(frozen=True, slots=True)
class AlertsView:
    """The open alerts of all jobs, their history, and the rules."""

    now_ms: int
    standing: tuple[AlertLine, ...]
    events: tuple[AlertLine, ...]
    rules: tuple[RuleLine, ...]
    firing: int


@dataclass(frozen=True, slots=True)
class StateLine:
    """A state of an operator, with the types of its columns."""

    name: str
    operator: str
    operator_id: int
    kind: str
    operator_kind: str
    form: str
    partitions: int
    key: Mapping[str, str]
    sub: Mapping[str, str]
    value: Mapping[str, str]
    ttl: bool


@dataclass(frozen=True, slots=True)
class FoundLine:
    """The state of a key.

    Attributes:
        key: The key's columns.
        value: The value; None if the state does not have the key.
        expires_ms: The time when the value expires; None without a TTL.
    """

    key: Mapping[str, Any]
    exists: bool
    value: Any
    partition: int | None
    size_bytes: int
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class MomentLine:
    """A batch at which the value of a key changed.

    Attributes:
        change: `set`, `changed`, `removed`, or `first` for the value in the oldest stored batch.
        savepoint: The id of the savepoint that contains the value, if the checkpoint no longer does.
        exists: Whether the state had the key after this batch.
    """

    batch: int
    at_ms: int | None
    change: str
    savepoint: str | None
    exists: bool
    value: Any


@dataclass(frozen=True, slots=True)
class RowLine:
    """A row of a state.

    Attributes:
        written: The key, as written on a command line.
    """

    key: Mapping[str, Any]
    sub: Mapping[str, Any]
    value: Mapping[str, Any]
    expires_ms: int | None
    partition: int
    size_bytes: int
    written: str | None


@dataclass(frozen=True, slots=True)
class StateLook:
    """The content of a state page.

    Attributes:
        batch: The batch of the state.
        at_ms: The time when the batch was planned.
        states: The available states.
        state: The selected state.
        found: The value of the selected key.
        history: The stored batches at which the key's value changed, newest first.
        rows: Some rows of the state, if no key was selected.
        more: Whether there are more rows.
        example: A key of the state, as written on a command line; None for an empty state.
        problem: The error if nothing was found, in the common format of errors.
    """

    batch: int | None = None
    at_ms: int | None = None
    states: tuple[StateLine, ...] = ()
    state: StateLine | None = None
    found: FoundLine | None = None
    history: tuple[MomentLine, ...] = ()
    rows: tuple[RowLine, ...] = ()
    more: bool = False
    example: str | None = None
    problem: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateView(StateLook):
    """The state of a query at its newest committed batch, or of a savepoint.

    Attributes:
        address: The address from which the state was read.
        key: The selected key, as written on a command line.
        offset: The number of rows before those shown.
    """

    now_ms: int
    job: JobLine
    queries: tuple[str, ...]
    query: str | None
    savepoint: str | None
    address: str | None
    key: str | None
    offset: int
    firing: int
