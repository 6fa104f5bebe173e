"""The shapes of our own resources. Fields are only ever added."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """What all shapes have in common: they are answers, and nobody changes them."""

    model_config = ConfigDict(frozen=True)


class Measured(Shape):
    """What measuring brings new fields to, which are passed on."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Problem(Shape):
    """An error, in the one shape that it has on the command line too."""

    error: str = Field(description="What is wrong, in a sentence.")
    kind: str = Field(
        description="What the caller does next: `invalid` fix the request, `not-found` check the address,"
        " `conflict` plan again, `unavailable` try again, `corrupt` restore, `unsupported` change version or"
        " feature, `failed` mend the job, `internal` report a bug; `unauthorized` show a token."
    )
    exit_code: int | None = Field(description="What the command line would exit with.")
    where: str | None = Field(description="The file, setting or address that it is about.")
    found: str | None = Field(description="What was there.")
    expected: str | None = Field(description="What would have been right.")
    hint: str | None = Field(description="The next command or step.")


class Job(Shape):
    """A job of the state home."""

    name: str = Field(description="Its name, unique within the state home.")
    job_id: str = Field(description="32 hexadecimal digits that depend on the name alone.")
    target: str = Field(description="The job file, and the job in it.")
    checkpoint: str = Field(description="Where its queries keep their state.")
    on_cancel: str = Field(description="Whether a cancelled job's checkpoint is kept: `retain` or `delete`.")
    state: str = Field(description="Where it stands, in Flink's words.")
    reason: str | None = Field(description="Why it is there, if somebody or something ended it.")
    started_ms: int = Field(description="When its supervisor took it up, in epoch milliseconds.")
    updated_ms: int = Field(description="When anything was last heard of it.")
    ended_ms: int | None = Field(description="When it ended for good.")
    supervisor_pid: int = Field(description="The process of its supervisor.")
    supervised: bool = Field(description="Whether that process lives.")


class Jobs(Shape):
    """All jobs, the most recently started first."""

    jobs: list[Job]


class Query(Shape):
    """A query of a job, as its newest driver started it."""

    name: str = Field(description="The sink's name.")
    query_id: str = Field(description="Spark's id of the query, for life.")
    run_id: str = Field(description="Spark's id of this run.")
    checkpoint: str = Field(description="Its checkpoint.")
    promise: str = Field(description="What its sink promises, and why.")


class Failure(Measured):
    """Why a driver ended."""

    label: str = Field(description="Where it happened.")
    error_class: str = Field(description="The class or condition of the error.")
    line: str = Field(description="The first useful line of its message.")
    query: str | None = Field(description="The query that failed, where one did.")
    detail: str = Field(description="The whole text.")


class Attempt(Measured):
    """One driver of a job, from its start to its end."""

    job: str
    number: int = Field(description="Counted over the job's whole life.")
    driver_pid: int = Field(description="Its process.")
    began_ms: int
    running_ms: int | None = Field(description="When its queries had started.")
    first_commit_ms: int | None = Field(description="When its first batch was committed.")
    ended_ms: int | None
    ending: str | None = Field(
        description="`finished`, `stopped`, `canceled`, `failed`, `lost`, or none yet."
    )
    failure: Failure | None
    recovers: bool = Field(description="Whether it follows a failed one.")


class KeyedState(Shape):
    """One state of a keyed operator after a batch."""

    name: str = Field(description="As the processor names it.")
    entries: int | None = Field(
        description="Keys with a value, elements of lists, entries of maps; none where not counted."
    )
    size_bytes: int | None = Field(description="The bytes of its values before compression.")
    expired: int = Field(description="Values that the batch removed after their time had run out.")


class KeyedProgress(Shape):
    """A keyed operator in one batch, as its own tasks counted it; a total that is not known is none."""

    name: str = Field(description="The user's name of it.")
    keys: int | None = Field(description="Keys that have state.")
    timers: int | None = Field(description="Timers that are registered.")
    size_bytes: int | None = Field(description="The bytes of its key groups before compression.")
    uncounted_groups: int | None = Field(description="Key groups of an older Holdfast, not counted yet.")
    touched: int = Field(description="Keys that the batch looked up.")
    written: int = Field(description="Keys whose state it wrote.")
    added: int = Field(description="Keys that got state.")
    removed: int = Field(description="Keys that have no state any more.")
    expired: int = Field(description="Values that it removed after their time had run out.")
    events: int
    late: int = Field(description="Events that came too late.")
    failed: int = Field(description="Events that were set aside.")
    read_us: int = Field(description="Microseconds that all tasks took to look up keys.")
    write_us: int = Field(description="Microseconds that they took to write keys.")
    states: list[KeyedState]


class OperatorProgress(Measured):
    """One stateful operator in one batch."""

    name: str = Field(description="Spark's name of it; of a keyed operator its user's.")
    rows: int | None = Field(
        description="Rows in its state; of a keyed operator its keys, none while they are not counted."
    )
    updated: int = Field(description="Rows, or keys, that were written.")
    removed: int = Field(description="Rows, or keys, that were taken out.")
    late_rows: int = Field(description="Rows that it dropped as late.")
    memory_bytes: int
    commit_ms: int = Field(description="How long its stores took to be committed.")
    partitions: int
    keyed: KeyedProgress | None = Field(None, description="What a keyed operator counted itself.")
    spark_name: str | None = Field(None, description="Spark's name of a keyed operator.")


class HeavyKey(Shape):
    """One of the most frequent keys."""

    key: list[Any] = Field(description="Its values, in the order of the key's columns.")
    rows: int
    share: float = Field(description="Its part of the rows that were looked at.")
    partition: int | None


class Skew(Shape):
    """How unevenly rows are spread over their keys."""

    name: str
    by: list[str] = Field(description="The columns of the key.")
    rows: int
    looked_at: int
    heavy: list[HeavyKey] = Field(description="The most frequent keys, the heaviest first.")
    error: float = Field(description="How far off a share may be, either way.")
    partitions: list[float] = Field(description="The share of each partition.")
    estimated: bool
    batch_id: int | None


class Batch(Measured):
    """A committed batch, as the driver reported it."""

    query: str
    batch_id: int
    committed_ms: int
    input_rows: int
    duration_ms: int
    watermark: str | None
    operators: list[OperatorProgress]
    late_events: int = 0
    skew: list[Skew] = []


class Batches(Shape):
    """Batches, oldest first."""

    batches: list[Batch]


class SavepointNote(Shape):
    """A savepoint that a supervisor took of its job, or failed to take."""

    query: str
    at_ms: int
    took_ms: int | None
    uri: str | None = Field(description="Its address; none if there is none.")
    batch_id: int | None
    size_bytes: int | None
    new_bytes: int | None
    problem: str | None = Field(description="What did not work.")


class JobDetails(Job):
    """All that is known of one job."""

    queries: list[Query]
    attempts: list[Attempt] = Field(description="Its drivers, oldest first.")
    batches: list[Batch] = Field(description="Its newest batches, oldest first.")
    savepoints: list[SavepointNote]
    recoveries: list[dict[str, Any]] = Field(description="What each recovery took, by phase.")
    leader: dict[str, Any] | None = Field(description="Who leads, where several supervisors stand by.")
    recoveries_ms: list[int] = Field(description="For each recovery, from the failure to the first commit.")
    late_rows: int = Field(description="Rows dropped as late in these batches.")


class Asked(Shape):
    """A job that was asked for something; it happens after this answer."""

    job: str
    asked: str = Field(description="`stop` or `cancel`.")


class CheckpointOperator(Shape):
    """A stateful operator of a checkpoint."""

    model_config = ConfigDict(extra="allow")
    operator_id: int
    name: str
    partitions: int
    stores: list[str]
    format_version: int
    variables: list[str]
    size_bytes: int
    new_bytes: int


class Checkpoint(Shape):
    """A query's checkpoint at its newest committed batch, out of its files."""

    checkpoint: str = Field(description="Its address.")
    query_id: str
    batch: int | None = Field(description="The newest committed batch.")
    uncommitted: int | None = Field(description="The batch that is planned and not committed.")
    oldest_batch: int | None
    batches: int = Field(description="How many committed batches are kept.")
    watermark_ms: int | None
    planned_ms: int | None
    provider: str | None = Field(description="The state store.")
    size_bytes: int = Field(description="The bytes of state that a restart reads.")
    new_bytes: int = Field(description="The bytes of state that the newest batch added.")
    sources: list[Any]
    operators: list[CheckpointOperator]
    confs: dict[str, str] = Field(description="The settings that the checkpoint has fixed.")
    log_versions: dict[str, int] | None


class BatchFailure(Shape):
    """A driver that failed before a batch was committed."""

    attempt: int = Field(description="The number of the driver.")
    at_ms: int
    cause: str = Field(description="Whose it is to mend.")
    error: str = Field(description="The error in a line.")


class BatchFiles(Shape):
    """What a committed batch added to a checkpoint."""

    batch: int
    planned_ms: int
    watermark_ms: int | None
    next_watermark_ms: int | None
    committed_ms: int | None = Field(description="When it was committed; none where nothing tells.")
    duration_ms: int | None = Field(description="How long it took; none where nothing tells.")
    duration_source: str | None = Field(
        description="`registry` where a driver reported it; `files`, an estimate by the times of log files."
    )
    failures: list[BatchFailure] | None = Field(description="The drivers that failed before it was done.")
    files: int
    new_bytes: int
    size_bytes: int = Field(description="The bytes of state after it.")
    offsets: dict[str, Any] = Field(description="The end of each source.")
    operators: list[dict[str, Any]]


class CheckpointHistory(Shape):
    """The committed batches that a checkpoint still keeps, oldest first."""

    checkpoint: str
    batches: list[BatchFiles]


class JobSkew(Shape):
    """What the newest batches of a job tell of its keys."""

    reports: list[dict[str, Any]] = Field(description="A report for each query and name that is watched.")
