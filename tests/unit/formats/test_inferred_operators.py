"""What an operator does, told by its stores and schemas alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from spark_matrix import CELLS, query_of

from golden import golden
from holdfast.checkpoints.state.states import operator_states
from holdfast.formats.logs.operator_metadata import ColumnFamily
from holdfast.formats.operators import inferred_operator, session_columns

NAMES = {
    "aggregate": "stateStoreSave",
    "windowed": "stateStoreSave",
    "global": "stateStoreSave",
    "join": "symmetricHashJoin",
    "distinct": "dedupe",
    "dedupe": "dedupeWithinWatermark",
    "session": "sessionWindowStateStoreSaveExec",
    "limit": "globalLimit",
    # The state of both is the same.
    "groups": "flatMapGroupsWithState",
}


@pytest.mark.parametrize("name", [name for name in CELLS if query_of(name) in NAMES])
def test_it_is_what_spark_has_noted_or_would_note(name: str) -> None:
    """Those of Spark 4.0 and later have the notes, with which this is compared."""
    (operator,) = operator_states(golden(name))
    families = [state.schema for state in operator.declared_codecs() if state.schema is not None]
    found = inferred_operator(operator.store_names, families, "a schema")
    if any(family.name != "default" for family in families):
        return  # with column families Spark has notes, always
    assert found == NAMES[query_of(name)]
    noted = operator.name
    assert noted in (found, "applyInPandasWithState")


def family(keys: list[Any], values: list[Any]) -> ColumnFamily:
    def schema(fields: list[Any]) -> str:
        return json.dumps({"type": "struct", "fields": fields})

    return ColumnFamily("default", schema(keys), schema(values))


def column(name: str, kind: str = "long", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def test_a_column_that_is_called_like_a_session_is_none() -> None:
    """An aggregate by a column of one's own; its values have no session's window."""
    own = family([column("who", "string"), column("sessionStartTime", "timestamp")], [column("count")])
    assert session_columns(own, "a schema") == 0
    assert inferred_operator(["default"], [own], "a schema") == "stateStoreSave"


def test_what_does_not_tell_is_not_guessed() -> None:
    assert inferred_operator(["default"], [], "a schema") == ""
