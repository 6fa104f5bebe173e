from __future__ import annotations

import shutil
import threading
from pathlib import Path

from served import NOW_MS, Served

from holdfast import savepoints
from holdfast.jobs.operation_executor import OperationExecutor
from holdfast.jobs.operation_verbs import OperationContext, TakeSavepointVerb
from holdfast.jobs.registry import operation_log as arguments
from holdfast.jobs.registry.operation_log import Operations, OperationState
from holdfast.model import QueryStarted

OPERATION = "cd" * 16


def test_savepoints_of_some_queries_outlast_a_server_that_is_killed_after_them(tmp_path: Path) -> None:
    served = Served(tmp_path)
    visits = served.checkpoint()
    sales = visits.with_name("sales")
    shutil.copytree(visits, sales)
    served.job(checkpoint=visits.parent)
    started = [
        QueryStarted("visits", "id-1", "run", visits.as_uri(), "x"),
        QueryStarted("sales", "id-2", "run", sales.as_uri(), "x"),
    ]
    served.registry.queries_started("shop", 2, started, NOW_MS)
    catalog = tmp_path / "catalog"
    wanted = arguments.TakeSavepoint(catalog.as_uri(), queries=("visits",))
    operations = Operations(served.home)
    operations.ask(OPERATION, "savepoint", "shop", wanted, NOW_MS)
    begun = operations.begin(OPERATION, "server that is dead", NOW_MS)
    assert begun is not None
    # It takes the savepoint, and is killed before it has written that down.
    TakeSavepointVerb().run(
        OperationContext(
            begun, wanted, served.home, served.registry, operations, lambda: NOW_MS, threading.Event()
        )
    )
    (taken,) = savepoints.list(catalog)
    OperationExecutor(served.home, lambda: NOW_MS).recover()
    done = operations.get(OPERATION)
    assert done.state is OperationState.COMPLETED, done.error
    assert done.result is not None
    assert [(each["query"], each["batch"]) for each in done.result["savepoints"]] == [("visits", 11)]
    assert savepoints.list(catalog) == (taken,)
