"""Frozen dataclasses and enumerations that several packages share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_as
from holdfast.plain_values import from_plain


class JobState(str, Enum):
    """The state of a job, named as in Flink."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    CANCELLING = "CANCELLING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"

    @property
    def terminal(self) -> bool:
        """Return whether a job stays in this state until it is run again."""
        return self in (JobState.FINISHED, JobState.CANCELED, JobState.FAILED)


class JobKind(str, Enum):
    """The process that runs the queries of a job, which decides what can be asked of it.

    `job` is run by a supervisor of Holdfast. `checkpoint` is a query of any program, known from the files of
    its checkpoint alone. `watched` and `guarded` are queries of a program with `hf.watch` or `hf.guard`,
    which its own process records.
    """

    JOB = "job"
    CHECKPOINT = "checkpoint"
    WATCHED = "watched"
    GUARDED = "guarded"

    @property
    def is_recorded(self) -> bool:
        """Return whether the query's own process records it."""
        return self in (JobKind.WATCHED, JobKind.GUARDED)


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a driver ended.

    Attributes:
        label: The phase that failed: `definition`, `start`, `query`, `process` or `checkpoint`.
        cause: The part to fix: `user code`, `source`, `sink`, `state`, `resources`, or `unknown`.
        error_class: The class or condition of the error, such as `ZeroDivisionError`.
        line: The first useful line of the message.
        query: The query that failed, or None.
        detail: The full text of the error.
        place: The last line of user code in the traceback: file, line number and text.
    """

    label: str
    error_class: str
    line: str
    query: str | None = None
    detail: str = ""
    cause: str = "unknown"
    place: str | None = None

    @property
    def fingerprint(self) -> str:
        """The identity of equal failures: all fields except the full text and the code line."""
        return f"{self.label}|{self.query or ''}|{self.error_class}|{self.line}"

    def __str__(self) -> str:
        query = f"query {self.query}: " if self.query else ""
        line = f": {self.line}" if self.line else ""
        place = f", at {self.place}" if self.place else ""
        return f"{query}{self.error_class}{line}{place}"


@dataclass(frozen=True, slots=True)
class KeyedState:
    """One state of a keyed operator after a batch.

    Attributes:
        name: The name of the state in the processor.
        entries: The number of keys with a value, elements of a list or entries of a map; None if not counted.
        size_bytes: The size of the values in bytes before compression, including old values not cleaned up
            yet; None if not counted.
        expired: The number of expired values that the batch removed or replaced.
    """

    name: str
    entries: int | None
    size_bytes: int | None
    expired: int


@dataclass(frozen=True, slots=True)
class KeyedProgress:
    """The metrics of a keyed operator in one batch, counted by its tasks. Unknown totals are None.

    Attributes:
        name: The name that the user gave to the operator.
        keys: The number of keys with state.
        timers: The number of registered timers.
        size_bytes: The size of all key groups in bytes before compression.
        uncounted_groups: The number of key groups of older checkpoints that are not counted yet; totals are
            unknown until it is 0.
        touched: The number of keys that the batch looked up.
        written: The number of keys whose state the batch wrote.
        added: The number of new keys.
        removed: The number of keys that lost all state.
        expired: The number of expired values that the batch removed or replaced.
        events: The number of events.
        late: The number of late events.
        failed: The number of failed events that were set aside.
        read_us: The total time of all tasks for looking up keys, in microseconds.
        write_us: The total time of all tasks for writing keys, in microseconds.
        states: The metrics of each state.
        accesses: The number of reads and writes by tasks whose time was up to 64 µs, up to 128 µs, and so on
            to 16.8 s, and above; empty for batches recorded by an older version of Holdfast.
    """

    name: str
    keys: int | None
    timers: int | None
    size_bytes: int | None
    uncounted_groups: int | None
    touched: int
    written: int
    added: int
    removed: int
    expired: int
    events: int
    late: int
    failed: int
    read_us: int
    write_us: int
    states: tuple[KeyedState, ...] = ()
    accesses: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorProgress:
    """The metrics of a stateful operator in one batch, as reported by Spark.

    For Holdfast's keyed operators, `rows`, `updated` and `removed` are counted by their tasks, because Spark
    does not know their keys.

    Attributes:
        name: Spark's name of the operator, or the name that the user gave to a keyed operator.
        rows: The number of rows in the state, or of keys for a keyed operator; None if not counted.
        updated: The number of rows, or keys, that the batch wrote.
        removed: The number of rows, or keys, that the batch removed.
        late_rows: The number of rows that the operator dropped as late.
        memory_bytes: The memory used by the operator's stores, in bytes.
        commit_ms: The time to commit the operator's stores, in milliseconds.
        partitions: The number of partitions of the state.
        store: The metrics of the store in this batch, by Spark's names, such as `rocksdbGetCount`.
        keyed: The metrics of a keyed operator; None for other operators.
        spark_name: Spark's name of the operation; None for batches recorded by an older version of Holdfast.
        display_name: The name to show; None for the same batches.
        operator_kind: The operation as Spark's documentation names it; None for the same batches.
        update_ms: The total time of all tasks to process and update rows and to remove rows, in milliseconds;
            None for batches recorded by an older version of Holdfast.
    """

    name: str
    rows: int | None
    updated: int
    removed: int
    late_rows: int
    memory_bytes: int
    commit_ms: int
    partitions: int
    store: Mapping[str, int] = field(default_factory=dict)
    keyed: KeyedProgress | None = None
    spark_name: str | None = None
    display_name: str | None = None
    operator_kind: str | None = None
    update_ms: int | None = None


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """A key among the most frequent ones.

    Attributes:
        key: The key's values as JSON, in the order of the key's columns.
        rows: The number of rows of this key among those examined; an upper bound.
        share: The key's share of the rows examined.
        partition: The key's partition by Spark's hash; None if the number of partitions is unknown.

    Example:
        orders = spark.createDataFrame([("ann",), ("ann",), ("bob",), ("cy",)], "customer string")
        heaviest = hf.skew.report(orders, by="customer").heavy[0]
        assert (heaviest.key, heaviest.rows, heaviest.share) == (("ann",), 2, 0.5)
    """

    key: tuple[Any, ...]
    rows: int
    share: float
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class SkewReport(JsonShape):
    """The distribution of a frame's or a batch's rows over its keys.

    Attributes:
        name: The name of the watched frame or stream.
        by: The columns of the key.
        rows: The number of rows.
        looked_at: The number of rows examined: all, or a sample.
        heavy: The most frequent keys, the heaviest first.
        error: The maximum error of a share. Every key with a share above twice the error is in `heavy`,
            unless `heavy` is full.
        partitions: The share of each partition, in order; empty if their number is unknown.
        estimated: Whether the shares of partitions are estimated from the heavy keys, with all other rows
            spread evenly.
        batch_id: The batch of a stream, or None.

    Example:
        orders = spark.createDataFrame([("ann",), ("ann",), ("bob",), ("cy",)], "customer string")
        report = hf.skew.report(orders, by="customer", partitions=4)
        assert (report.rows, report.looked_at, len(report.partitions)) == (4, 4, 4)
        assert hf.skew.SkewReport.from_dict(report.as_dict()) == report
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

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> SkewReport:
        """Build a report from the result of `as_dict`, or from its JSON."""
        return from_plain(cls, fields)


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """The durations of the tasks of one batch.

    Attributes:
        jobs_ms: The time during which at least one job of the batch ran, in milliseconds; the rest is driver
            time.
        run_ms: The total time of all tasks, in milliseconds.
        longest_ms: The sum of the longest task of each stage, at most `jobs_ms`, in milliseconds. With these
            partitions, more cores cannot make the jobs faster than this.
    """

    jobs_ms: int
    run_ms: int
    longest_ms: int


# The units of a source's offsets.
RECORDS = "records"
VERSIONS = "versions"


@dataclass(frozen=True, slots=True)
class PartitionPosition(JsonShape):
    """The offsets of a topic's partition before and after a batch.

    Attributes:
        topic: The topic, or the Delta table.
        partition: The partition; None for a table, and for a topic with very many partitions, which is
            reported as a whole.
        next: The offset of the first record left for the next batch, or the first version of a table.
        latest: The end offset of the partition, or the next version of a table.
        unit: `records`, or `versions` of a Delta table.
    """

    topic: str
    partition: int | None
    next: int
    latest: int
    unit: str = RECORDS

    @property
    def behind(self) -> int:
        """The number of records, or versions, not read yet."""
        return max(self.latest - self.next, 0)


@dataclass(frozen=True, slots=True)
class SourceProgress(JsonShape):
    """The input of a batch from one source.

    Attributes:
        source: The number of the source, as shown by `holdfast offsets`.
        description: Spark's description, such as `KafkaV2[Subscribe[orders]]`.
        rows: The number of rows read.
        positions: The offsets of each partition; empty for a source that does not report its latest offsets.
    """

    source: int
    description: str
    rows: int
    positions: tuple[PartitionPosition, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchProgress(JsonShape):
    """One committed batch of one query.

    Attributes:
        query: The name of the sink.
        batch_id: Spark's id of the batch.
        committed_ms: The time at which Holdfast learned of the commit, in epoch milliseconds.
        input_rows: The number of rows read from the sources.
        duration_ms: The duration of the trigger, in milliseconds.
        watermark: The watermark of the batch in Spark's format, or None.
        operators: The metrics of the stateful operators, in plan order.
        late_events: The number of late events in keyed operators, which Spark does not count.
        skew: The distribution of the watched keys.
        phases_ms: The duration of each phase of the trigger in milliseconds, by Spark's names: `addBatch`,
            `walCommit`, ….
        input_rate: The number of arriving rows per second since the previous trigger.
        processed_rate: The number of processed rows per second.
        load_ms: The total time of the batch's tasks for loading state, in milliseconds; None if Spark does
            not report it.
        commit_ms: The time to write the commit log, in milliseconds.
        interval_ms: The trigger interval in milliseconds; None without one, or if unknown.
        cores: The number of tasks that can run at once; None if not measured.
        tasks: The durations of the batch's tasks; None if not measured, which some batches are not.
        sources: The input from each source.
        real_time: Whether the batch ran in real-time mode, where each batch lasts `interval_ms`.
        measured: False for a batch that is known from the files of the checkpoint alone. They contain neither
            rows nor memory, so all counts are 0. `duration_ms` is the time from the end of planning to the
            commit, or 0 on a storage that keeps no such times; the size of the state is that of its files.

    Example:
        from pathlib import Path

        checkpoint = Path("checkpoints/drinks").absolute()
        query = events.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        with hf.watch(query, name="drinks") as watch:
            query.processAllAvailable()
            query.stop()
        batches: tuple[hf.BatchProgress, ...] = watch.batches()
        assert [batch.input_rows for batch in batches] == [1]
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
    phases_ms: Mapping[str, int] = field(default_factory=dict)
    input_rate: float | None = None
    processed_rate: float | None = None
    load_ms: int | None = None
    commit_ms: int = 0
    interval_ms: int | None = None
    cores: int | None = None
    tasks: TaskTimes | None = None
    sources: tuple[SourceProgress, ...] = ()
    real_time: bool = False
    measured: bool = True

    @property
    def took_ms(self) -> int | None:
        """The duration in milliseconds; None if it is unknown."""
        return self.duration_ms if self.measured or self.duration_ms else None

    @property
    def rows_read(self) -> int | None:
        """The number of rows read from the sources; None if it is unknown."""
        return self.input_rows if self.measured else None

    @property
    def state_rows(self) -> int | None:
        """The number of rows, or keys, in the state of all operators; None if any is not counted."""
        if not self.measured:
            return None
        rows = [operator.rows for operator in self.operators]
        known = [count for count in rows if count is not None]
        return sum(known) if len(known) == len(rows) else None

    @property
    def state_text(self) -> str:
        """The number of rows in state, as text."""
        rows = self.state_rows
        return "state rows not counted yet" if rows is None else f"state {rows:,} rows"

    @property
    def late_rows(self) -> int:
        """The number of late rows in this batch, including late events of keyed operators."""
        return self.late_events + sum(operator.late_rows for operator in self.operators)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> BatchProgress:
        """Build a batch from the result of `as_dict`."""
        return from_plain(cls, fields)


@dataclass(frozen=True, slots=True)
class SavepointNote:
    """The result of a savepoint that a supervisor tried to take of its job.

    Attributes:
        query: The name of the query.
        at_ms: The time of the savepoint or of the failure, in epoch milliseconds.
        took_ms: The duration, in milliseconds.
        uri: The address of the savepoint; None if it failed.
        batch_id: The batch of the savepoint.
        size_bytes: The size of the savepoint's files in bytes.
        new_bytes: The size of the files that the catalog did not have yet, in bytes.
        problem: The failure in one line; None if the savepoint was taken.
    """

    query: str
    at_ms: int
    took_ms: int | None
    uri: str | None = field(metadata=json_as("savepoint"))
    batch_id: int | None
    size_bytes: int | None
    new_bytes: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class QueryStarted:
    """A query that a driver has started.

    Attributes:
        name: The name of the sink.
        query_id: Spark's permanent id of the query.
        run_id: Spark's id of this run.
        checkpoint: The checkpoint of the query.
        promise: The delivery guarantee of the sink, with the reason.
    """

    name: str
    query_id: str
    run_id: str
    checkpoint: str
    promise: str


class Verdict(str, Enum):
    """The effect of new code on a state; the value is for programs, `word` and `means` are for display."""

    MAP = "MAP"
    MIGRATE = "MIGRATE"
    DROP = "DROP"
    NEW = "NEW"
    INCOMPATIBLE = "INCOMPATIBLE"
    REINTERPRET = "REINTERPRET"

    @property
    def word(self) -> str:
        """The verdict as one word, for tables."""
        return _VERDICTS[self][0]

    @property
    def means(self) -> str:
        """The explanation of the verdict."""
        return _VERDICTS[self][1]


_VERDICTS: Final[Mapping[Verdict, tuple[str, str]]] = {
    Verdict.MAP: ("kept", "the new code uses this state unchanged"),
    Verdict.MIGRATE: ("kept, new schema", "the new code reads this state through its new schema"),
    Verdict.DROP: ("lost", "the new code does not have this state; its rows are dropped"),
    Verdict.NEW: ("new", "the savepoint does not have this state; it starts empty"),
    Verdict.INCOMPATIBLE: ("refused", "the new code cannot read this state; the query would not start"),
    Verdict.REINTERPRET: (
        "reinterpreted",
        "the new code would use rows that different code computed: see the changes",
    ),
}


class Effect(str, Enum):
    """The effect of a changed query on the meaning of its state.

    `NONE`: no effect. `IGNORED`: Spark uses the checkpoint's value instead of the code's. `OUTPUT`: the state
    stays correct, but the output changes. `MEANING`: existing rows of state were computed without the change.
    `FAILS`: the query does not start.
    """

    NONE = "none"
    IGNORED = "ignored"
    OUTPUT = "output"
    MEANING = "meaning"
    FAILS = "fails"

    @property
    def word(self) -> str:
        """The effect as text."""
        return _EFFECTS[self]


_EFFECTS: Final[Mapping[Effect, str]] = {
    Effect.NONE: "no effect",
    Effect.IGNORED: "ignored",
    Effect.OUTPUT: "changes the output, not the state",
    Effect.MEANING: "changes the meaning of existing state",
    Effect.FAILS: "the query would not start",
}


@dataclass(frozen=True, slots=True)
class StateVerdict(JsonShape):
    """The verdict on one state of one operator.

    Attributes:
        operator: Spark's number and name of the operator, such as `0 dedupe`, or the name of a keyed
            operator.
        state: The name of the state; `default` for an unnamed one.
        verdict: The effect of the new code on the state.
        why: The reason, in one sentence.
        keys: The number of rows; None if not counted.
        size_bytes: The size of the operator's files in bytes; None for a new operator.
        spark_error: The condition of the error with which Spark would refuse to start; None without one.
        operator_id: Spark's number of the operator; None for a keyed operator.
        display_name: The name of the operator to show; empty if it equals `operator`.
        operator_kind: The operation as Spark's documentation names it; empty if unknown.
        state_name: The name of the state to show; empty if it equals `state`.
    """

    operator: str
    state: str
    verdict: Verdict
    why: str = ""
    keys: int | None = None
    size_bytes: int | None = None
    spark_error: str | None = None
    operator_id: int | None = None
    display_name: str = ""
    operator_kind: str = ""
    state_name: str = ""


@dataclass(frozen=True, slots=True)
class PlanChange(JsonShape):
    """A difference between the old code and the new code.

    Attributes:
        what: The part that differs: `filter`, `watermark`, `source`, `sink`, `setting`, ….
        before: The value in the old code; None if missing.
        after: The value in the new code; None if missing.
        effect: The effect of the change.
        why: The reason, in one sentence.
        operator_id: Spark's number of the stateful operator that differs; None for any other change.
        affects: Spark's numbers of the operators whose state is computed differently; None for all of them.
    """

    what: str
    before: str | None
    after: str | None
    effect: Effect
    why: str = ""
    operator_id: int | None = field(default=None, compare=False, metadata=NOT_IN_JSON)
    affects: tuple[int, ...] | None = field(default=None, compare=False, metadata=NOT_IN_JSON)


@dataclass(frozen=True, slots=True)
class Try:
    """The result of planning the next batch in Spark, on a copy without sources and sinks.

    Attributes:
        ran: Whether the plan was tried.
        accepted: Whether Spark planned the batch.
        spark_error: The condition of Spark's error, or None.
        message: Spark's error, or the reason why the plan was not tried.
    """

    ran: bool
    accepted: bool
    spark_error: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class UpgradeReport(JsonShape):
    """A report on which state of a savepoint or checkpoint new code would keep.

    Attributes:
        target: The new code.
        against: The savepoint or checkpoint.
        query: The name of the sink, or None.
        batch_id: The batch of the savepoint or checkpoint.
        states: A verdict for each state.
        changes: All other differences.
        trial: The result of planning the next batch in Spark.
        compared_with: The origin of the old plan: `note`, `old code`, or None without one.
        not_compared: The parts that could not be compared, with the reason.
        migration: Further options that `state migrate --code` needs to convert the refused state for the new
            code, possibly empty. None if a migration does not help, or no state is refused.
        next: The command that plans this migration; None if there is no migration, and in the result of
            `hf.check`.

    Example:
        by_drink = events.groupBy("customer", "drink").count()
        report = hf.check(by_drink.writeStream.outputMode("update"), against="savepoints@daily")
        assert report.verdict == "fails"
        for state in report.states:
            print(state.display_name, state.verdict.value, state.why)
    """

    target: str
    against: str
    query: str | None
    batch_id: int
    states: tuple[StateVerdict, ...]
    changes: tuple[PlanChange, ...]
    trial: Try = field(metadata=json_as("try"))
    compared_with: str | None
    not_compared: tuple[str, ...] = ()
    migration: str | None = None
    next: str | None = None

    @property
    @in_json
    def verdict(self) -> str:
        """`kept`, `loses` (some state is lost or reinterpreted), or `fails`."""
        verdicts = {state.verdict for state in self.states}
        effects = {change.effect for change in self.changes}
        if Verdict.INCOMPATIBLE in verdicts or Effect.FAILS in effects:
            return "fails"
        loses = verdicts & {Verdict.DROP, Verdict.REINTERPRET} or Effect.MEANING in effects
        return "loses" if loses else "kept"

    @property
    def exit_code(self) -> int:
        """0 if all state is kept, 1 if some would be lost, 2 if the query would not start."""
        return {"kept": 0, "loses": 1, "fails": 2}[self.verdict]


@dataclass(frozen=True, slots=True)
class TrialBatch:
    """The measurements of a batch that a query ran in a sandbox.

    Attributes:
        batch_id: The id of the batch.
        input_rows: The number of rows read.
        began_s: The start of the batch's work, after planning, in seconds of the monotonic clock.
        work_ms: The time from `began_s` to the commit, in milliseconds.
        load_ms: The total time of the batch's tasks for loading state, in milliseconds; None if the store
            does not report it.
    """

    batch_id: int
    input_rows: int
    began_s: float
    work_ms: int
    load_ms: int | None
