"""Every kind of operation that a serving process does by itself; a rescale is its job's supervisor's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.jobs.making_verbs import Fork, Restore
from holdfast.jobs.reading_verbs import Checkpoint, Diff, Verify
from holdfast.jobs.savepoint_verbs import Dispose, Savepoint, Stop
from holdfast.jobs.work import Verb

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
