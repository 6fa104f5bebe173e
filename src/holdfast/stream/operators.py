"""Check a query's keyed operators against its checkpoint before it starts.

Workers refuse state that they cannot read, in the first batch and before anything is committed. A query
that Holdfast starts is refused earlier: the form of each operator's state is noted in the checkpoint, and
compared with the code before Spark is asked for anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.engine.checkpoint_files import read_text, write_text
from holdfast.engine.keyed_operator import definitions_in
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.worker.declared.states import State
    from holdfast.worker.kept.partition import Layout
    from holdfast.worker.running.instances import Instances


@dataclass(frozen=True, slots=True)
class Defined:
    """An operator as it was defined in this process."""

    layout: Layout
    states: tuple[State, ...]
    drop: tuple[str, ...]
    instances: Instances | None = None


# Every operator that this process has defined; a plan names its own by their place in here.
_DEFINED: list[Defined] = []


def define(operator: Defined) -> int:
    """Remember an operator, and give the number by which a plan names it."""
    _DEFINED.append(operator)
    return len(_DEFINED) - 1


def check_operators(frame: DataFrame, checkpoint: str) -> list[tuple[Defined, Sequence[int]]]:
    """Refuse a query whose operators could not read their state, and note their forms.

    Call it while nobody uses the checkpoint. It reads and writes one small file for each operator.

    Returns:
        The operators whose state may be of another number of instances, with the numbers it may be of.

    Raises:
        Invalid: State would be lost or misread; the error says which and why.
        Unavailable: The checkpoint's storage does not answer.
    """
    changed: list[tuple[Defined, Sequence[int]]] = []
    for number in definitions_in(frame):
        operator = _DEFINED[number]
        layout = operator.layout
        name = f"operator-{layout.operator}.json"
        text = read_text(frame.sparkSession, checkpoint, name)
        before = None if text is None else json.loads(text)
        noted = _noted(operator, before)
        if operator.instances is not None:
            counts = [] if before is None else before.get("instances", [])
            mine = operator.instances.count
            if before is not None and counts != [mine]:
                changed.append((operator, counts))
            # The former numbers stay until a state was seen to be of this one.
            noted = {
                **(noted or before or {}),
                "instances": [*(each for each in counts if each != mine), mine],
            }
        if noted is not None and noted != before:
            write_text(frame.sparkSession, checkpoint, name, json.dumps(noted))
    return changed


def settle(frame: DataFrame, checkpoint: str, operator: Defined) -> None:
    """Note that the state of an operator was seen to be of its number of instances.

    Raises:
        Unavailable: The checkpoint's storage does not answer.
    """
    name = f"operator-{operator.layout.operator}.json"
    noted = json.loads(read_text(frame.sparkSession, checkpoint, name) or "{}")
    if operator.instances is not None:
        noted["instances"] = [operator.instances.count]
        write_text(frame.sparkSession, checkpoint, name, json.dumps(noted))


def _noted(operator: Defined, before: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What is to be written, if anything is new; forms in the order of their appearance."""
    from holdfast.worker.kept.form import form_from_json  # noqa: PLC0415 - importing holdfast must stay cheap
    from holdfast.worker.kept.upgrade import Upgrade  # noqa: PLC0415 - as above

    layout = operator.layout
    form = layout.form
    forms = dict(before["forms"]) if before else {}
    if before and before["key_groups"] != layout.key_groups:
        raise Invalid(
            "the number of key groups cannot change by itself: keys would not be found again",
            where=f"operator {layout.operator}",
            found=str(layout.key_groups),
            expected=f"key_groups={before['key_groups']}, as the checkpoint has",
        )
    mark = form.fingerprint.hex()
    if before and before["current"] == mark:
        return None
    upgrade = Upgrade(operator.states, form, layout.operator, operator.drop, 0)
    for each in forms.values():
        upgrade.check(form_from_json(each))
    forms[mark] = form.as_json()
    return {"key_groups": layout.key_groups, "current": mark, "forms": forms}
