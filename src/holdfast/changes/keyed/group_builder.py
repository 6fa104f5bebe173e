"""The construction of key groups from tables, as a processor would write them, for initial state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.at_rest.keyed_operators import MAP, KeptState, KeyedOperator
from holdfast.at_rest.keyed_reader import MAP_KEY, STAMP, TIMER_SCHEMA, VALUE, value_fields
from holdfast.changes.keyed.group_blobs import within, written
from holdfast.changes.keyed.group_changes import default_stamp, put_timers
from holdfast.checkpoints.keyed import KeyGroup, KeyTimer, Part
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.rows.xxhash64 import key_hashes
from holdfast.worker.arrays import numbers, placed, whole
from holdfast.worker.interface import SLOT_PREFIX, STAMP_PREFIX, VALUE_PREFIX
from holdfast.worker.runtime.columns import cast_column
from holdfast.worker.state.key_index import KeyOrdinals, same_keys
from holdfast.worker.state.layout import KEY_PREFIX, ROWS, group_of
from holdfast.worker.state.tables import Run, sorted_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from holdfast.worker.arrays import Hashes


def build_groups(
    operator: KeyedOperator,
    tables: Mapping[str, pa.Table],
    timers: pa.Table | None = None,
    *,
    hashes: Callable[[pa.Table], Hashes] = key_hashes,
) -> tuple[KeyGroup, ...]:
    """Build all key groups of an operator from one table per state, in the columns of `KeyedState.scan`.

    A table has the key columns and `value`; for a map also `map_key`; for a list one row for each element, in
    order. If the state has a TTL, `stamp_ms` is the time when a value was written; without that column, or if
    it is null, the time of the batch is used. A row without a value is ignored. Timers are a table with the
    key columns, `name`, `clock` and `at_ms`.

    Cost: about 3 microseconds per row; all rows are held in memory.

    Args:
        operator: The operator, with the times of the batch of the state.
        tables: The rows of each state.
        timers: The timers of keys; None for none.
        hashes: The hash function of keys: Spark's hash.

    Raises:
        NotFound: The state does not exist.
        Invalid: A table has the wrong columns or types, or a duplicate key of a single value.
        Unsupported: The state of the operator is that of instances or of a broadcast stream.
    """
    if operator.instances:
        raise Unsupported(
            (
                "the state of an hf.Operator cannot be built from tables, because the lists are"
                " distributed over the instances"
            ),
            code="HF-E7025",
            where=f"operator {operator.name}",
            hint="start the operator without state, and let its sources read their input again",
        )
    work = _Making(operator, hashes)
    for name, table in tables.items():
        work.take(operator.state(name), table)
    if timers is not None:
        work.take_timers(timers)
    return work.done()


@dataclass(frozen=True, slots=True)
class _Given:
    """The rows of one table: the key columns and the other columns."""

    state: KeptState | None
    keys: pa.Table
    beside: pa.Table
    start: int


class _Making:
    """A builder that collects tables and then creates the key groups."""

    def __init__(self, operator: KeyedOperator, hashes: Callable[[pa.Table], Hashes]) -> None:
        self._operator = operator
        self._hashes = hashes
        self._given: list[_Given] = []
        self._count = 0

    def take(self, state: KeptState, table: pa.Table) -> None:
        """Add the rows of a state."""
        where = f"operator {self._operator.name}, state {state.name}"
        if state.kind == "broadcast":
            fact = (
                "the state of a broadcast stream cannot be built from a table, because its rows have no key"
            )
            raise Unsupported(
                fact,
                code="HF-E7026",
                where=where,
                hint="let the query read the broadcast stream from its start",
            )
        if state.ttl_ms is not None and STAMP not in table.column_names:
            table = table.append_column(STAMP, pa.nulls(table.num_rows, pa.int64()))
        table = _columns(table, [*self._operator.keys, *value_fields(state)], where)
        if not state.has_elements:
            # An empty value counts as missing; an element may be null.
            table = table.filter(table.column(VALUE).is_valid())
        if state.ttl_ms is not None:
            at = table.column_names.index(STAMP)
            stamps = table.column(STAMP).fill_null(
                pa.scalar(default_stamp(self._operator, state), pa.int64())
            )
            table = table.set_column(at, STAMP, stamps)
        if state.kind == MAP and table.column(MAP_KEY).null_count:
            raise Invalid(
                "a row of a map state has a null key",
                code="HF-E2075",
                where=where,
                hint="remove the rows with a null key from the table",
            )
        self._take(state, table)

    def take_timers(self, table: pa.Table) -> None:
        """Add timers."""
        where = f"operator {self._operator.name}, timers"
        if not self._operator.timers:
            raise Invalid(
                "timers were given, but the processor declares none",
                code="HF-E2076",
                where=where,
                hint="remove the table of timers, or declare timers in the processor",
            )
        table = _columns(table, [*self._operator.keys, *TIMER_SCHEMA], where)
        self._take(None, table)

    def done(self) -> tuple[KeyGroup, ...]:
        """Return the key groups with all added rows and timers."""
        if not self._count:
            return ()
        every = pa.concat_tables([given.keys for given in self._given]).combine_chunks()
        h, ordinals, first, position = _distinct(self._hashes(every), every)
        form, size = self._operator.form, len(h)
        identity = {"h": pa.array(h), "ord": pa.array(ordinals), "dead": pa.array(np.zeros(size, np.bool_))}
        columns: dict[str, pa.Array] = {
            field.name: pa.nulls(size, field.type)
            for field in form.tables[ROWS]
            if field.name not in identity
        }
        columns |= identity
        keys = every.take(pa.array(first))
        columns |= {f"{KEY_PREFIX}{at}": whole(column) for at, column in enumerate(keys.columns)}
        tables: dict[str, Run] = {}
        for given in self._given:
            of = position[given.start : given.start + given.keys.num_rows]
            if given.state is None:
                self._set_timers(columns, given, of)
            elif given.state.has_elements:
                tables[given.state.name] = self._set_elements(columns, given, given.state, of)
            else:
                self._set_values(columns, given, given.state, of)
        schema = form.tables[ROWS]
        rows = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
        empty = np.ones(size, np.bool_)
        for name in form.content:
            empty &= numbers(columns[name].is_null())
        tables[ROWS] = Run(rows).take(~empty)
        return tuple(self._groups(tables))

    def _groups(self, tables: Mapping[str, Run]) -> Iterator[KeyGroup]:
        count, form = self._operator.key_groups, self._operator.form
        for number in np.unique(group_of(tables[ROWS].h, count)).tolist():
            yield written(number, count, form, [within(Part(form, tables), number, count)])

    def _take(self, state: KeptState | None, table: pa.Table) -> None:
        names = self._operator.keys.names
        self._given.append(_Given(state, table.select(names), table.drop_columns(names), self._count))
        self._count += table.num_rows

    def _set_values(
        self, columns: dict[str, pa.Array], given: _Given, state: KeptState, of: NDArray[np.int64]
    ) -> None:
        _check_once(of, given.keys, f"operator {self._operator.name}, state {state.name}")
        for prefix, name in ((VALUE_PREFIX, VALUE), (STAMP_PREFIX, STAMP)):
            if name in given.beside.column_names:
                column = f"{prefix}{state.name}"
                columns[column] = placed(columns[column], of, whole(given.beside.column(name)))

    def _set_elements(
        self, columns: dict[str, pa.Array], given: _Given, state: KeptState, of: NDArray[np.int64]
    ) -> Run:
        order = np.argsort(of, kind="stable")
        owners = of[order]
        starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1])) if len(owners) else owners
        counts = np.diff(np.append(starts, len(owners)))
        slots = np.arange(len(owners)) - np.repeat(starts, counts)
        name = f"{SLOT_PREFIX}{state.name}"
        columns[name] = placed(columns[name], owners[starts], pa.array(counts, pa.int64()))
        arrays: dict[str, pa.Array] = {
            "h": columns["h"].take(pa.array(owners)),
            "ord": columns["ord"].take(pa.array(owners)),
            "slot": pa.array(slots.astype(np.int64)),
            "dead": pa.array(np.zeros(len(owners), np.bool_)),
        }
        beside = given.beside.take(pa.array(order))
        for column, stored in ((MAP_KEY, "k"), (VALUE, "v"), (STAMP, "t")):
            if column in beside.column_names:
                arrays[stored] = whole(beside.column(column))
        if state.kind == MAP:
            _check_entries(owners, arrays["k"], f"operator {self._operator.name}, state {state.name}")
        schema = self._operator.form.tables[state.name]
        return sorted_run(
            pa.RecordBatch.from_arrays([arrays[column] for column in schema.names], schema=schema)
        )

    def _set_timers(self, columns: dict[str, pa.Array], given: _Given, of: NDArray[np.int64]) -> None:
        by_key: dict[int, dict[tuple[str, str], KeyTimer]] = {}
        told = zip(of.tolist(), *(column.to_pylist() for column in given.beside.columns), strict=True)
        for at, name, clock, at_ms in told:
            key = by_key.setdefault(at, {})
            if (name or "", clock) in key:
                raise Invalid(
                    "a key has two timers with the same name and clock",
                    code="HF-E2077",
                    where=f"operator {self._operator.name}, timers",
                    found=f"timer {name!r}, clock {clock}",
                    hint="keep one of the two timers: a timer that is set again replaces the earlier one",
                )
            key[name or "", clock] = KeyTimer(name or "", clock, at_ms)
        put_timers(columns, np.array(list(by_key), np.int64), [key.values() for key in by_key.values()])


def _columns(table: pa.Table, fields: Sequence[pa.Field], where: str) -> pa.Table:
    """Return the required columns of a table, cast to their types.

    Raises:
        Invalid: A column is missing, unknown, or of the wrong type.
    """
    names = [field.name for field in fields]
    if sorted(table.column_names) != sorted(names):
        raise Invalid(
            "the columns of the table differ from the columns of the state",
            code="HF-E2078",
            where=where,
            found=", ".join(table.column_names) or "no columns",
            expected=", ".join(names),
            hint="add, drop and rename columns of the table until it has exactly these columns",
        )
    columns = [
        whole(table.column(field.name))
        if table.column(field.name).type == field.type
        else whole(cast_column(table.column(field.name), field.type, f"{where}, column {field.name}"))
        for field in fields
    ]
    return pa.Table.from_arrays(columns, names=names)


def _distinct(
    h: Hashes, keys: pa.Table
) -> tuple[Hashes, NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct keys by hash and ordinal, the first row of each, and the key of each row."""
    unique, first, position = np.unique(h, return_index=True, return_inverse=True)
    taken = keys.take(pa.array(first[position]))
    same = np.ones(len(h), np.bool_)
    for one, other in zip(keys.columns, taken.columns, strict=True):
        same &= same_keys(one, other)
    if same.all():
        return unique, np.zeros(len(unique), np.int32), first, position
    # Keys with equal hashes.
    ordinals = np.zeros(len(h), np.int32)
    of_hash: dict[int, KeyOrdinals] = {}
    shared = np.flatnonzero(np.isin(position, position[~same]))
    some = keys.take(pa.array(shared))
    cells_of = zip(*(column.to_pylist() for column in some.columns), strict=True)
    for at, cells in zip(shared.tolist(), cells_of, strict=True):
        ordinals[at] = of_hash.setdefault(int(h[at]), KeyOrdinals()).of(cells)
    identities = np.rec.fromarrays([h, ordinals])
    unique_both, first, position = np.unique(identities, return_index=True, return_inverse=True)
    return unique_both["f0"].astype(np.uint64), unique_both["f1"].astype(np.int32), first, position


def _check_once(of: NDArray[np.int64], keys: pa.Table, where: str) -> None:
    _, first = np.unique(of, return_index=True)
    if len(first) < len(of):
        again = np.setdiff1d(np.arange(len(of)), first)[0]
        key = ", ".join(repr(column[int(again)].as_py()) for column in keys.columns)
        raise Invalid(
            "the table has several rows for a key, but the state has one value per key",
            code="HF-E2079",
            where=where,
            found=key,
            hint="group the table by its key columns",
        )


def _check_entries(owners: NDArray[np.int64], keys: pa.Array, where: str) -> None:
    seen: set[tuple[int, str]] = set()
    for owner, key in zip(owners.tolist(), keys.to_pylist(), strict=True):
        if (owner, repr(key)) in seen:
            raise Invalid(
                "the table has several rows for one key and one map key",
                code="HF-E2080",
                where=where,
                found=repr(key),
                hint="group the table by its key columns and the key of the map",
            )
        seen.add((owner, repr(key)))
