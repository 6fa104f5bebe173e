"""A Dagster job that takes a savepoint of a streaming job every night, verifies it, and restarts the job.

    export HOLDFAST_URL=http://jobs.internal:8081 HOLDFAST_TOKEN=…
    dagster dev -f dagster_savepoints.py

A retry of an op continues the operation that the first try has started.
"""

from dagster import Config as OpConfig
from dagster import (
    ConfigurableResource,
    Definitions,
    EnvVar,
    In,
    Nothing,
    OpExecutionContext,
    RetryPolicy,
    RunConfig,
    ScheduleDefinition,
    job,
    op,
)
from holdfast_api import Holdfast

RETRIES = RetryPolicy(max_retries=3, delay=60)


class HoldfastServer(ConfigurableResource):
    """The server of the jobs."""

    url: str
    token: str = ""

    def client(self) -> Holdfast:
        """Return its client."""
        return Holdfast(self.url, self.token or None)


class StreamingJob(OpConfig):
    """The streaming job of an op."""

    name: str = "orders"


def run_of(context: OpExecutionContext) -> str:
    """Return the name of this op in this run, the same for each try."""
    return f"{context.run_id} {context.op_handle}"


@op(retry_policy=RETRIES)
def take_savepoint(context: OpExecutionContext, config: StreamingJob, holdfast: HoldfastServer) -> list[str]:
    """Take a savepoint of each query of the job; return their addresses."""
    return holdfast.client().take_savepoint(config.name, run_of(context), label=context.run_id)


@op(retry_policy=RETRIES)
def verify_savepoints(context: OpExecutionContext, holdfast: HoldfastServer, savepoints: list[str]) -> None:
    """Verify the savepoints; the op fails if one is damaged."""
    for savepoint in savepoints:
        holdfast.client().verify(savepoint, f"{run_of(context)} {savepoint}")
        context.log.info(f"{savepoint} is whole")


@op(retry_policy=RETRIES, ins={"verified": In(Nothing)})
def restart_job(context: OpExecutionContext, config: StreamingJob, holdfast: HoldfastServer) -> None:
    """Restart the job between two batches, with the job file as it is now."""
    holdfast.client().restart(config.name, run_of(context))


@job
def nightly_savepoint() -> None:
    """Take, verify, restart."""
    restart_job(verified=verify_savepoints(take_savepoint()))


defs = Definitions(
    jobs=[nightly_savepoint],
    schedules=[
        ScheduleDefinition(
            job=nightly_savepoint,
            cron_schedule="0 3 * * *",
            run_config=RunConfig(
                ops={name: StreamingJob(name="orders") for name in ("take_savepoint", "restart_job")}
            ),
        )
    ],
    resources={"holdfast": HoldfastServer(url=EnvVar("HOLDFAST_URL"), token=EnvVar("HOLDFAST_TOKEN"))},
)
