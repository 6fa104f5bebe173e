"""The views of the dashboard, as values: pages and JSON are made from them.

Fields are only ever added. Times are epoch milliseconds; unknown values are None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Final, Protocol, TypeVar

from holdfast.advice.cost_report import CostReport
from holdfast.checkpoints.checkpoint import Source
from holdfast.jobs.reports import QuerySizing
from holdfast.model import JobState, KeyedState
from holdfast.observe.lag import Lag
from holdfast.server.dashboard.charts import Chart, Marker


class _Fields(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


View = TypeVar("View", bound=_Fields)


def view_of(kind: type[View], source: object, **others: Any) -> View:
    """Return a view with the source's fields of the same names, and the others as given."""
    names = (name for name in kind.__dataclass_fields__ if name not in others)
    return kind(**{name: getattr(source, name) for name in names}, **others)


class Health(str, Enum):
    """The health mark of a job, for a list of many."""

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
# What an operation was asked with; `running` is for the program that carries it out.
_ARGUMENT_WORDS: Final = {
    "catalog": "Directory",
    "label": "Label",
    "queries": "Queries",
    "deep": "Read every row",
    "savepoint": "Savepoint",
    "savepoints": "Savepoints",
    "checkpoint": "New checkpoint",
    "first": "First",
    "second": "Second",
    "partitions": "Partitions",
}


@dataclass(frozen=True, slots=True)
class AlertLine:
    """An alert, or one in a history.

    Attributes:
        job: The job's name.
        rule: The rule's name.
        phase: `pending`, `firing` or, in a history, `cleared`.
        severity: `warning` or `critical`.
        text: The alert as a sentence.
        advice: The first step.
        at_ms: The time since when it is open, or when it was reported.
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
    """A job in a list, and at the head of its pages.

    Attributes:
        state: The job's state, in Flink's terms.
        health: The health mark.
        supervised: True if its supervisor lives.
        reason: The reason for its state, if any.
        failure: The failure of its last driver, until it has recovered.
        queries: The number of its queries.
        batch: The newest committed batch, of the query that committed last.
        committed_ms: The time of that commit.
        duration_ms: The duration of that batch.
        rows_per_second: Rows read in the last batches, over all queries.
        state_rows: Rows in state after the newest batch of each query.
        state_bytes: The size of the stores.
        recent_ms: The durations of the newest batches, oldest first.
        restarts: The number of drivers that followed a failed one.
        firing: The number of firing alerts.
    """

    name: str
    job_id: str
    state: str
    health: Health
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

    @property
    def state_words(self) -> str:
        """The state, for display."""
        if self.supervised or JobState(self.state).terminal:
            return _STATE_WORDS.get(self.state, self.state.capitalize())
        return "No supervisor"


@dataclass(frozen=True, slots=True)
class StateFilter:
    """A state by which the list of jobs is filtered.

    Attributes:
        value: Its value in an address.
        label: Its name for display.
        health: The health mark of its jobs.
        jobs: The number of jobs in this state.
    """

    value: str
    label: str
    health: Health
    jobs: int


@dataclass(frozen=True, slots=True)
class JobsView:
    """The jobs of a state home.

    Attributes:
        jobs: The jobs that the filters select.
        filters: The states to filter by, with the number of all jobs.
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
        rows: Rows in state, for a keyed operator its keys; None if not counted.
        access_ms: The mean time of a get or put, or of a request to a database; for a keyed operator of
            reading or writing one key.
        cache_hits: The share of reads that found their block in memory.
        share: The operator's share of the query's state.
        keyed: True for Holdfast's keyed operators.
        timers: The timers of a keyed operator, if counted.
        states: The states of a keyed operator after the newest batch, with the rows expired in the stored
            batches.
    """

    name: str
    display_name: str
    operator_kind: str
    rows: int | None
    updated: int
    removed: int
    late_rows: int
    size_bytes: int
    memory_bytes: int
    commit_ms: int
    access_ms: float | None
    cache_hits: float | None
    partitions: int
    share: float
    keyed: bool = False
    timers: int | None = None
    states: tuple[KeyedState, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A committed batch."""

    batch: int
    committed_ms: int
    duration_ms: int
    input_rows: int
    late_rows: int
    state_rows: int | None
    watermark_ms: int | None


@dataclass(frozen=True, slots=True)
class HeavyKeyLine:
    """A key with more than its share."""

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
        late_rows: Rows dropped as late in the stored batches.
        charts: The charts of its batches.
        markers: Restarts and savepoints, for its charts.
        batches: The last batches, newest first.
        sizing: The resources it has and needs, and the growth of its state; None before its first batch.
        lags: The lag behind each partition of its topics.
    """

    name: str
    query_id: str
    checkpoint: str
    promise: str
    batch: int | None
    watermark_ms: int | None
    lag_ms: int | None
    late_rows: int
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
        phases: Its phases, in order.
        went_back: The older batch from which it resumed after a fallback; else None.
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
        error_ms: The median error of such predictions, if there were enough recoveries.
        phases: Its phases, in order.
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
        detail: The whole error.
    """

    number: int
    began_ms: int
    ended_ms: int | None
    ending: str | None
    failure: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class OperationLine:
    """An operation, how far it is, and its outcome.

    Attributes:
        operation: The operation's id.
        verb: The verb.
        about: The savepoint, checkpoint or label that it is about.
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
    health: Health
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
    """A job in full: its state, and one of its queries.

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
    """One store of an operator, with how it is spread.

    Attributes:
        largest_share: The share of its largest partition.
        times_mean: The ratio of that partition to the mean.
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
        estimated: True if the duration is estimated from the times of log files.
        failures: The number of drivers that failed before it was committed; None if unknown.
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
        cost: The cost of its state; None if unknown.
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
        mine: True if it is a savepoint of a query of this job.
        proved: The verdict of the newest verification here: `whole`, `damaged`; None without.
        proved_ms: The time of that verification.
        content: `recorded` or `pending`: the state of its row counts and digests.
        problem: The problem with its manifest or label.
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
        can_take: True if there is a query to take a savepoint of.
        can_stop: True if the job runs.
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
    """One operation in full."""

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
    """A rule, with its thresholds by job.

    Attributes:
        thresholds: The thresholds by job, for display; a missing job has disabled the rule.
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
        expires_ms: The time when it expires.
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
        savepoint: The id of the savepoint that contains it, if the checkpoint no longer does.
        exists: True if the state had the key from then on.
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
        batch: The batch.
        at_ms: The time when that batch was planned.
        states: The available states.
        state: The selected state.
        found: The content of the selected key.
        history: The stored batches at which the key's value changed, newest first.
        rows: Some rows of the state, if no key was selected.
        more: True if there are more rows.
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
        address: The address it was read from.
        key: The selected key, as written.
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
