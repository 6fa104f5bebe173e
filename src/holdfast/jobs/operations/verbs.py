"""Every kind of operation that a serving process does by itself; a rescale is its job's supervisor's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.jobs.operations.operation_context import Verb
from holdfast.jobs.operations.restore_fork import Fork, Restore
from holdfast.jobs.operations.savepoint_verbs import Dispose, Savepoint, Stop
from holdfast.jobs.operations.verify_diff import Checkpoint, Diff, Verify

VERBS: Final[Mapping[str, Verb]] = {
    "savepoint": Savepoint(),
    "stop": Stop(),
    "dispose": Dispose(),
    "checkpoint": Checkpoint(),
    "verify": Verify(),
    "diff": Diff(),
    "fork": Fork(),
    "restore": Restore(),
}
# Those whose result lists the `savepoints` that they have taken.
TAKES: Final = ("savepoint", "stop")
