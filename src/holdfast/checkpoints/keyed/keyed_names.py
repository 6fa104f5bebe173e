"""What users call the keyed operators of a checkpoint, which Spark knows by one name alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast import layout
from holdfast.checkpoints.values import Operator
from holdfast.errors import Corrupt, NotFound
from holdfast.formats.logs.plan_note import NOTE, parse_note
from holdfast.layout import OwnFile
from holdfast.storage.port import Storage, full
from holdfast.worker.state.store import BASE, FORMS, LOG, META

OWN_VARIABLES: Final = tuple(sorted((META, FORMS, BASE, LOG)))
_PREFIX, _SUFFIX = "operator-", ".json"


def keyed_names(storage: Storage, operators: Sequence[Operator], batch_id: int | None) -> Mapping[int, str]:
    """The names of Holdfast's keyed operators by Spark's numbers, as far as the checkpoint's notes tell.

    The plan of a query that Holdfast started has them in Spark's order. A single operator needs no plan.

    Cost: one small file, where there are keyed operators; with a single one a listing.
    """
    numbers = [operator.operator_id for operator in operators if operator.variables == OWN_VARIABLES]
    if not numbers or batch_id is None:
        return {}
    path = OwnFile(NOTE).render()
    try:
        note = parse_note(storage.read(path), full(storage.uri, path))
        plan = None if note is None else note.at(batch_id)
        names = () if plan is None else plan.operators
    except (NotFound, Corrupt):
        names = ()
    if len(names) != len(numbers):
        listed = (name for name in storage.list(layout.OWN).names if name.startswith(_PREFIX))
        names = tuple(name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for name in listed)
        if not len(names) == len(numbers) == 1:
            return {}
    return dict(zip(numbers, names, strict=True))
