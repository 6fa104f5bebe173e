"""The views of the dashboard, as values: pages and JSON are made from them.

Fields are only ever added. Times are epoch milliseconds; what is not known is None.
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
from holdfast.server.dashboard.figures import Chart


class _Fields(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


View = TypeVar("View", bound=_Fields)


def view_of(kind: type[View], source: object, **others: Any) -> View:
    """A value for a page: its fields are the source's of the same names, but for the others."""
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
    """Something that is wrong, or may be.

    Attributes:
        job: The job's name.
        rule: The rule's name.
        phase: `pending`, `firing` or, in a history, `cleared`.
        severity: `warning` or `critical`.
        text: In a sentence.
        advice: What to do first.
        at_ms: Since when, or when it was told.
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
        state: In Flink's words.
        health: How it stands.
        supervised: Whether its supervisor lives.
        reason: Why it is where it is, if somebody or something ended it.
        failure: Why its last failed driver ended, while it has not recovered.
        queries: How many it has.
        batch: The newest committed batch, of the query that committed last.
        committed_ms: When that was.
        duration_ms: How long it took.
        rows_per_second: Rows read lately, over all queries.
        state_rows: Rows in state after the newest batch of each query.
        state_bytes: What the stores take.
        recent_ms: How long the newest batches took, oldest first.
        restarts: Drivers that followed a failed one.
        firing: Alerts that are firing.
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
        """Its state as people read it."""
        if self.supervised or JobState(self.state).terminal:
            return _STATE_WORDS.get(self.state, self.state.capitalize())
        return "No supervisor"


@dataclass(frozen=True, slots=True)
class JobsView:
    """All jobs of a state home."""

    now_ms: int
    home: str
    jobs: tuple[JobLine, ...]
    firing: int


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """A stateful operator of a query after its newest batch.

    Attributes:
        name: Spark's name of it, or its user's.
        display_name: What people call it.
        operator_kind: What it does, in the words of Spark's documentation.
        rows: Rows in state, keys of a keyed operator; None where they are not counted.
        access_ms: The mean time of a get or put, or of a request to a database; of a keyed operator, of
            looking up or writing one key.
        cache_hits: Which part of the reads found their block in memory.
        share: Its part of the query's state.
        keyed: Whether it is one of Holdfast's keyed operators.
        timers: The timers of a keyed operator, where they are counted.
        states: The states of a keyed operator after the newest batch, with what has expired in the batches
            that are kept.
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
    """A key that has more than its part."""

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
        lag_ms: How far the watermark lies behind the clock.
        late_rows: Rows that the batches which are kept have dropped as late.
        charts: How its batches have gone.
        batches: The newest, the newest first.
        sizing: What it has and needs, and how its state grows; None before its first batch.
        lags: How far it is behind each partition of its topics.
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


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a recovery."""

    name: str
    ms: int


@dataclass(frozen=True, slots=True)
class RecoveryLine:
    """The phases of a recovery.

    Attributes:
        attempt: The driver that recovered the job.
        at_ms: When the one before it failed.
        cause: Why, in a line.
        took_ms: From the failure to the first commit.
        phases: Its parts, in order.
        went_back: Where it went on from, if not from the newest batch.
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
        took_ms: All of it.
        error_ms: By how much such a guess was wrong in the median, where there were enough recoveries.
        phases: Its parts, in order.
    """

    took_ms: int
    error_ms: int | None
    phases: tuple[Phase, ...]


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """A driver of a job.

    Attributes:
        ending: `finished`, `stopped`, `canceled`, `failed`, `lost`; None while it runs.
        failure: Why, in a line.
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
        operation: Its id.
        verb: What.
        about: The savepoint, checkpoint or label that it is about.
        state: `asked`, `running`, `completed` or `failed`.
        health: How it stands.
        done: How far it is.
        total: How far it has to go.
        what: What it does now.
        outcome: What came of it, in a sentence.
        error: Why it failed, in the form of all errors.
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
        """Return the verb for people."""
        return _VERB_WORDS.get(self.verb, self.verb.capitalize())


@dataclass(frozen=True, slots=True)
class JobView:
    """A job in full: its state, and one of its queries."""

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
        largest_share: The part of its largest partition.
        times_mean: How many times the mean that is.
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
        duration_ms: How long it took; None where nothing tells.
        estimated: Whether only the times of its log files tell that.
        failures: How many drivers failed before it was committed; None if unknown.
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
        problem: Why nothing can be told, in the form of all errors.
        cost: What its state costs; None where that cannot be told.
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
        mine: Whether it is of a query of the job that is looked at.
        proved: What the newest verification that was asked for here said: `whole`, `damaged`; None without.
        proved_ms: When that was.
        content: Whether row counts and digests of its states are `recorded`, or still `pending`.
        problem: What is wrong with its manifest, or its label.
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
        directory: Where the next one goes unless another place is named.
        beside: Where a checkpoint that is made of a savepoint might go.
        can_take: Whether there is a query to take one of.
        can_stop: Whether the job runs.
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
    def told_arguments(self) -> dict[str, Any]:
        """Return the arguments for people, without those that have their defaults."""
        asked = {_ARGUMENT_WORDS.get(name): value for name, value in self.arguments.items()}
        return {name: _format_value(value) for name, value in asked.items() if name is not None and value}


@dataclass(frozen=True, slots=True)
class RuleLine:
    """A rule, with what jobs have set it to.

    Attributes:
        thresholds: By job, as people read it; a job that is missing has the rule off.
    """

    name: str
    alert: str
    severity: str
    above: bool
    threshold: str
    advice: str


@dataclass(frozen=True, slots=True)
class AlertsView:
    """The alerts of all jobs: what stands, what has been, and the rules."""

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
        value: The value; None where the state does not know the key.
        expires_ms: When it expires.
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
        change: `set`, `changed`, `removed`, or `first` for what there was when what is kept begins.
        savepoint: The id of the savepoint that tells of it, where the checkpoint no longer does.
        exists: Whether the state knew the key from then on.
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
        written: Its key as it is written on a command line.
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
        batch: Its batch.
        at_ms: When that batch was planned.
        states: What there is to look at.
        state: Which of them is looked at.
        found: What there is for the key that was asked for.
        history: At which of the batches that are kept its value changed, the newest first.
        rows: Some rows of the state, where no key was asked for.
        more: Whether there are more.
        example: A key that the state has, as it is written on a command line; None of a state without one.
        problem: Why nothing was found, in the form of all errors.
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
        address: Where it was read.
        key: The key that was asked for, as it was written.
        offset: How many rows were left out before those that are shown.
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
