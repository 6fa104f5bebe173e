"""The shapes of our own resources. Fields are only ever added."""

from __future__ import annotations

from pydantic import Field

from holdfast import model
from holdfast.checkpoints import values
from holdfast.jobs.recovery import timings
from holdfast.jobs.registry.client import JobDetails as KnownJob
from holdfast.jobs.registry.client import JobStatus
from holdfast.jobs.registry.registry import Attempt as Driver
from holdfast.server.api_v1.shapes import Measured, Shape


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


class Job(Shape, of=JobStatus):
    """A job of the state home."""


class Jobs(Shape):
    """All jobs, the most recently started first."""

    jobs: list[Job] = Field(description="The jobs.")


class Query(Shape, of=model.QueryStarted):
    """A query of a job, as its newest driver started it."""


class Failure(Measured, of=model.Failure):
    """Why a driver ended."""


class Attempt(Measured, of=Driver):
    """One driver of a job, from its start to its end."""


class KeyedState(Shape, of=model.KeyedState):
    """One state of a keyed operator after a batch."""


class KeyedProgress(Shape, of=model.KeyedProgress):
    """A keyed operator in one batch, as its own tasks counted it; a total that is not known is none."""


class OperatorProgress(Measured, of=model.OperatorProgress):
    """One stateful operator in one batch."""


class HeavyKey(Shape, of=model.HeavyKey):
    """One of the most frequent keys."""


class Skew(Shape, of=model.SkewReport):
    """How unevenly rows are spread over their keys."""


class Batch(Measured, of=model.BatchProgress):
    """A committed batch, as the driver reported it."""


class Batches(Shape):
    """Batches, oldest first."""

    batches: list[Batch] = Field(description="The batches.")


class SavepointNote(Shape, of=model.SavepointNote):
    """A savepoint that a supervisor took of its job, or failed to take."""


class Recovery(Shape, of=timings.Recovery):
    """What the recovery of a job took."""


class JobDetails(Job, of=KnownJob):
    """All that is known of one job."""


class Asked(Shape):
    """A job that was asked for something; it happens after this answer."""

    job: str = Field(description="Its name.")
    asked: str = Field(description="`stop` or `cancel`.")


class CheckpointOperator(Measured, of=values.Operator):
    """A stateful operator of a checkpoint."""


class Checkpoint(Shape, of=values.Checkpoint):
    """A query's checkpoint at its newest committed batch, out of its files."""


class BatchFailure(Shape, of=values.BatchFailure):
    """A driver that failed before a batch was committed."""


class BatchFiles(Shape, of=values.Batch):
    """What a committed batch added to a checkpoint."""

    size_bytes: int = Field(description="The bytes of state after it.")


class CheckpointHistory(Shape):
    """The committed batches that a checkpoint still keeps, oldest first."""

    checkpoint: str = Field(description="Its address.")
    batches: list[BatchFiles] = Field(description="The batches.")


class WatchedSkew(Skew):
    """How unevenly the rows of a query are spread over their keys."""

    query: str = Field(description="The sink's name.")


class JobSkew(Shape):
    """What the newest batches of a job tell of its keys."""

    reports: list[WatchedSkew] = Field(description="A report for each query and name that is watched.")
