"""Savepoints of any Structured Streaming query: consistent copies of a checkpoint that can be verified.

`take` copies a checkpoint at a committed batch into a catalog, `verify` proves that the copy is unchanged,
`digest` records the count and hash of its rows, `label` names it, `diff` compares two states key by key,
`restore` and `fork` create checkpoints from it, `rescale` creates one with a different number of partitions,
and `delete` and `gc` remove files that no savepoint needs.

The address of a savepoint is `DIR/ID` or the beginning of it, `DIR@LABEL`, or the full address that `take`
returns.

Example:
    saved = hf.savepoints.take("checkpoints/visits", "savepoints", label="before-upgrade")
    assert hf.savepoints.verify("savepoints@before-upgrade").ok
    restored = hf.savepoints.restore(saved.uri, "checkpoints/visits-restored")
    assert restored.batch_id == 11
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.changes.partitions import RescalePlan, RescaleReport, plan_rescale, rescale
    from holdfast.changes.take_and_restore import fork, restore, take, take_and_retain
    from holdfast.formats.manifest import LabelChange, Manifest
    from holdfast.savepoints.catalog import Listed
    from holdfast.savepoints.digests import Digested
    from holdfast.savepoints.key_diff import StatesDifference
    from holdfast.savepoints.manifest_diff import Difference
    from holdfast.savepoints.periodic import PeriodicTake
    from holdfast.savepoints.planning import TakePlan
    from holdfast.savepoints.proof import Proof
    from holdfast.savepoints.removal import Removal
    from holdfast.savepoints.restoring import Restored, RestoreKind, RestorePlan
    from holdfast.savepoints.savepoint_api import (
        delete,
        diff,
        diff_files,
        digest,
        gc,
        label,
        list,  # noqa: A004 - as people say
        plan_delete,
        plan_fork,
        plan_gc,
        plan_restore,
        plan_take,
        show,
        verify,
    )
    from holdfast.savepoints.taking import Taken

__all__ = [
    "Difference",
    "Digested",
    "LabelChange",
    "Listed",
    "Manifest",
    "PeriodicTake",
    "Proof",
    "Removal",
    "RescalePlan",
    "RescaleReport",
    "RestoreKind",
    "RestorePlan",
    "Restored",
    "StatesDifference",
    "TakePlan",
    "Taken",
    "delete",
    "diff",
    "diff_files",
    "digest",
    "fork",
    "gc",
    "label",
    "list",
    "plan_delete",
    "plan_fork",
    "plan_gc",
    "plan_rescale",
    "plan_restore",
    "plan_take",
    "rescale",
    "restore",
    "show",
    "take",
    "take_and_retain",
    "verify",
]

_HOMES: Final = {
    "Difference": "holdfast.savepoints.manifest_diff",
    "Digested": "holdfast.savepoints.digests",
    "LabelChange": "holdfast.savepoints.labels",
    "Listed": "holdfast.savepoints.catalog",
    "Manifest": "holdfast.formats.manifest",
    "PeriodicTake": "holdfast.savepoints.periodic",
    "Proof": "holdfast.savepoints.proof",
    "Removal": "holdfast.savepoints.removal",
    "RescalePlan": "holdfast.changes.partitions",
    "RescaleReport": "holdfast.changes.partitions",
    "RestoreKind": "holdfast.savepoints.restoring",
    "RestorePlan": "holdfast.savepoints.restoring",
    "Restored": "holdfast.savepoints.restoring",
    "StatesDifference": "holdfast.savepoints.key_diff",
    "TakePlan": "holdfast.savepoints.planning",
    "Taken": "holdfast.savepoints.taking",
    "fork": "holdfast.changes.take_and_restore",
    "plan_rescale": "holdfast.changes.partitions",
    "rescale": "holdfast.changes.partitions",
    "restore": "holdfast.changes.take_and_restore",
    "take": "holdfast.changes.take_and_restore",
    "take_and_retain": "holdfast.changes.take_and_restore",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it, so that reading a savepoint loads nothing else."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(_HOMES.get(name, "holdfast.savepoints.savepoint_api"))
    value: object = getattr(home, name)
    globals()[name] = value
    return value
