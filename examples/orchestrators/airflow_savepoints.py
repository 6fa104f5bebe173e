"""An Airflow DAG that takes a savepoint of a job every night, verifies it, and restarts the job.

Put this file and holdfast_api.py into the DAGs folder, and name the server in a connection:

    export AIRFLOW_CONN_HOLDFAST_DEFAULT='http://:TOKEN@jobs.internal:8081'

A retry of a task continues the operation that the first try has started.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.sdk import DAG, BaseHook, BaseOperator
from holdfast_api import Holdfast


class HoldfastOperator(BaseOperator):
    """The base of the operators: the connection, and the name of a run."""

    def __init__(self, *, conn_id: str = "holdfast_default", **given: Any) -> None:
        super().__init__(**given)
        self.conn_id = conn_id

    def server(self) -> Holdfast:
        """Return the client of the connection's server."""
        connection = BaseHook.get_connection(self.conn_id)
        address = f"{connection.conn_type}://{connection.host}:{connection.port or 8081}"
        return Holdfast(address, connection.password)

    def run_of(self, context: Any) -> str:
        """Return the name of this task in this run, the same for each try."""
        task = context["ti"]
        return f"{task.dag_id} {task.run_id} {task.task_id} {task.map_index}"


class TakeSavepoint(HoldfastOperator):
    """Take a savepoint of each query of a job; the task returns their addresses."""

    template_fields: Sequence[str] = ("job", "savepoint_label")

    def __init__(self, *, job: str, savepoint_label: str | None = None, **given: Any) -> None:
        super().__init__(**given)
        self.job = job
        self.savepoint_label = savepoint_label

    def execute(self, context: Any) -> list[str]:
        """Take the savepoints."""
        return self.server().take_savepoint(self.job, self.run_of(context), self.savepoint_label)


class VerifySavepoint(HoldfastOperator):
    """Verify a savepoint; the task fails if it is damaged."""

    template_fields: Sequence[str] = ("savepoint",)

    def __init__(self, *, savepoint: str, **given: Any) -> None:
        super().__init__(**given)
        self.savepoint = savepoint

    def execute(self, context: Any) -> None:
        """Verify the savepoint."""
        self.server().verify(self.savepoint, self.run_of(context))


class RestartJob(HoldfastOperator):
    """Restart a running job between two batches, with the job file as it is now."""

    template_fields: Sequence[str] = ("job",)

    def __init__(self, *, job: str, **given: Any) -> None:
        super().__init__(**given)
        self.job = job

    def execute(self, context: Any) -> None:
        """Restart the job."""
        self.server().restart(self.job, self.run_of(context))


with DAG(
    "nightly_savepoint",
    schedule="0 3 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
    params={"job": "orders"},
) as nightly:
    taken = TakeSavepoint(task_id="take", job="{{ params.job }}", savepoint_label="{{ dag_run.run_id }}")
    verified = VerifySavepoint.partial(task_id="verify").expand(savepoint=taken.output)
    restarted = RestartJob(task_id="restart", job="{{ params.job }}")
    _ = taken >> verified >> restarted
