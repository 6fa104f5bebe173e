"""Every kind of operation that a serving process does by itself; a rescale is its job's supervisor's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.jobs.operations.operation_context import Verb
from holdfast.jobs.operations.restore_fork import CheckpointMaker
from holdfast.jobs.operations.savepoint_verbs import Dispose, Stop, TakeSavepoint
from holdfast.jobs.operations.verify_diff import AwaitCheckpoint, Diff, Verify
from holdfast.savepoints.savepoint_api import fork, restore

VERBS: Final[Mapping[str, Verb[Any]]] = {
    "savepoint": TakeSavepoint(),
    "stop": Stop(),
    "dispose": Dispose(),
    "checkpoint": AwaitCheckpoint(),
    "verify": Verify(),
    "diff": Diff(),
    "fork": CheckpointMaker("fork", fork),
    "restore": CheckpointMaker("restore", restore),
}
# Those whose result lists the `savepoints` that they have taken.
TAKES: Final = ("savepoint", "stop")
