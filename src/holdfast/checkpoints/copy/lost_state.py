"""Whether a checkpoint has lost the state of an operator of which no file is left.

A query without state keeps no `state` directory, and neither does one whose state was deleted. Under
state-checkpoint format 2 the commit log names every file of state. Under format 1 no file of Spark's tells
the two apart: what tells is a record of good batches, the note of the query's plan, and other operators that
are still there, since Spark numbers them from 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from holdfast import layout
from holdfast.checkpoints.logs.logs import Logs, OperatorFolder, readable
from holdfast.checkpoints.operator_naming import noted_plan
from holdfast.checkpoints.record import Record
from holdfast.checkpoints.tree import Tree
from holdfast.config.locations import place_word
from holdfast.errors import Corrupt
from holdfast.formats.logs.offset_log import OffsetLog
from holdfast.formats.logs.operator_metadata import OperatorMetadata, schema_place
from holdfast.formats.logs.plan_note import NOTE
from holdfast.storage.port import Storage, full

NONE_OR_GONE: Final = "it keeps no state, or its state is gone"
_UNTOLD: Final = (
    f"{NONE_OR_GONE}: under state-checkpoint format 1 no file tells; "
    "a record of its good batches, as `holdfast watch` keeps it, would"
)


@dataclass(frozen=True, slots=True)
class StateEvidence:
    """What is known of a query's stateful operators besides their own files.

    Attributes:
        stateful: Whether the query keeps state; None where nothing tells.
        lost: What is wrong, by the folder of an operator of which nothing is there.
    """

    stateful: bool | None
    lost: tuple[tuple[str, str], ...] = ()

    @property
    def untold(self) -> str | None:
        """The words for what cannot be told; None where it can."""
        return _UNTOLD if self.stateful is None else None


def state_evidence(
    storage: Storage, logs: Logs, present: Collection[int], batch_id: int, record: Record | None = None
) -> StateEvidence:
    """Look for operators that must have state at a batch and have none.

    Cost: one small file.

    Args:
        storage: The checkpoint.
        logs: Its logs.
        present: The operators that have a folder.
        batch_id: A committed batch.
        record: What the files were when their batches were committed.
    """
    lost: dict[int, str] = {}
    commit = readable(lambda: logs.commit(batch_id))
    named = None if commit is None else commit.state_ids
    for operator_id in named or ():
        lost[operator_id] = f"batch {batch_id} committed some"
    if record is not None:
        for operator_id, files in _recorded(record).items():
            lost.setdefault(operator_id, f"the record of good batches names {files} files of it")
    if present:
        for operator_id in range(min(max(present), len(present))):
            lost.setdefault(operator_id, f"Spark numbers operators from 0, and {max(present)} is there")
    elif not lost and _plan_keeps_state(storage, batch_id):
        lost[0] = f"the plan that is noted in {layout.OWN}/{NOTE} keeps some"
    missing = tuple(
        (f"{layout.STATE}/{operator_id}", f"the state of operator {operator_id} is not there, and {why}")
        for operator_id, why in sorted(lost.items())
        if operator_id not in present
    )
    if present or lost:
        return StateEvidence(True, missing)
    recorded = record is not None and record.batch_id is not None
    certain = named is not None or recorded or _plan_keeps_state(storage, batch_id) is not None
    return StateEvidence(False if certain else None)


def require_state(
    storage: Storage, logs: Logs, present: Collection[int], batch_id: int, record: Record | None = None
) -> StateEvidence:
    """The same, where state that is lost is an error.

    Raises:
        Corrupt: An operator has lost its state.
    """
    evidence = state_evidence(storage, logs, present, batch_id, record)
    if evidence.lost:
        path, what = evidence.lost[0]
        raise Corrupt(
            "the checkpoint has lost state",
            where=full(storage.uri, path),
            found=what,
            hint="restore it from a savepoint or another copy; see what else is wrong with "
            f"`holdfast checkpoint verify {place_word(storage.uri)}`",
        )
    return evidence


def lost_notes(
    tree: Tree, folder: OperatorFolder, metadata: OperatorMetadata | None, offsets: OffsetLog | None
) -> Iterator[tuple[str, str]]:
    """Find what Spark must have noted of an operator, and is missing.

    Args:
        tree: The checkpoint's listing.
        folder: The operator.
        metadata: Its metadata at the batch; None where there is none, or where it cannot be read.
        offsets: What the batch was fixed to; Spark before 4.0 notes no operators.

    Returns:
        The path of each lost file, and what is wrong.
    """
    if folder.metadata_path is None and (
        offsets is None or offsets.notes_operators or has_schemas(tree, folder.operator_id)
    ):
        first = 0 if has_schemas(tree, folder.operator_id) else None
        path = layout.OperatorMetadataFile(folder.operator_id, first).render()
        yield path, f"operator {folder.operator_id} has no metadata"
    for store in () if metadata is None else metadata.stores:
        if metadata is None or metadata.version == 1:
            file = layout.SchemaFile(folder.operator_id, store.name).render()
            if folder.partitions and not tree.has(file):
                yield file, "the schema of the store is not there"
            continue
        for schema in store.schema_paths:
            place = schema_place(schema)
            if place is None or not tree.has(place):
                path = folder.metadata_path or ""
                yield place or path, f"the schema that {path} names is not there"


def has_schemas(tree: Tree, operator_id: int) -> bool:
    """Return whether an operator has the folder of schemas that transformWithState keeps."""
    return layout.STATE_SCHEMA in tree.names(f"{layout.STATE}/{operator_id}")


def _recorded(record: Record) -> Counter[int]:
    """How many files of state the record names, by operator."""
    return Counter(
        place.store.operator_id
        for place in map(layout.parse, record.files)
        if isinstance(place, (layout.StoreFile, layout.SharedFile))
    )


def _plan_keeps_state(storage: Storage, batch_id: int) -> bool | None:
    """Whether the plan of a batch keeps state; None where none was noted."""
    plan = noted_plan(storage, batch_id)
    return None if plan is None else bool(plan.operators) or any(step.stateful for step in plan.steps)
