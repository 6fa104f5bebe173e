"""What the pages show, as values: a page is drawn from one, and its JSON is the same one.

Fields are only ever added. Times are epoch milliseconds; what is not known is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from holdfast.server.dashboard.charts import Chart


class Health(str, Enum):
    """How a thing stands, for those who look at many: the mark before its state."""

    GOOD = "good"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"
    OVER = "over"


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
        access_ms: What one get or put of the store takes on average.
        cache_hits: Which part of the reads found their block in memory.
        share: Its part of the query's state.
    """

    name: str
    rows: int
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


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A committed batch."""

    batch: int
    committed_ms: int
    duration_ms: int
    input_rows: int
    late_rows: int
    state_rows: int
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
    """How unevenly the keys of a watched name are spread."""

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


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a recovery."""

    name: str
    ms: int


@dataclass(frozen=True, slots=True)
class RecoveryLine:
    """What a recovery took.

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
    """What the next recovery is expected to take.

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
    """Something that was asked for, and what became of it.

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
        error: Why it failed, as errors are told everywhere.
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
    store: str
    format_version: int
    size_bytes: int
    rows: int | None
    largest: int | None
    largest_share: float
    times_mean: float
    partitions: tuple[PartitionLine, ...]


@dataclass(frozen=True, slots=True)
class SourceLine:
    """How far a source has been read, as its own JSON."""

    name: str
    offset: str | None
    planned: str | None


@dataclass(frozen=True, slots=True)
class FilesLine:
    """What a batch added to a checkpoint."""

    batch: int
    planned_ms: int
    files: int
    new_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointsView:
    """What the files of a query's checkpoint tell.

    Attributes:
        problem: Why nothing can be told, as errors are told everywhere.
    """

    now_ms: int
    job: JobLine
    queries: tuple[str, ...]
    query: str | None
    checkpoint: str | None
    problem: Mapping[str, Any] | None
    batch: int | None
    uncommitted: int | None
    oldest_batch: int | None
    kept: int
    watermark_ms: int | None
    planned_ms: int | None
    provider: str | None
    size_bytes: int
    new_bytes: int
    charts: tuple[Chart, ...]
    stores: tuple[StoreLine, ...]
    sources: tuple[SourceLine, ...]
    settings: Mapping[str, str]
    batches: tuple[FilesLine, ...]
    firing: int


@dataclass(frozen=True, slots=True)
class SavepointLine:
    """A savepoint in a catalog.

    Attributes:
        mine: Whether it is of a query of the job that is looked at.
        proved: What the newest verification that was asked for here said: `whole`, `damaged`; None without.
        proved_ms: When that was.
        problem: What is wrong with its manifest.
    """

    savepoint: str
    id: str
    label: str | None
    created_ms: int | None
    query: str | None
    batch: int | None
    files: int | None
    size_bytes: int | None
    new_bytes: int | None
    mine: bool
    proved: str | None
    proved_ms: int | None
    problem: str | None


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


@dataclass(frozen=True, slots=True)
class OperationView:
    """One operation in full."""

    now_ms: int
    operation: OperationLine
    arguments: Mapping[str, Any]
    result: Mapping[str, Any] | None
    firing: int


@dataclass(frozen=True, slots=True)
class StateLine:
    """A state of an operator, with the types of its columns."""

    name: str
    operator: str
    operator_id: int
    kind: str
    form: str
    partitions: int
    key: Mapping[str, str]
    sub: Mapping[str, str]
    value: Mapping[str, str]
    ttl: bool


@dataclass(frozen=True, slots=True)
class FoundLine:
    """What a state holds for a key.

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
    """A row of a state."""

    key: Mapping[str, Any]
    sub: Mapping[str, Any]
    value: Mapping[str, Any]
    expires_ms: int | None
    partition: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StateView:
    """The state of a query at its newest committed batch, or of a savepoint.

    Attributes:
        address: Where it was read.
        batch: Its batch.
        at_ms: When that batch was planned.
        states: What there is to look at.
        state: Which of them is looked at.
        key: The key that was asked for, as it was written.
        found: What there is for it.
        history: At which of the batches that are kept its value changed, the newest first.
        rows: Some rows of the state, where no key was asked for.
        offset: How many rows were left out before them.
        more: Whether there are more.
        problem: Why nothing was found, as errors are told everywhere.
    """

    now_ms: int
    job: JobLine
    queries: tuple[str, ...]
    query: str | None
    savepoint: str | None
    address: str | None
    batch: int | None
    at_ms: int | None
    states: tuple[StateLine, ...]
    state: StateLine | None
    key: str | None
    found: FoundLine | None
    history: tuple[MomentLine, ...]
    rows: tuple[RowLine, ...]
    offset: int
    more: bool
    problem: Mapping[str, Any] | None
    firing: int


@dataclass(frozen=True, slots=True)
class RuleLine:
    """A rule, with what jobs have set it to.

    Attributes:
        thresholds: By job, as people read it; a job that is not there has the rule off.
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
