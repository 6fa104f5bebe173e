"""Frozen values that cross from one room to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_as
from holdfast.plain_values import from_plain


class JobState(str, Enum):
    """The state of a job, in Flink's words."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    CANCELLING = "CANCELLING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"

    @property
    def terminal(self) -> bool:
        """Return whether the job stays in this state until it is run again."""
        return self in (JobState.FINISHED, JobState.CANCELED, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a driver ended, in one line that a person can act on.

    Attributes:
        label: Where it happened: `definition`, `start`, `query`, `process` or `checkpoint`.
        cause: Whose it is to mend: `user code`, `source`, `sink`, `state`, `resources`, or `unknown`.
        error_class: The class or condition of the error, such as `ZeroDivisionError`.
        line: The first useful line of the message.
        query: The query that failed, where one did.
        detail: The whole text, for the log.
        place: The line of the person's own code that it went through last: file, number and text.
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
        """Identify equal failures: everything but the long text and the place."""
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
        name: As the processor names it.
        entries: Keys with a value, elements of a list, entries of a map; None where they are not counted.
        size_bytes: The bytes of its values before compression, former values included that are not cleaned up
            yet; None where they are not counted.
        expired: Values that the batch removed or replaced after their time had run out.
    """

    name: str
    entries: int | None
    size_bytes: int | None
    expired: int


@dataclass(frozen=True, slots=True)
class KeyedProgress:
    """A keyed operator in one batch, as its own tasks counted it. Totals that are not known are None.

    Attributes:
        name: The user's name of the operator.
        keys: Keys that have state.
        timers: Timers that are registered.
        size_bytes: The bytes of all key groups before compression.
        uncounted_groups: Key groups of older checkpoints that are not counted yet; without them no total is
            known.
        touched: Keys that the batch looked up.
        written: Keys whose state it wrote.
        added: Keys that got state.
        removed: Keys that have no state any more.
        expired: Values that it removed or replaced after their time had run out.
        events: Events that arrived.
        late: Those that came too late.
        failed: Those that were set aside.
        read_us: What all tasks took together to look up keys, in microseconds.
        write_us: What they took to write them.
        states: Its states.
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


@dataclass(frozen=True, slots=True)
class OperatorProgress:
    """One stateful operator in one batch, as Spark reported it.

    Spark knows nothing of the keys of Holdfast's keyed operators: name and rows are those that their tasks
    counted themselves.

    Attributes:
        name: Spark's name of it, or the name that a keyed operator has from its user.
        rows: Rows in its state, keys of a keyed operator; None where these are not counted.
        updated: Rows, or keys, that the batch wrote.
        removed: Rows, or keys, that it took out.
        late_rows: Rows that it dropped as late.
        memory_bytes: What its stores take of memory.
        commit_ms: How long its stores took to be committed.
        partitions: How many partitions its state has.
        store: What its store counted in this batch, by Spark's names of it: `rocksdbGetCount`, ….
        keyed: What a keyed operator counted itself; None for others.
        spark_name: Spark's name for what it does; of batches that an older Holdfast noted it may be None.
        display_name: What people call it; None in the same case.
        operator_kind: What it does, in the words of Spark's documentation; None in the same case.
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
class SkewReport(JsonShape):
    """The distribution of a frame's or a batch's rows over its keys.

    Attributes:
        name: What was watched.
        by: The columns of the key.
        rows: All rows.
        looked_at: The rows that the shares are counted from: all of them, or a sample.
        heavy: The most frequent keys, the heaviest first.
        error: How far off a share may be, either way. Every key with more than twice as much is in `heavy`,
            unless that is full.
        partitions: The share of each partition, in their order; empty if their number is not known.
        estimated: Whether these were computed from the heavy keys, with the other rows taken as even,
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

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> SkewReport:
        """Read back what `as_dict` wrote, or JSON made of it."""
        return from_plain(cls, fields)


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """The durations of the tasks of one batch.

    Attributes:
        jobs_ms: How long at least one of the batch's jobs ran; the rest of a batch is the driver's own time.
        run_ms: What all tasks took together.
        longest_ms: The longest task of each stage, one after the other, and no more than `jobs_ms`. However
            many cores there are, the jobs take no less with these partitions.
    """

    jobs_ms: int
    run_ms: int
    longest_ms: int


# What a source counts in.
RECORDS = "records"
VERSIONS = "versions"


@dataclass(frozen=True, slots=True)
class PartitionPosition(JsonShape):
    """The offsets of a topic's partition before and after a batch.

    Attributes:
        topic: The topic, or the Delta table.
        partition: The partition; None for all of the topic, where they are very many, and for a table.
        next: The first record that was left for the next batch, by its offset; the first version of a table.
        latest: The offset that the next record to be written would have got; likewise the version.
        unit: `records`, or `versions` of a Delta table.
    """

    topic: str
    partition: int | None
    next: int
    latest: int
    unit: str = RECORDS

    @property
    def behind(self) -> int:
        """The number of records, or versions, that were left."""
        return max(self.latest - self.next, 0)


@dataclass(frozen=True, slots=True)
class SourceProgress(JsonShape):
    """The input of a batch from one source.

    Attributes:
        source: The source's number, as `holdfast offsets` has it.
        description: What Spark calls it, such as `KafkaV2[Subscribe[orders]]`.
        rows: Rows that were read.
        positions: How far each partition was read; empty for a source that does not say how far it could be.
    """

    source: int
    description: str
    rows: int
    positions: tuple[PartitionPosition, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchProgress(JsonShape):
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
        phases_ms: What the trigger spent its time with, by Spark's names: `addBatch`, `walCommit`, ….
        input_rate: Rows that came in each second since the trigger before.
        processed_rate: Rows that were worked off each second.
        load_ms: What its tasks took together to load state; None where Spark does not tell.
        commit_ms: How long it took to note in the commit log that it is done.
        interval_ms: The interval of the query's trigger; None where it asks for none, or nobody told.
        cores: How many tasks could run at once; None where Spark was not asked.
        tasks: What its tasks took; None where Spark was not asked, which happens for a part of the batches.
        sources: What it read of each source.
        real_time: Whether it ran in real-time mode, where it lasts for `interval_ms` whatever arrives.
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

    @property
    def state_rows(self) -> int | None:
        """Rows in state over all operators, keys of keyed ones; None where one of them is not counted."""
        rows = [operator.rows for operator in self.operators]
        known = [count for count in rows if count is not None]
        return sum(known) if len(known) == len(rows) else None

    @property
    def state_text(self) -> str:
        """The rows in state in words."""
        rows = self.state_rows
        return "state of rows that are not counted yet" if rows is None else f"state {rows:,} rows"

    @property
    def late_rows(self) -> int:
        """Rows that this batch dropped as late, as Spark counts them, and late events of keyed operators."""
        return self.late_events + sum(operator.late_rows for operator in self.operators)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> BatchProgress:
        """Read back what `as_dict` wrote."""
        return from_plain(cls, fields)


@dataclass(frozen=True, slots=True)
class SavepointNote:
    """A savepoint that a supervisor took of its job, or failed to take.

    Attributes:
        query: The query's name.
        at_ms: When it was taken, or when that failed, in epoch milliseconds.
        took_ms: How long it took.
        uri: Its address; None if there is none.
        batch_id: Its batch.
        size_bytes: The bytes of its files.
        new_bytes: Those that the catalog did not hold.
        problem: What did not work, in one line.
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
    """A query as the driver started it.

    Attributes:
        name: The sink's name.
        query_id: Spark's id of the query, for life.
        run_id: Spark's id of this run.
        checkpoint: Its checkpoint.
        promise: What its sink promises, and why.
    """

    name: str
    query_id: str
    run_id: str
    checkpoint: str
    promise: str


class Verdict(str, Enum):
    """The fate of a state under new code; the value is for programs, `word` and `means` for people."""

    MAP = "MAP"
    MIGRATE = "MIGRATE"
    DROP = "DROP"
    NEW = "NEW"
    INCOMPATIBLE = "INCOMPATIBLE"
    REINTERPRET = "REINTERPRET"

    @property
    def word(self) -> str:
        """The word in a table."""
        return _VERDICTS[self][0]

    @property
    def means(self) -> str:
        """The meaning of that word."""
        return _VERDICTS[self][1]


_VERDICTS: Final[Mapping[Verdict, tuple[str, str]]] = {
    Verdict.MAP: ("kept", "the new code uses this state as it is"),
    Verdict.MIGRATE: ("kept, new schema", "the new code reads this state through its new schema"),
    Verdict.DROP: ("lost", "the new code does not have this state, so its rows are dropped"),
    Verdict.NEW: ("new", "the savepoint does not have this state, so it starts empty"),
    Verdict.INCOMPATIBLE: ("refused", "the new code cannot read this state, so the query would not start"),
    Verdict.REINTERPRET: (
        "reinterpreted",
        "the new code would use these rows as its own, but different code computed them: see the changes",
    ),
}


class Effect(str, Enum):
    """The effect of a changed query on the meaning of its state.

    `NONE`: nothing. `IGNORED`: the checkpoint has fixed it, and the code's value is not used. `OUTPUT`: the
    state stays right, and the output differs. `MEANING`: existing rows of state were computed without the
    change. `FAILS`: the query does not start.
    """

    NONE = "none"
    IGNORED = "ignored"
    OUTPUT = "output"
    MEANING = "meaning"
    FAILS = "fails"

    @property
    def word(self) -> str:
        """The effect in words."""
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
    """One state of one operator.

    Attributes:
        operator: Spark's number and name of it, such as `0 dedupe`, or the name that Holdfast's has.
        state: The state's name; `default` where an operator has one that nobody named.
        verdict: What becomes of it.
        why: In a sentence.
        keys: The rows that it has, where they are counted.
        size_bytes: The bytes of its operator's files; None for one that is new.
        spark_error: The condition of the error that a start would give.
        operator_id: Spark's number of the operator; None where it goes by its name.
        display_name: What people call the operator; empty where `operator` says it.
        operator_kind: What it does, in the words of Spark's documentation; empty where nothing tells.
        state_name: What people call the state; empty where `state` says it.
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
        what: `filter`, `watermark`, `source`, `sink`, `setting`, …
        before: In the old code; None where it was not there.
        after: In the new code; None where it is gone.
        effect: What that does.
        why: In a sentence.
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
    """Spark's answer when it planned the next batch on a copy without sources and sinks.

    Attributes:
        ran: Whether the plan could be tried at all.
        accepted: Whether Spark planned the batch.
        spark_error: The condition of its error.
        message: Its error, or why nothing could be tried.
    """

    ran: bool
    accepted: bool
    spark_error: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class UpgradeReport(JsonShape):
    """The state of a savepoint or checkpoint that new code would keep.

    Attributes:
        target: The new code.
        against: The savepoint or checkpoint.
        query: The sink's name, if it has one.
        batch_id: The batch that it holds.
        states: A verdict for each state.
        changes: What else is different.
        trial: What Spark said of the next batch.
        compared_with: Where the old plan came from: `note`, `old code`, or None where there is none.
        not_compared: What could not be looked at, and why.
        migration: What `state migrate --to` needs as well to bring refused state into the form of the new
            code, empty for nothing; None where that does not fix the refusal, or nothing is refused.
        next: The command that shows this migration; None without one, and from `hf.check`.
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
        """0 where all is kept, 1 where something would be lost, 2 where the query would not start."""
        return {"kept": 0, "loses": 1, "fails": 2}[self.verdict]


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
