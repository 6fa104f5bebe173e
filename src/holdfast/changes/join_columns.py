"""The conversion of the waiting rows of a join of streams for new columns of a side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.changes.column_changes import (
    ColumnChange,
    FieldSource,
    converted_fields,
    describe_column,
    describe_dropped,
    initial_value,
    lossy,
)
from holdfast.changes.column_values import same, widening
from holdfast.changes.operator_matching import Wishes
from holdfast.changes.state_columns import OperatorColumns, StateColumn, type_text
from holdfast.checkpoints.state.rocksdb import Pairs
from holdfast.checkpoints.state.states import StateCodec
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.logs.operator_metadata import ColumnFamily
from holdfast.formats.operators import STREAM_JOIN, FamilyUse, family_of
from holdfast.formats.rows.spark_types import Struct, parse_struct
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.layout import DEFAULT_STORE
from holdfast.savepoints.verdicts import fits, text_of

# The setting that determines the stores of a join's state, pinned in the checkpoint.
JOIN_FORMAT: Final = "spark.sql.streaming.join.stateFormatVersion"
_FORMATS: Final = ("2", "3")
# The states that the conversion can write: the rows of a key by number, and their count.
_STATES: Final = frozenset({FamilyUse.JOIN_ROWS, FamilyUse.JOIN_COUNTS})


@dataclass(frozen=True, slots=True)
class SideConversion:
    """The conversion of the waiting rows of one side.

    Attributes:
        side: `left` or `right`.
        columns: The origin of each column of the new rows.
        dropped: The columns of the saved rows that the new rows lack.
        new_type: The type of the new rows.
    """

    side: str
    columns: tuple[FieldSource, ...]
    dropped: tuple[StateColumn, ...]
    new_type: Struct

    @property
    def stays(self) -> bool:
        """Return whether the bytes of each row are unchanged."""
        return not self.dropped and all(
            source.stays and source.saved is not None and source.saved.name == source.column.name
            for source in self.columns
        )

    def rows(self, codec: StateCodec, values: Sequence[bytes]) -> list[bytes]:
        """Return the new rows of some saved rows.

        Raises:
            Unsupported: A row has a null in a column that is not nullable in the new code.
        """
        if self.stays:
            return list(values)
        encoder = RowCodec(self.new_type)
        return [
            encoder.encode(converted_fields(self.columns, codec.value_values(value), codec.where))
            for value in values
        ]

    def describe(self) -> Iterator[ColumnChange]:
        """Yield the change of each column."""
        for source in self.columns:
            yield describe_column("value", source)
        for column in self.dropped:
            yield describe_dropped("value", column)


@dataclass(frozen=True, slots=True)
class JoinConversion:
    """The conversion of a join's rows to those of the new code.

    Attributes:
        old: The saved join.
        new: The join of the new code.
        sides: The conversion of each side, by the label of its rows in the state.
    """

    old: OperatorColumns
    new: OperatorColumns
    sides: Mapping[str, SideConversion]

    @property
    def same_stores(self) -> bool:
        """Return whether the states are in the same stores; formats 2 and 3 differ only in that."""
        return [store.name for store in self.old.shape.stores] == [
            store.name for store in self.new.shape.stores
        ]

    @property
    def rows_stay(self) -> bool:
        """Return whether the bytes of each row, and the stores of all rows, are unchanged."""
        return self.same_stores and all(side.stays for side in self.sides.values())

    def keeps(self, label: str) -> bool:
        """Return whether the bytes of each row of a state are unchanged."""
        return label not in self.sides or self.sides[label].stays

    def columns(self) -> tuple[ColumnChange, ...]:
        """Return the change of each column."""
        return tuple(change for side in self.sides.values() for change in side.describe())

    def pairs(self, codec: StateCodec, target: StateCodec, pairs: Pairs) -> list[tuple[bytes, bytes]]:
        """Return the new key rows and values of some stored rows of one state.

        Args:
            codec: The codec of the saved state.
            target: The codec of the state in the new code.
            pairs: The stored rows.

        Raises:
            Corrupt: A row is damaged.
            Unsupported: A row has a null in a column that is not nullable in the new code.
        """
        keys = [codec.key_row(key) for key, _ in pairs]
        values = [codec.single_row(value) for _, value in pairs]
        side = self.sides.get(target.name.label)
        return list(zip(keys, values if side is None else side.rows(codec, values), strict=True))


def wanted_format(conf: Mapping[str, str] | None, pinned: Mapping[str, str]) -> str | None:
    """Return the format of joins' state that a caller asks for; None for that of the checkpoint.

    Raises:
        Unsupported: The format cannot be written.
    """
    now = pinned.get(JOIN_FORMAT, _FORMATS[0])
    wanted = (conf or {}).get(JOIN_FORMAT, now)
    if wanted == now:
        return None
    if wanted not in _FORMATS:
        raise Unsupported(
            "the state of joins cannot be converted to the requested format",
            code="HF-E7141",
            where=JOIN_FORMAT,
            found=wanted,
            expected=" or ".join(_FORMATS),
            hint=f"give one of these formats, or none to keep format {now}",
        )
    return wanted


def _same_key(before: Mapping[str, ColumnFamily], after: Mapping[str, ColumnFamily]) -> bool:
    """Return whether the keys of each state have the same types."""
    return all(
        fits(json.loads(after[label].key_schema), json.loads(family.key_schema))
        for label, family in before.items()
    )


def join_change(old: OperatorColumns, new: OperatorColumns, wishes: Wishes, where: str) -> JoinConversion:
    """Match the columns of each side by name, and determine the initial values of new columns.

    Args:
        old: The saved join.
        new: The join of the new code.
        wishes: The options of the user; a column is `left.NAME` or `right.NAME`.
        where: The saved state, for messages.

    Raises:
        Invalid: A new column has no initial value.
        Unsupported: The key or the format of the join changes, or a column cannot be converted without loss.
    """
    place = f"{where}, operator {old.named.label}"
    before, after = _families(old), _families(new)
    if before.keys() != after.keys() or not all(_use(label) in _STATES for label in before):
        raise Unsupported(
            "the state of a join cannot be converted from or to this format",
            code="HF-E7142",
            where=place,
            found=f"{', '.join(before)}; {', '.join(after)} in the new code",
            expected="format 2 or 3",
            hint=f"give one of these formats with --conf {JOIN_FORMAT}=2",
        )
    if not _same_key(before, after):
        raise Unsupported(
            "the key of a join cannot be changed, because rows that are stored under the old key would never"
            " meet rows with the new one",
            code="HF-E7143",
            where=place,
            found=f"{_keys(before)}, and {_keys(after)} in the new code",
            expected="key columns of the same types, in the same order",
            hint=f"keep the equality conditions of the join, or drop its state with --drop {old.number}",
        )
    sides = {}
    for label, family in before.items():
        if _use(label) is FamilyUse.JOIN_ROWS:
            side = _side(label)
            one, other = _columns(side, family, where), _columns(side, after[label], where)
            new_type = parse_struct(after[label].value_schema, where)
            sides[label] = _matched(side, one, other, new_type, new, wishes, place)
    _refuse_missing([column for side in sides.values() for column in side.columns], wishes, new, place)
    return JoinConversion(old, new, sides)


def _refuse_missing(sources: Sequence[FieldSource], wishes: Wishes, new: OperatorColumns, where: str) -> None:
    """Check that all new columns have an initial value.

    Raises:
        Invalid: A new column has no initial value.
    """
    missing = [
        source.column
        for source in sources
        if source.saved is None and wishes.starts_with(new, source.column.label) is None
    ]
    if missing:
        raise Invalid(
            "a new column of a join has no value for the waiting rows",
            code="HF-E2559",
            where=where,
            found=", ".join(f"{column.label} {column.type_text}" for column in missing),
            hint=f"give --initial {missing[0].label}=null, or a value; or --map OLD={missing[0].label} if a"
            " column was renamed",
        )


def _matched(
    side: str,
    old: Sequence[StateColumn],
    new: Sequence[StateColumn],
    new_type: Struct,
    operator: OperatorColumns,
    wishes: Wishes,
    where: str,
) -> SideConversion:
    names = [[column.label for column in columns] for columns in (old, new)]
    if names[0] != names[1] and any(len(set(some)) < len(some) for some in names):
        raise Unsupported(
            "the columns of a join's side cannot be matched, because two have the same name",
            code="HF-E7144",
            where=where,
            found=", ".join(next(some for some in names if len(set(some)) < len(some))),
            hint="rename one of them in the new code, in a change of its own",
        )
    renamed = wishes.columns(operator, frozenset(names[0]), frozenset(names[1]))
    if names[0] == names[1] and not renamed:
        pairs = dict(zip(range(len(new)), old, strict=True))
    else:
        saved = {renamed.get(column.label, column.label): column for column in old}
        pairs = {at: saved[column.label] for at, column in enumerate(new) if column.label in saved}
    sources = []
    for at, column in enumerate(new):
        before = pairs.get(at)
        if before is None:
            told = wishes.starts_with(operator, column.label)
            initial = None if told is None else initial_value(told, column, where)
            sources.append(FieldSource(column, None, initial=initial))
            continue
        convert = widening(before.type, column.type)
        if convert is None:
            raise lossy(before, column, where, side)
        sources.append(FieldSource(column, before, convert if before.type != column.type else same))
    kept = {id(column) for column in pairs.values()}
    dropped = tuple(column for column in old if id(column) not in kept)
    return SideConversion(side, tuple(sources), dropped, new_type)


def _families(operator: OperatorColumns) -> dict[str, ColumnFamily]:
    """Return the states of a join by label: the store, or the column family in a store of all states."""
    return {
        store.name if family.name == DEFAULT_STORE else family.name: family
        for store in operator.shape.stores
        for family in store.families
    }


def _use(label: str) -> FamilyUse | None:
    family = family_of(STREAM_JOIN, label)
    return None if family is None else family.use


def _side(label: str) -> str:
    family = family_of(STREAM_JOIN, label)
    return label if family is None else family.state(label)


def _keys(families: Mapping[str, ColumnFamily]) -> str:
    counted = next(
        (family for label, family in families.items() if _use(label) is FamilyUse.JOIN_COUNTS), None
    )
    return "an unknown key" if counted is None else f"({text_of(json.loads(counted.key_schema))})"


def _columns(side: str, family: ColumnFamily, where: str) -> list[StateColumn]:
    """Return the columns of the rows of a side, with the flag that a row has met a match."""
    type_ = parse_struct(family.value_schema, where)
    return [
        StateColumn(
            label=f"{side}.{field['name']}",
            name=name,
            type=of,
            type_text=type_text(field["type"]),
            nullable=bool(field.get("nullable", True)),
        )
        for field, name, of in zip(
            json.loads(family.value_schema)["fields"], type_.names, type_.types, strict=True
        )
    ]
