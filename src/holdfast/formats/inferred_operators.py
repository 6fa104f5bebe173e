"""What an operator does, by the stores and schemas of its state: Spark before 4.0 notes no operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from holdfast.formats.logs.state_schema import ColumnFamily
from holdfast.formats.operators import FamilyUse, use_of
from holdfast.formats.text import json_object

_SCHEMA: Final = "a state schema"
_JOIN_USES: Final = (FamilyUse.JOIN_ROWS, FamilyUse.JOIN_COUNTS)
# Spark puts it into the metadata of a session window's column.
_SESSION_MARK: Final = "spark.sessionWindow"
_SESSION_START: Final = "sessionStartTime"
# What Spark calls the first field of some values. An aggregate's are called after its functions.
_BY_VALUE: Final = {
    "__dummy__": "dedupe",
    "expiresAtMicros": "dedupeWithinWatermark",
    # applyInPandasWithState keeps the same as this.
    "groupState": "flatMapGroupsWithState",
}
_LIMIT: Final = ("key", "void")


def inferred_operator(stores: Iterable[str], families: Sequence[ColumnFamily], where: str) -> str:
    """Spark's name for an operator that Spark has noted nothing of.

    Args:
        stores: The names of its stores.
        families: The column families of the first of them; none where its schema is not there.
        where: The schema's file, for messages.

    Returns:
        The name that a newer Spark would note; empty where the state does not tell.

    Raises:
        Corrupt: A schema is damaged.
    """
    if all(use_of("", store) in _JOIN_USES for store in stores):
        return "symmetricHashJoin"
    if not families:
        return ""
    keys, values = _fields(families[0].key_schema, where), _fields(families[0].value_schema, where)
    if [(field.get("name"), field.get("type")) for field in keys] == [_LIMIT]:
        return "globalLimit"
    if session_columns(families[0], where):
        return "sessionWindowStateStoreSaveExec"
    return _BY_VALUE.get(str(values[0].get("name")), "stateStoreSave") if values else "stateStoreSave"


def session_columns(family: ColumnFamily, where: str) -> int:
    """How many of a key's first columns session windows go by; 0 where it is not the state of some.

    Their keys end with the start of the session, and their values have the session's window.

    Raises:
        Corrupt: A schema is damaged.
    """
    keys = _fields(family.key_schema, where)
    if not keys or (keys[-1].get("name"), keys[-1].get("type")) != (_SESSION_START, "timestamp"):
        return 0
    marked = any(
        (field.get("metadata") or {}).get(_SESSION_MARK) for field in _fields(family.value_schema, where)
    )
    return len(keys) - 1 if marked else 0


def _fields(schema: str, where: str) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = json_object(schema, _SCHEMA, where).get("fields") or ()
    return found
