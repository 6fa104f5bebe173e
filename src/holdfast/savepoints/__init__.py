"""Savepoints of any Structured Streaming query: consistent copies that prove themselves.

`take` copies a checkpoint at a committed batch into a catalog, `verify` proves that it is still what was
taken, `diff` puts two states beside each other key by key, `restore` and `fork` make checkpoints of it,
`rescale` one with other partitions, `delete` and `gc` remove what nobody needs.
"""

from holdfast.savepoints.catalog import Listed
from holdfast.savepoints.difference import Difference
from holdfast.savepoints.proof import Proof
from holdfast.savepoints.public import (
    delete,
    diff,
    diff_files,
    fork,
    gc,
    list,  # noqa: A004 - as people say
    plan_rescale,
    rescale,
    restore,
    show,
    take,
    verify,
)
from holdfast.savepoints.removal import Removal
from holdfast.savepoints.restoring import Restored
from holdfast.savepoints.taking import Taken

__all__ = [
    "Difference",
    "Listed",
    "Proof",
    "Removal",
    "Restored",
    "Taken",
    "delete",
    "diff",
    "diff_files",
    "fork",
    "gc",
    "list",
    "plan_rescale",
    "rescale",
    "restore",
    "show",
    "take",
    "verify",
]
