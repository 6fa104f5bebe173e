"""State made of tables, one for each state, in a checkpoint whose operators have none yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.at_rest.read.model import NamedOperator, NamedState, StateForm
from holdfast.at_rest.read.state_catalog import named_operators, pick
from holdfast.at_rest.read.tables import PARTITION, column_names, schema_of
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.state.key_partition import Placement
from holdfast.checkpoints.state.states import StateCodec
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.layout import StoreId
from holdfast.savepoints.rewrite.store_changes import RowChange
from holdfast.storage.port import Storage, full

if TYPE_CHECKING:
    import pyarrow as pa


TIMERS: Final = "timers"
# What holds rows of one key that have to agree with others, or times that only the query knows.
_WHOLE: Final = (StateForm.VALUE, StateForm.SESSIONS)


def put_states(checkpoint: Storage, tables: Mapping[str, pa.Table], folder: Path) -> None:
    """Give states the rows of tables, in batches of their own.

    Cost: about 20 microseconds a row of Spark's operators, and one of Holdfast's keyed state; everything is
    held in memory.

    Args:
        checkpoint: The checkpoint; no query may use it, and its operators are empty. It is changed.
        tables: For each state, by `STATE` or `OPERATOR.STATE` as `holdfast state list` has them, the columns
            that `hf.state(…).scan` gives.
        folder: A directory to work in that is not there yet.

    Raises:
        NotFound: There is no such state; the message lists those that there are.
        Invalid: A table has other columns or types, or a key twice.
        Unsupported: The state cannot be made so.
    """
    folder.mkdir()
    # A table is for one state, never for all that a keyed operator has of a key.
    operators = [
        replace(
            operator, states=tuple(state for state in operator.states if state.form is not StateForm.KEYED)
        )
        for operator in named_operators(checkpoint)
    ]
    own: dict[int, dict[str, pa.Table]] = {}
    rows: dict[StoreId, list[RowChange]] = {}
    for name, table in tables.items():
        operator, state = pick(operators, name)
        if operator.keyed is not None:
            own.setdefault(operator.operator_id, {})[state.name] = table
            continue
        codec = _writable(operator, state)
        for store, row in _rows(checkpoint, operator, state, codec, fitted(state, table)):
            rows.setdefault(store, []).append(row)
    if own:
        _put_keyed(checkpoint, operators, own, folder / "keyed")
    if rows:
        from holdfast.at_rest.keyed.group_writer import write_rows

        write_rows(checkpoint, rows, folder / "rows")


def fitted(state: NamedState, table: pa.Table) -> pa.Table:
    """A table in the columns and types of a state.

    Raises:
        Invalid: A column is missing, there is one too many, or a value does not fit its type.
    """
    import pyarrow as pa

    schema = schema_of(state)
    schema = schema.remove(schema.get_field_index(PARTITION))
    # What Spark keeps in a column that holds nothing is not asked for.
    wanted = [column for column in schema if not pa.types.is_null(column.type)]
    has, expected = set(table.column_names), {column.name for column in wanted}
    if has != expected:
        raise Invalid(
            "the table does not have the columns of its state",
            where=f"state {state.full_name}",
            found=", ".join(table.column_names),
            expected=", ".join(f"{column.name} {column.type}" for column in wanted),
            hint="`holdfast state list` shows the columns of each state",
        )
    try:
        return table.select([column.name for column in wanted]).cast(pa.schema(wanted))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Invalid(
            "a value does not fit the type of its column",
            where=f"state {state.full_name}",
            found=str(error).splitlines()[0],
            hint="cast the column, or leave out the rows that do not fit",
            expected=", ".join(f"{column.name} {column.type}" for column in wanted),
        ) from error


def _writable(operator: NamedOperator, state: NamedState) -> StateCodec:
    """What writes the rows of a state of Spark's, if they are all that Spark keeps of it."""
    codec = state.codec
    if codec is None or state.form not in _WHOLE or state.ttl or codec.values.avro:
        raise Unsupported(
            "this state cannot be made of a table: Spark keeps more beside it than its rows say",
            where=f"state {state.full_name}",
            found=f"{operator.named.operator_kind}, {state.form.value}"
            + (", with a time to live" if state.ttl else ""),
            expected="an aggregate, a deduplication, sessions, or a value of transformWithState",
            hint="give the query a history, which it reads itself",
        )
    return codec


def _rows(
    checkpoint: Storage, operator: NamedOperator, state: NamedState, codec: StateCodec, table: pa.Table
) -> Iterator[tuple[StoreId, RowChange]]:
    names = column_names(state)
    keys, values = codec.key_type, codec.value_type
    fields = len(keys.names)
    key_codec, value_codec = RowCodec(keys), RowCodec(values)
    key_rows, value_rows = [], []
    for row in table.to_pylist():
        told = [row.get(name) for name in names]
        key_rows.append(key_codec.encode(dict(zip(keys.names, told[:fields], strict=True))))
        value_rows.append(
            value_codec.encode(
                dict(zip(values.names, told[fields : fields + len(values.names)], strict=True))
            )
        )
    _check_once(state, table, key_rows)
    found = next(other for other in read(checkpoint).operators if other.operator_id == operator.operator_id)
    place = Placement(found, codec, full(checkpoint.uri, f"state/{operator.operator_id}"))
    hashes = place.hashes([codec.stored_key(row) for row in key_rows])
    for key, value, number in zip(key_rows, value_rows, hashes, strict=True):
        store = StoreId(operator.operator_id, number % found.partitions, codec.name.store)
        yield store, RowChange(codec, key, (value,))


def _check_once(state: NamedState, table: pa.Table, keys: Sequence[bytes]) -> None:
    if len(set(keys)) == len(keys):
        return
    again, _ = Counter(keys).most_common(1)[0]
    row = table.slice(keys.index(again), 1).to_pylist()[0]
    raise Invalid(
        "a key is there twice",
        where=f"state {state.full_name}",
        found=", ".join(f"{name}={row.get(name)!r}" for name in state.key.names),
        hint="group the table by its key columns",
    )


def _put_keyed(
    checkpoint: Storage,
    operators: Sequence[NamedOperator],
    tables: Mapping[int, Mapping[str, pa.Table]],
    folder: Path,
) -> None:
    from holdfast.at_rest.keyed.group_builder import made
    from holdfast.at_rest.keyed.group_writer import replacing, write_groups

    changes = {}
    for operator in operators:
        given = dict(tables.get(operator.operator_id, {}))
        if operator.keyed is None or not given:
            continue
        keyed = operator.keyed
        if keyed.operator.placed:
            raise Unsupported(
                "a function of the program's places the keys, and only that knows their groups",
                where=f"operator {operator.name}",
                hint="give the query a history, which it reads itself",
            )
        timers = given.pop(TIMERS, None)
        groups = made(keyed.operator, given, timers)
        changes[operator.operator_id] = replacing(keyed.source.groups(), groups)
    write_groups(checkpoint, changes, folder)
