"""What the operators of a checkpoint are called: users' names of keyed ones are in notes beside the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast import layout
from holdfast.errors import Corrupt, NotFound
from holdfast.formats.logs.operator_metadata import OperatorMetadata
from holdfast.formats.logs.plan_note import NOTE, Plan, parse_note
from holdfast.formats.operators import KEYED_VARIABLES, OperatorName, is_internal, operator_names
from holdfast.layout import OwnFile
from holdfast.storage.port import Storage, full


def named(
    storage: Storage,
    operators: Mapping[int, OperatorMetadata | None],
    spark_names: Mapping[int, str],
    batch_id: int | None,
) -> dict[int, OperatorName]:
    """What each operator is called, as far as the checkpoint's notes tell.

    Cost: one small file, where there are keyed operators; with a single one a listing.

    Args:
        storage: The checkpoint, or a savepoint's view.
        operators: What Spark noted of each operator, by number.
        spark_names: Spark's name for what it does; empty where nothing tells.
        batch_id: The batch; None where none is committed.
    """
    keyed = [number for number, noted in operators.items() if set(variables(noted)) == KEYED_VARIABLES]
    return operator_names(spark_names, _users_names(storage, keyed, batch_id))


def noted_plan(storage: Storage, batch_id: int) -> Plan | None:
    """The plan that a batch ran under; None where none was noted, or the note cannot be read."""
    path = OwnFile(NOTE).render()
    try:
        note = parse_note(storage.read(path), full(storage.uri, path))
    except (NotFound, Corrupt):
        return None
    return None if note is None else note.at(batch_id)


def variables(metadata: OperatorMetadata | None) -> tuple[str, ...]:
    """The state variables of transformWithState, without those that Spark keeps for itself."""
    listed = () if metadata is None else metadata.properties.get("stateVariables", [])
    found = (variable.get("stateName") for variable in listed if isinstance(variable, dict))
    return tuple(sorted(name for name in found if isinstance(name, str) and not is_internal(name)))


def _users_names(storage: Storage, numbers: Sequence[int], batch_id: int | None) -> dict[int, str | None]:
    """The plan of a query that Holdfast started has them in Spark's order. A single one needs no plan."""
    if not numbers:
        return {}
    plan = None if batch_id is None else noted_plan(storage, batch_id)
    names = () if plan is None else plan.operators
    if len(names) != len(numbers):
        noted = map(layout.noted_operator, storage.list(layout.OWN).names)
        names = tuple(name for name in noted if name is not None)
        if not len(names) == len(numbers) == 1:
            return dict.fromkeys(numbers)
    return dict(zip(numbers, names, strict=True))
