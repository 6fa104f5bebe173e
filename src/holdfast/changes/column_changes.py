"""The mapping of a saved operator's columns to those of the new code."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal as Number
from typing import Any

from holdfast.changes.column_values import (
    Convert,
    Merge,
    has_text_form,
    keep_first,
    merge_function,
    same,
    spark_name,
    value_from_text,
    widening,
)
from holdfast.changes.operator_matching import Wishes, described
from holdfast.changes.state_columns import SESSIONS, UNKNOWN, OperatorColumns, StateColumn
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.rows.spark_types import Atom, Decimal
from holdfast.json_shapes import JsonShape
from holdfast.quantities import counted


@dataclass(frozen=True, slots=True)
class ColumnChange(JsonShape):
    """The change of a column of state.

    Attributes:
        column: The name in the new code; for a dropped column, the old name.
        part: `key` or `value`.
        change: `kept`, `renamed`, `widened`, `new` or `dropped`.
        before: The old name and type, and the function if that differs; None for a new column.
        after: The new name and type; None for a dropped column.
        initial: The initial value of a new column, as text; None for other columns.
    """

    column: str
    part: str
    change: str
    before: str | None = None
    after: str | None = None
    initial: str | None = None


@dataclass(frozen=True, slots=True)
class FieldSource:
    """The origin of a column's values.

    Attributes:
        column: The column of the new code.
        saved: The saved column; None for a new column.
        convert: The function that converts a saved value to the new type.
        initial: The initial value of a new column.
        merge: The function that merges two values whose rows get the same key; None if no exact merge exists.
    """

    column: StateColumn
    saved: StateColumn | None
    convert: Convert = same
    initial: Any = None
    merge: Merge | None = None

    @property
    def old(self) -> str | None:
        """The name of the saved column in the schema."""
        return None if self.saved is None else self.saved.name

    @property
    def stays(self) -> bool:
        """Return whether each value keeps its bytes."""
        return (
            self.saved is not None
            and self.saved.type == self.column.type
            and (self.column.nullable or not self.saved.nullable)
        )


@dataclass(frozen=True, slots=True)
class OperatorConversion:
    """The conversion of an operator's rows to those of the new code.

    Attributes:
        old: The saved operator.
        new: The operator of the new code.
        keys: The origins of the key columns.
        window: The origin of a session's window; None without one.
        values: The origins of the value columns, except those that repeat the key.
        dropped: The dropped columns.
        merge: Whether rows that get the same key are merged.
    """

    old: OperatorColumns
    new: OperatorColumns
    keys: tuple[FieldSource, ...]
    window: FieldSource | None
    values: tuple[FieldSource, ...]
    dropped: tuple[tuple[str, StateColumn], ...]
    merge: bool = False

    @property
    def key_stays(self) -> bool:
        """Return whether the bytes of each key are unchanged."""
        return _stay(self.keys, self.old.keys)

    @property
    def rows_stay(self) -> bool:
        """Return whether the bytes of each row are unchanged."""
        return (
            self.key_stays
            and self.old.copies == self.new.copies
            and _stay(self.values, self.old.values)
            and (self.window is None or self.window.stays)
        )

    @property
    def drops_keys(self) -> bool:
        """Return whether several rows may get the same key, because key columns are dropped."""
        return any(part == "key" for part, _ in self.dropped)

    @property
    def merges(self) -> bool:
        """Return whether rows that get the same key are to be merged and can be merged."""
        return self.merge and all(source.merge is not None for source in self.values)

    def columns(self) -> tuple[ColumnChange, ...]:
        """Return the change of each column."""
        return (
            *(describe_column("key", source) for source in self.keys),
            *(describe_column("value", source) for source in self.values),
            *(describe_dropped(part, column) for part, column in self.dropped),
        )


def _stay(sources: Sequence[FieldSource], columns: Sequence[StateColumn]) -> bool:
    """Return whether the sources are all columns, in order, with unchanged bytes."""
    return [source.saved for source in sources] == list(columns) and all(source.stays for source in sources)


def describe_column(part: str, source: FieldSource) -> ColumnChange:
    """Return the change of a column of the new code."""
    column, old = source.column, source.saved
    after = f"{column.label} {column.type_text}"
    if old is None:
        initial = "null" if source.initial is None else str(source.initial)
        return ColumnChange(column.label, part, "new", after=after, initial=initial)
    change = "kept"
    if old.label != column.label:
        change = "renamed"
    if old.type != column.type:
        change = "widened"
    before = f"{old.label} {old.type_text}"
    if old.function is not None and column.function is not None and old.function.text != column.function.text:
        before, after = f"{before}, {old.function.text}", f"{after}, {column.function.text}"
    return ColumnChange(column.label, part, change, before, after)


def describe_dropped(part: str, column: StateColumn) -> ColumnChange:
    """Return the change of a saved column that the new code lacks."""
    return ColumnChange(column.label, part, "dropped", before=f"{column.label} {column.type_text}")


def converted_fields(sources: Sequence[FieldSource], saved: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the values of a new row, by Spark's names.

    Args:
        sources: The origin of each column.
        saved: The values of the saved row.
        where: The saved state, for messages.

    Raises:
        Unsupported: The row has a null in a column that is not nullable in the new code.
    """
    fields: dict[str, Any] = {}
    for source in sources:
        if source.old is None:
            fields[source.column.name] = source.initial
            continue
        value = saved[source.old]
        if value is not None:
            value = source.convert(value)
        elif not source.column.nullable:
            raise Unsupported(
                "a row has a null in a column that is not nullable in the new code",
                code="HF-E7022",
                where=where,
                found=source.column.label,
                hint="make the column nullable in the new code, or change these rows with `holdfast "
                "state edit` first",
            )
        fields[source.column.name] = value
    return fields


def row_change(old: OperatorColumns, new: OperatorColumns, wishes: Wishes, where: str) -> OperatorConversion:
    """Match the columns of an operator by name, and determine the initial values of new columns.

    Args:
        old: The saved operator.
        new: The operator of the new code.
        wishes: The options of the user.
        where: The saved state, for messages.

    Raises:
        Invalid: The matching is ambiguous, or a new column has no initial value.
        Unsupported: A column cannot be converted without loss.
    """
    matching = _Columns(old, new, wishes, where)
    keys = matching.keys()
    values = matching.values()
    matching.refuse_missing()
    change = OperatorConversion(
        old, new, keys, matching.window(), values, tuple(matching.dropped), wishes.merge
    )
    if change.drops_keys and new.kind == SESSIONS:
        raise Unsupported(
            "grouping columns of session windows cannot be dropped, because sessions of different "
            "keys could overlap",
            code="HF-E7007",
            where=where,
            found=f"{described(old)}; {described(new)} in the new code",
            hint="let the sessions end under the old code, or start empty with --drop",
        )
    return change


class _Columns:
    """The matching of one operator's columns."""

    def __init__(self, old: OperatorColumns, new: OperatorColumns, wishes: Wishes, where: str) -> None:
        self._old = old
        self._new = new
        self._wishes = wishes
        self._where = f"{where}, operator {old.named.label}"
        self._said = wishes.columns(new, old.labels, new.labels)
        self._missing: list[StateColumn] = []
        self.dropped: list[tuple[str, StateColumn]] = []

    def keys(self) -> tuple[FieldSource, ...]:
        """Return the origins of the key's columns."""
        saved = {column.label: column for column in self._old.keys}
        pairs: dict[str, StateColumn] = {}
        for was, now in self._said.items():
            if was in saved:
                pairs[now] = saved.pop(was)
        for column in self._new.keys:
            old = saved.get(column.label)
            if old is None or column.label in pairs:
                continue
            if old.expression and column.expression and old.expression != column.expression:
                raise self._redefined(old, column)
            pairs[column.label] = saved.pop(column.label)
        for column in self._new.keys:
            if column.label in pairs or not column.expression:
                continue
            alike = [one for one in saved.values() if one.expression == column.expression]
            if len(alike) == 1:
                pairs[column.label] = saved.pop(alike[0].label)
        left = [column for column in self._new.keys if column.label not in pairs]
        open_ = [column for column in left if not self._is_given(column)]
        maybe = [column for name, column in saved.items() if not self._wishes.drops_column(self._new, name)]
        if open_ and maybe:
            raise self._which("grouping column", maybe, open_)
        self.dropped += [("key", column) for column in saved.values()]
        found = []
        for column in self._new.keys:
            old = pairs.get(column.label)
            found.append(
                self._new_column(column)
                if old is None
                else FieldSource(column, old, self._convert(old, column))
            )
        return tuple(found)

    def window(self) -> FieldSource | None:
        """Return the origin of a session's window."""
        if None not in self._new.copies or None not in self._old.copies:
            return None
        column = self._new.copied[self._new.copies.index(None)]
        old = self._old.copied[self._old.copies.index(None)]
        return FieldSource(column, old, self._convert(old, column))

    def values(self) -> tuple[FieldSource, ...]:
        """Return the origins of the value's columns."""
        old, new = self._old.values, self._new.values
        gone = [column for column in old if self._drops(column)]
        same_names = _aliases(old) in (None, _aliases(new))
        if not self._said and not gone and _forms(old) == _forms(new) and same_names:
            pairs = list(zip(old, new, strict=True))
        elif all(column.aggregate for column in (*old, *new)):
            pairs = self._by_aggregate()
        else:
            pairs = self._by_name()
        known = {column.name: before for before, column in pairs}
        kept = {before.name for before, _ in pairs}
        self.dropped += [("value", column) for column in old if column.name not in kept]
        found = []
        for column in new:
            before = known.get(column.name)
            if before is None:
                found.append(self._new_column(column))
            else:
                convert = self._convert(before, column)
                found.append(
                    FieldSource(column, before, convert, merge=merge_function(self._new.kind, column))
                )
        return tuple(found)

    def refuse_missing(self) -> None:
        """Check that all new columns have an initial value.

        Raises:
            Invalid: A new column has no initial value.
        """
        if not self._missing:
            return
        names = dict.fromkeys(column.label for column in self._missing)
        keys = any(column in self._new.keys for column in self._missing)
        initial = shlex.quote(f"{next(iter(names))}={'VALUE' if keys else '0'}")
        raise Invalid(
            "a new column has no initial value for existing rows",
            code="HF-E2045",
            where=self._where,
            found=", ".join(f"{column.label} {column.type_text}" for column in self._missing),
            hint=f"give --initial {initial}" + ("" if keys else "; new rows then update it"),
        )

    def _by_aggregate(self) -> list[tuple[StateColumn, StateColumn]]:
        before, after = _aggregates(self._old.values), _aggregates(self._new.values)
        chosen: dict[str, str] = {now: was for was, now in self._said.items() if was in before}
        for name, columns in after.items():
            if name in chosen:
                continue
            function = columns[0].function
            alike = {
                was
                for was, kept in before.items()
                if was not in chosen.values()
                and kept[0].function is not None
                and function is not None
                and (kept[0].function.text == function.text or was == name)
                and kept[0].function.name == function.name
            }
            # The same call under the same name is the same aggregate, even if others are similar.
            exact = {was for was in alike if was == name and before[was][0].function == function}
            alike = exact or alike
            alike = {was for was in alike if not self._wishes.drops_column(self._new, was)}
            if len(alike) > 1:
                raise self._which(
                    "aggregate", [before[was][0] for was in sorted(alike)], [columns[0]], aggregates=True
                )
            if alike:
                chosen[name] = alike.pop()
        twice = next((was for was in chosen.values() if list(chosen.values()).count(was) > 1), None)
        if twice is not None:
            heirs = [after[now][0] for now, was in chosen.items() if was == twice]
            raise self._which("aggregate", [before[twice][0]], heirs, aggregates=True)
        pairs = []
        for now, was in chosen.items():
            one = {column.kept: column for column in before[was]}
            other = {column.kept: column for column in after[now]}
            if one.keys() != other.keys():
                raise lossy(before[was][0], after[now][0], self._where)
            pairs += [(one[kept], column) for kept, column in other.items()]
        return pairs

    def _by_name(self) -> list[tuple[StateColumn, StateColumn]]:
        """Match columns by Spark's names if the old code has no plan and the names are unambiguous."""
        pairs: list[tuple[StateColumn, StateColumn]] = []
        old = {column.name: column for column in self._old.values if not self._drops(column)}
        for was, now in self._said.items():
            other = next(
                (column for column in self._new.values if now in (column.label, column.aggregate)), None
            )
            if was in old and other is not None:
                pairs.append((old.pop(was), other))
        taken = {other.name for _, other in pairs}
        left = [column for column in self._new.values if column.name not in taken]
        for column in left:
            kept = spark_name(column)
            alike = [one for one in old.values() if spark_name(one) == kept]
            rivals = [other for other in left if spark_name(other) == kept]
            if len(alike) > 1 or (alike and len(rivals) > 1):
                raise self._which("column", alike, rivals)
            if alike:
                pairs.append((old.pop(alike[0].name), column))
        return pairs

    def _drops(self, column: StateColumn) -> bool:
        names = (column.label, column.aggregate)
        return any(self._wishes.drops_column(self._new, name) for name in names if name)

    def _is_given(self, column: StateColumn) -> bool:
        return self._wishes.starts_with(self._new, column.label, column.aggregate) is not None

    def _new_column(self, column: StateColumn) -> FieldSource:
        alone = column.aggregate if column.kept in ("", "count", "sum", "min", "max") else ""
        told = self._wishes.starts_with(self._new, column.label, alone)
        if told is None:
            if column.kept == "isEmpty" and self._wishes.starts_with(self._new, column.aggregate) is not None:
                return FieldSource(column, None, initial=False, merge=keep_first)
            if column.empty is UNKNOWN:
                self._missing.append(column)
            value = None if column.empty is UNKNOWN else _typed(column.empty, column)
        else:
            value = initial_value(told, column, self._where)
        return FieldSource(column, None, initial=value, merge=keep_first)

    def _convert(self, old: StateColumn, new: StateColumn) -> Convert:
        convert = widening(old.type, new.type)
        # Spark stores the sum of short decimals as a whole number, without the decimal point.
        unscaled = new.kept == "sum" and isinstance(new.type, Decimal) and not isinstance(old.type, Decimal)
        if convert is None or unscaled:
            raise lossy(old, new, self._where)
        return convert

    def _redefined(self, old: StateColumn, new: StateColumn) -> Invalid:
        return Invalid(
            "a grouping column has the same name but a different expression",
            code="HF-E2048",
            where=self._where,
            found=f"{old.label} was {old.expression}, and is {new.expression} in the new code",
            hint=f"if the saved values are those of the new expression, give --map {old.label}={new.label}",
        )

    def _which(
        self, what: str, old: Sequence[StateColumn], new: Sequence[StateColumn], *, aggregates: bool = False
    ) -> Invalid:
        def name(column: StateColumn) -> str:
            return column.aggregate if aggregates else column.label

        first = f"--map {name(old[0])}={name(new[0])}"
        if what == "grouping column":
            rest = f"or --drop {name(old[0])} and --initial {name(new[0])}=VALUE if it is a different one"
        elif all(column.aggregate for column in self._old.values):
            rest = f"or --drop {name(old[0])} to drop its state"
        else:
            rest = "or give the code that wrote the state with --old"
        return Invalid(
            f"the {what} of the state cannot be matched with the new code",
            code="HF-E2049",
            where=self._where,
            found=f"{', '.join(map(name, old))} in the state",
            expected=f"{', '.join(map(name, new))} in the new code",
            hint=f"give {first} if both are the same {what}, {rest}",
        )


def lossy(old: StateColumn, new: StateColumn, where: str, side: str | None = None) -> Unsupported:
    """Return the error for a column with saved values that do not fit its new type.

    Args:
        old: The saved column.
        new: The column of the new code.
        where: The saved state.
        side: The side of a join, where new columns need an initial value; None for other operators.
    """
    return Unsupported(
        "a column cannot be converted to its new type without loss",
        code="HF-E7008",
        where=where,
        found=f"{old.label} {old.type_text}, and {new.label} {new.type_text} in the new code",
        expected="the same type, or a wider one",
        hint=f"rename the column in the new code, so that it starts empty, or give --drop {old.label}"
        if side is None
        else f"rename the column in the new code, and give --initial {side}.NAME=null",
    )


def initial_value(told: str, column: StateColumn, where: str) -> Any:
    """Return a user's initial value of a new column.

    Raises:
        Invalid: The value does not fit the type of the column.
    """
    try:
        value = value_from_text(told, column.type)
    except ValueError as error:
        raise Invalid(
            f"the initial value does not fit the type of the new column {column.label}",
            code="HF-E2046",
            where=where,
            found=f"--initial {column.label}={told}",
            expected=f"null, or a value of type {column.type_text}",
            hint=f"give a value of this type: --initial {column.label}=VALUE"
            if has_text_form(column.type)
            else f"give --initial {column.label}=null, and let new rows set the value",
        ) from error
    if value is None and not column.nullable:
        raise Invalid(
            "a new column cannot start with null",
            code="HF-E2047",
            where=where,
            found=f"{column.label} {column.type_text} NOT NULL",
            hint=f"give a value: --initial {column.label}=0",
        )
    return value


def _forms(columns: Sequence[StateColumn]) -> list[tuple[str, Any]]:
    return [(spark_name(column), column.type) for column in columns]


def _aliases(columns: Sequence[StateColumn]) -> list[str] | None:
    """Return the names of the columns; None if unknown."""
    return [column.label for column in columns] if all(column.aggregate for column in columns) else None


def _aggregates(columns: Sequence[StateColumn]) -> dict[str, list[StateColumn]]:
    found: dict[str, list[StateColumn]] = {}
    for column in columns:
        found.setdefault(column.aggregate, []).append(column)
    return found


def _typed(value: Any, column: StateColumn) -> Any:
    """Convert the initial value of a function to the type of a column."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(column.type, Decimal):
        return Number(0)
    if isinstance(column.type, Atom) and column.type.name in ("float", "double"):
        return float(value)
    return value


def refuse_merge(
    change: OperatorConversion, where: str, collisions: int, example: str
) -> Invalid | Unsupported:
    """Return the error for rows that get the same key and cannot be merged.

    Args:
        change: The conversion.
        where: The saved state, for messages.
        collisions: The number of rows whose key equals that of a different row.
        example: A key that several rows get.
    """
    inexact = [source.column.label for source in change.values if source.merge is None]
    names = ", ".join(column.label for part, column in change.dropped if part == "key")
    found = (
        f"{counted(collisions, 'row')} with the key of another row after dropping {names}, such as {example}"
    )
    if inexact:
        return Unsupported(
            "rows would get the same key, but the values cannot be merged exactly",
            code="HF-E7009",
            where=f"{where}, operator {change.old.named.label}",
            found=f"{found}, and the aggregates {', '.join(inexact)}",
            expected="only counts, sums of whole or decimal numbers, minimums and maximums",
            hint="keep the column in the key, or drop these aggregates",
        )
    return Invalid(
        "rows would get the same key",
        code="HF-E2050",
        where=f"{where}, operator {change.old.named.label}",
        found=found,
        expected="a different key for each row",
        hint="give --merge to merge such rows, as if the column had never existed",
    )
