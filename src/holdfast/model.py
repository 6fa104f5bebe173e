"""Frozen values that cross from one room to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class JobState(str, Enum):
    """Where a job stands, in Flink's words."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    CANCELLING = "CANCELLING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"

    @property
    def terminal(self) -> bool:
        """Whether nothing more happens until somebody runs the job again."""
        return self in (JobState.FINISHED, JobState.CANCELED, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a driver ended, in one line that a person can act on.

    Attributes:
        label: Where it happened: `definition`, `start`, `query`, `process` or `checkpoint`.
        error_class: The class or condition of the error, such as `ZeroDivisionError`.
        line: The first useful line of the message.
        query: The query that failed, where one did.
        detail: The whole text, for the log.
    """

    label: str
    error_class: str
    line: str
    query: str | None = None
    detail: str = ""

    @property
    def fingerprint(self) -> str:
        """What makes two failures the same: everything but the long text."""
        return f"{self.label}|{self.query or ''}|{self.error_class}|{self.line}"

    def __str__(self) -> str:
        place = f"query {self.query}: " if self.query else ""
        return f"{place}{self.error_class}: {self.line}" if self.line else f"{place}{self.error_class}"


@dataclass(frozen=True, slots=True)
class OperatorProgress:
    """One stateful operator in one batch, as Spark reported it."""

    name: str
    rows: int
    updated: int
    removed: int
    late_rows: int
    memory_bytes: int
    commit_ms: int
    partitions: int


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """One of the most frequent keys.

    Attributes:
        key: Its values, in the order of the key's columns, as JSON has them.
        rows: Rows of this key, of those looked at; never less than there were.
        share: Its part of them.
        partition: Where Spark's hash puts it, if the number of partitions is known.
    """

    key: tuple[Any, ...]
    rows: int
    share: float
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class SkewReport:
    """How unevenly the rows of a frame, or of a batch, are spread over its keys.

    Attributes:
        name: What was watched.
        by: The columns of the key.
        rows: All rows.
        looked_at: The rows that the shares are counted from: all of them, or a sample.
        heavy: The most frequent keys, the heaviest first.
        error: How far off a share may be, either way. Every key with more than twice as much is in `heavy`,
            unless that is full.
        partitions: The share of each partition, in their order; empty if their number is not known.
        estimated: Whether these were worked out from the heavy keys, with the other rows taken as even,
            and not counted.
        batch_id: The batch, for a stream.
    """

    name: str
    by: tuple[str, ...]
    rows: int
    looked_at: int
    heavy: tuple[HeavyKey, ...]
    error: float
    partitions: tuple[float, ...] = ()
    estimated: bool = False
    batch_id: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> SkewReport:
        """Read back what `as_dict` wrote, or JSON made of it."""
        heavy = tuple(HeavyKey(**{**each, "key": tuple(each["key"])}) for each in fields["heavy"])
        plain = {"by": tuple(fields["by"]), "heavy": heavy, "partitions": tuple(fields["partitions"])}
        return cls(**{**fields, **plain})


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One committed batch of one query.

    Attributes:
        query: The sink's name.
        batch_id: Spark's number of the batch.
        committed_ms: When Holdfast heard of the commit, in epoch milliseconds.
        input_rows: Rows read from the sources.
        duration_ms: The whole trigger.
        watermark: The watermark the batch ran under, as Spark prints it, if there is one.
        operators: Its stateful operators, in plan order.
        late_events: Late events that keyed operators took out, which Spark does not count.
        skew: How the keys that are watched were spread.
    """

    query: str
    batch_id: int
    committed_ms: int
    input_rows: int
    duration_ms: int
    watermark: str | None
    operators: tuple[OperatorProgress, ...]
    late_events: int = 0
    skew: tuple[SkewReport, ...] = ()

    @property
    def state_rows(self) -> int:
        """Rows in state over all operators."""
        return sum(operator.rows for operator in self.operators)

    @property
    def late_rows(self) -> int:
        """Rows that this batch dropped as late, as Spark counts them, and late events of keyed operators."""
        return self.late_events + sum(operator.late_rows for operator in self.operators)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> BatchProgress:
        """Read back what `as_dict` wrote."""
        operators = tuple(OperatorProgress(**each) for each in fields["operators"])
        # A batch that was noted before there was such a thing has no skew.
        skew = tuple(SkewReport.from_dict(each) for each in fields.get("skew") or ())
        return cls(**{**fields, "operators": operators, "skew": skew})


@dataclass(frozen=True, slots=True)
class QueryStarted:
    """A query as the driver started it."""

    name: str
    query_id: str
    run_id: str
    checkpoint: str
    promise: str


@dataclass(frozen=True, slots=True)
class TrialBatch:
    """A batch that a query has run in a sandbox.

    Attributes:
        batch_id: Its number.
        input_rows: The rows that it has read.
        began_s: When it had been planned and its work began, on the monotonic clock.
        work_ms: From there to its commit.
        load_ms: What its tasks took together to load state; None where the store does not tell.
    """

    batch_id: int
    input_rows: int
    began_s: float
    work_ms: int
    load_ms: int | None
