"""Map the columns of saved state to those of the new code."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal as Number
from decimal import InvalidOperation
from typing import Any, Final

from holdfast.changes.state_columns import AGGREGATE, DEDUPE, SESSIONS, UNKNOWN, OperatorColumns, StateColumn
from holdfast.config.units import counted
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.rows.spark_types import Array, Atom, DataType, Decimal, Map, Struct
from holdfast.json_shapes import JsonShape


@dataclass(slots=True)
class Wishes:
    """The stated wishes, and which of them have been used.

    Attributes:
        renames: Operators or columns of the new code by what they were.
        drops: Operators or columns whose state is let go.
        initial: What new columns start with, by their names.
        merge: Whether rows that get the same key are put together.
    """

    renames: Mapping[str, str] = field(default_factory=dict)
    drops: frozenset[str] = frozenset()
    initial: Mapping[str, str] = field(default_factory=dict)
    merge: bool = False
    _used: set[tuple[str, str]] = field(default_factory=set)

    def operator_pairs(
        self, old: Iterable[OperatorColumns], new: Iterable[OperatorColumns]
    ) -> dict[int, int]:
        """The operators that were said to be the same, by number."""
        before, after = list(old), list(new)
        pairs: dict[int, int] = {}
        for was, now in self.renames.items():
            one, other = _called(was, before), _called(now, after)
            if one is not None and other is not None:
                self._used.add(("map", was))
                pairs[one.number] = other.number
        return pairs

    def dropped_operators(self, old: Iterable[OperatorColumns]) -> set[int]:
        """The operators that were said to go, by number."""
        found = set()
        before = list(old)
        for name in self.drops:
            operator = _called(name, before)
            if operator is not None:
                self._used.add(("drop", name))
                found.add(operator.number)
        return found

    def columns(self, operator: OperatorColumns, old: frozenset[str], new: frozenset[str]) -> dict[str, str]:
        """The columns of an operator that were said to be the same: new names by old ones.

        Args:
            operator: The operator of the new code.
            old: What its columns were called.
            new: What they are called.
        """
        found = {}
        for was, now in self.renames.items():
            bare, there = _own(was, operator), _own(now, operator)
            if bare in old and there in new:
                self._used.add(("map", was))
                found[bare] = there
        return found

    def drops_column(self, operator: OperatorColumns, name: str) -> bool:
        """Return whether a column was named to be dropped."""
        for said in self.drops:
            if _own(said, operator) == name:
                self._used.add(("drop", said))
                return True
        return False

    def starts_with(self, operator: OperatorColumns, *names: str) -> str | None:
        """Return the initial value of a new column, under the first of some names; None if not stated."""
        for name in names:
            for said, value in self.initial.items():
                if name and _own(said, operator) == name:
                    self._used.add(("initial", said))
                    return value
        return None

    def refuse_unused(self, known: Iterable[str]) -> None:
        """Refuse what represents nothing.

        Raises:
            Invalid: A name is neither an operator nor a column that changes.
        """
        said = [
            *(("map", name) for name in self.renames),
            *(("drop", name) for name in sorted(self.drops)),
            *(("initial", name) for name in self.initial),
        ]
        left = next((entry for entry in said if entry not in self._used), None)
        if left is None:
            return
        word, name = left
        raise Invalid(
            "this stands for nothing that changes",
            where=f"--{word}",
            found=f"{name}={self.renames[name]}" if word == "map" else name,
            expected=", ".join(sorted(set(known))) or "nothing: the states are as they were",
            hint="see what would be done with --dry-run; an operator's number may stand before a column, as"
            " in 0.total",
        )


def _called(name: str, operators: Iterable[OperatorColumns]) -> OperatorColumns | None:
    """The one operator that has this number or name."""
    found = [
        operator for operator in operators if name in (str(operator.number), operator.named.display_name)
    ]
    return found[0] if len(found) == 1 else None


def _own(name: str, operator: OperatorColumns) -> str:
    """A column's name without the number of its operator before it."""
    return name.removeprefix(f"{operator.number}.")


_SAME, _SAME_KEY, _SIMILAR, _UNLIKE = 3, 2, 1, 0


@dataclass(frozen=True, slots=True)
class Matched:
    """An operator before and after.

    Attributes:
        old: The saved one; None where the new code has inserted it.
        new: The new code's; None where it has none.
    """

    old: OperatorColumns | None
    new: OperatorColumns | None


def match_operators(
    old: Sequence[OperatorColumns], new: Sequence[OperatorColumns], wishes: Wishes, where: str
) -> tuple[Matched, ...]:
    """Find each operator again: by its name, else by what it does and by the columns that it goes by.

    Of several that are alike, each is the one at its place where there are as many as before.

    Args:
        old: The saved state's operators.
        new: Those of the new code.
        wishes: What a person has said.
        where: The saved state, for messages.

    Raises:
        Invalid: Which is which cannot be told; the candidates are named.
    """
    said = wishes.operator_pairs(old, new)
    gone = wishes.dropped_operators(old)
    numbers = {operator.number: operator for operator in new}
    pairs: dict[int, int] = {}
    for operator in old:
        there = said.get(operator.number)
        if there is None:
            continue
        if numbers[there].kind != operator.kind:
            raise Invalid(
                "two operators that do not do the same are not the same",
                where=where,
                found=f"{operator.named.label}, and {numbers[there].named.label} in the new code",
                hint="leave that --map out",
            )
        if there in pairs.values():
            raise Invalid(
                "two operators are said to be one",
                where=where,
                found=numbers[there].named.label,
                hint="name it in one --map only",
            )
        pairs[operator.number] = there
    for tier in (_SAME, _SAME_KEY, _SIMILAR):
        free = [one for one in old if one.number not in pairs and one.number not in gone]
        left = [other for other in new if other.number not in pairs.values()]
        pairs |= _at_tier(free, left, tier, wishes, where)
    free = [one for one in old if one.number not in pairs and one.number not in gone]
    left = [other for other in new if other.number not in pairs.values()]
    for one in free:
        alike = [other for other in left if other.kind == one.kind]
        if alike:
            raise _ambiguous([one], alike, where)
    by_new = {there: number for number, there in pairs.items()}
    saved = {operator.number: operator for operator in old}
    return (
        *(Matched(saved[by_new[other.number]] if other.number in by_new else None, other) for other in new),
        *(Matched(one, None) for one in old if one.number not in pairs),
    )


def _at_tier(
    old: Sequence[OperatorColumns], new: Sequence[OperatorColumns], tier: int, wishes: Wishes, where: str
) -> dict[int, int]:
    """The pairs that are alike to a degree, and to no higher one."""
    alike = {
        one.number: [other.number for other in new if _likeness(one, other, wishes) == tier] for one in old
    }
    pairs: dict[int, int] = {}
    for one in old:
        candidates = alike[one.number]
        if not candidates or one.number in pairs:
            continue
        rivals = [other.number for other in old if set(alike[other.number]) & set(candidates)]
        same = all(alike[rival] == candidates for rival in rivals)
        if not same or len(rivals) != len(candidates):
            by_number = {other.number: other for other in new}
            raise _ambiguous(
                [other for other in old if other.number in rivals],
                [by_number[number] for number in candidates],
                where,
            )
        pairs |= dict(zip(rivals, candidates, strict=True))
    return pairs


def _likeness(old: OperatorColumns, new: OperatorColumns, wishes: Wishes) -> int:
    if old.kind != new.kind:
        return _UNLIKE
    if old.named.user_name is not None or new.named.user_name is not None:
        return _SAME if old.named.user_name == new.named.user_name else _UNLIKE
    if old.step is not None and old.step == new.step:
        return _SAME
    if not old.evolves or not new.evolves:
        same = [store.families for store in old.shape.stores] == [
            store.families for store in new.shape.stores
        ]
        return _SAME_KEY if same or set(old.shape.variables) & set(new.shape.variables) else _UNLIKE
    before, after = {column.label for column in old.keys}, {column.label for column in new.keys}
    moved = wishes.columns(new, frozenset(before), frozenset(after))
    before = {moved.get(label, label) for label in before}
    was, now = ({column.expression for column in operator.keys} - {""} for operator in (old, new))
    if before == after or (was == now and len(was) == len(old.keys) == len(new.keys)):
        return _SAME_KEY
    return _SIMILAR if before & after or was & now else _UNLIKE


def _ambiguous(old: Sequence[OperatorColumns], new: Sequence[OperatorColumns], where: str) -> Invalid:
    one, other = old[0], new[0]
    return Invalid(
        "which operator is which cannot be told",
        where=where,
        found="; ".join(f"{described(operator)} in the state" for operator in old),
        expected="one of " + "; ".join(f"{described(operator)} in the new code" for operator in new),
        hint=f"say it: --map {one.number}={other.number} where the state is that operator's,"
        f" --drop {one.number} where it goes",
    )


def described(operator: OperatorColumns) -> str:
    """An operator in words: number, name, and what it goes by."""
    keys = ", ".join(f"{column.label} {column.type_text}" for column in operator.keys)
    return operator.named.label + (f" by ({keys})" if keys else "")


Convert = Callable[[Any], Any]

_INTEGERS: Final = ("byte", "short", "integer", "long")
# How many digits a whole number may have, and the widest of them whose values a floating number has exactly.
_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_EXACT_IN: Final = {"float": ("byte", "short"), "double": ("byte", "short", "integer", "float")}
_BOOLEANS: Final = {"true": True, "false": False}


def same(value: Any) -> Any:
    """The value as it is."""
    return value


def widening(old: DataType, new: DataType) -> Convert | None:
    """Return the conversion of values into a wider type; None if a value could be lost or changed."""
    if old == new:
        return same
    if isinstance(new, Decimal):
        return _to_decimal(old, new)
    if isinstance(old, Atom) and isinstance(new, Atom):
        return _between(old.name, new.name)
    if isinstance(old, Struct) and isinstance(new, Struct):
        return _struct(old, new)
    return _inside(old, new)


def _to_decimal(old: DataType, new: Decimal) -> Convert | None:
    if isinstance(old, Decimal):
        whole = old.precision - old.scale
        return same if new.scale >= old.scale and new.precision - new.scale >= whole else None
    digits = _DIGITS.get(old.name) if isinstance(old, Atom) else None
    return Number if digits is not None and new.precision - new.scale >= digits else None


def _inside(old: DataType, new: DataType) -> Convert | None:
    if isinstance(old, Array) and isinstance(new, Array):
        return _array(widening(old.element, new.element))
    if isinstance(old, Map) and isinstance(new, Map) and old.key == new.key:
        return _map(widening(old.value, new.value))
    return None


def _between(old: str, new: str) -> Convert | None:
    if old == "void":
        return same
    if old in _INTEGERS and new in _INTEGERS:
        return same if _INTEGERS.index(new) >= _INTEGERS.index(old) else None
    return float if old in _EXACT_IN.get(new, ()) else None


def _array(inner: Convert | None) -> Convert | None:
    if inner is None:
        return None
    return lambda values: [None if value is None else inner(value) for value in values]


def _map(inner: Convert | None) -> Convert | None:
    if inner is None:
        return None

    def converted(given: Any) -> Any:
        pairs = given.items() if isinstance(given, dict) else given
        return [(key, None if value is None else inner(value)) for key, value in pairs]

    return converted


def _struct(old: Struct, new: Struct) -> Convert | None:
    if len(old.types) != len(new.types):
        return None
    parts = [widening(before, after) for before, after in zip(old.types, new.types, strict=True)]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts):
        return None
    names = list(zip(old.names, new.names, known, strict=True))

    def converted(value: Any) -> Any:
        return {
            after: None if value[before] is None else convert(value[before])
            for before, after, convert in names
        }

    return converted


def value_from_text(text: str, type_: DataType) -> Any:
    """A value of a type, as a person writes it; `null` is none.

    Raises:
        ValueError: It is not one, or values of the type are not written so.
    """
    if text.lower() == "null":
        return None
    if isinstance(type_, Decimal):
        try:
            return Number(text)
        except InvalidOperation as error:
            raise ValueError("not a number") from error
    name = type_.name if isinstance(type_, Atom) else ""
    if name in _INTEGERS:
        return int(text)
    if name in ("float", "double"):
        return float(text)
    if name == "boolean" and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if name == "string":
        return text
    raise ValueError("a value of this type cannot be written here")


Merge = Callable[[Any, Any], Any]

_WHOLE: Final = frozenset({"byte", "short", "integer", "long"})
_ORDERED: Final = _WHOLE | {"boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "micros"}


@dataclass(frozen=True, slots=True)
class ColumnChange(JsonShape):
    """The change of a column of state.

    Attributes:
        column: What the new code calls it; of one that goes, what it was called.
        part: `key` or `value`.
        change: `kept`, `renamed`, `widened`, `new` or `dropped`.
        before: What it was: name and type, and the call where that is another; None of a new one.
        after: What it is; None of one that goes.
        initial: What a new one starts with, as text.
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
        saved: The saved column; None of a new one.
        convert: Brings a saved value into the new type.
        initial: What a new one starts with.
        merge: Puts two values together where their rows get one key; None where that is not exact.
    """

    column: StateColumn
    saved: StateColumn | None
    convert: Convert = same
    initial: Any = None
    merge: Merge | None = None

    @property
    def old(self) -> str | None:
        """The saved column's name in the schema."""
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
    """The conversion of an operator's rows into those of the new code.

    Attributes:
        old: The saved operator.
        new: That of the new code.
        keys: Where the columns of its keys come from.
        window: Where the window of a session comes from.
        values: Where the columns of its values come from, without those that repeat the key.
        dropped: The columns that go.
        merge: Whether rows that get the same key are put together.
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
        """Return whether several rows may get the same key."""
        return any(part == "key" for part, _ in self.dropped)

    @property
    def merges(self) -> bool:
        """Return whether rows that get the same key are to be merged, and can be."""
        return self.merge and all(source.merge is not None for source in self.values)

    def columns(self) -> tuple[ColumnChange, ...]:
        """Return the change of each column."""
        return (
            *(_describe_column("key", source) for source in self.keys),
            *(_describe_column("value", source) for source in self.values),
            *(
                ColumnChange(column.label, part, "dropped", before=f"{column.label} {column.type_text}")
                for part, column in self.dropped
            ),
        )


def _stay(sources: Sequence[FieldSource], columns: Sequence[StateColumn]) -> bool:
    """Return whether these are all columns, in their order, with unchanged bytes."""
    return [source.saved for source in sources] == list(columns) and all(source.stays for source in sources)


def _describe_column(part: str, source: FieldSource) -> ColumnChange:
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


def row_change(old: OperatorColumns, new: OperatorColumns, wishes: Wishes, where: str) -> OperatorConversion:
    """Find each column of an operator again, by its name, and what each new one starts with.

    Args:
        old: The saved operator.
        new: That of the new code.
        wishes: What a person has said.
        where: The saved state, for messages.

    Raises:
        Invalid: Which column is which cannot be told, or what a new one starts with.
        Unsupported: A column cannot be brought into the new form without a loss.
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
            "sessions cannot be kept by fewer columns: those of several keys would overlap",
            where=where,
            found=f"{described(old)}; {described(new)} in the new code",
            hint="let the sessions end under the old code, or start empty with --drop",
        )
    return change


class _Columns:
    """One operator's columns."""

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
                found.append(FieldSource(column, before, convert, merge=_merge(self._new.kind, column)))
        return tuple(found)

    def refuse_missing(self) -> None:
        """Refuse columns without an initial value.

        Raises:
            Invalid: There are some.
        """
        if not self._missing:
            return
        names = dict.fromkeys(column.label for column in self._missing)
        keys = any(column in self._new.keys for column in self._missing)
        initial = shlex.quote(f"{next(iter(names))}={'VALUE' if keys else '0'}")
        raise Invalid(
            "it is not said what a new column has for the rows that are there",
            where=self._where,
            found=", ".join(f"{column.label} {column.type_text}" for column in self._missing),
            hint=f"give --initial {initial}"
            + ("" if keys else ": from there it goes on with the rows that come"),
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
            # The same call under the same name is the same, whatever else is like one of them.
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
                raise self._lossy(before[was][0], after[now][0])
            pairs += [(one[kept], column) for kept, column in other.items()]
        return pairs

    def _by_name(self) -> list[tuple[StateColumn, StateColumn]]:
        """Without the plan that made the state: by what Spark calls the columns, where that is clear."""
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
            kept = _spark_name(column)
            alike = [one for one in old.values() if _spark_name(one) == kept]
            rivals = [other for other in left if _spark_name(other) == kept]
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
                return FieldSource(column, None, initial=False, merge=_first)
            if column.empty is UNKNOWN:
                self._missing.append(column)
            value = None if column.empty is UNKNOWN else _typed(column.empty, column)
        else:
            try:
                value = value_from_text(told, column.type)
            except ValueError as error:
                raise Invalid(
                    "a new column cannot start with this",
                    where=self._where,
                    found=f"{column.label}={told}: {error}",
                    expected=f"a value of type {column.type_text}, or null",
                    hint="write numbers as 0 or 1.5, text as it is",
                ) from error
            if value is None and not column.nullable:
                raise Invalid(
                    "a new column cannot start with null",
                    where=self._where,
                    found=f"{column.label} {column.type_text}, which has no nulls",
                    hint=f"give a value: --initial {column.label}=0",
                )
        return FieldSource(column, None, initial=value, merge=_first)

    def _convert(self, old: StateColumn, new: StateColumn) -> Convert:
        convert = widening(old.type, new.type)
        # Spark keeps the sum of short decimals as a whole number, without the point.
        unscaled = new.kept == "sum" and isinstance(new.type, Decimal) and not isinstance(old.type, Decimal)
        if convert is None or unscaled:
            raise self._lossy(old, new)
        return convert

    def _lossy(self, old: StateColumn, new: StateColumn) -> Unsupported:
        return Unsupported(
            "a column cannot be brought into its new type without a loss",
            where=self._where,
            found=f"{old.label} {old.type_text}, and {new.label} {new.type_text} in the new code",
            expected="the same type, or a wider one",
            hint=f"give it another name in the code, so that it starts anew, or say --drop {old.label}",
        )

    def _redefined(self, old: StateColumn, new: StateColumn) -> Invalid:
        return Invalid(
            "a grouping column has its name still and is another expression",
            where=self._where,
            found=f"{old.label} was {old.expression}, and is {new.expression} in the new code",
            hint=f"say --map {old.label}={new.label} if the values in the state are what the new code would"
            " give",
        )

    def _which(
        self, what: str, old: Sequence[StateColumn], new: Sequence[StateColumn], *, aggregates: bool = False
    ) -> Invalid:
        def name(column: StateColumn) -> str:
            return column.aggregate if aggregates else column.label

        first = f"--map {name(old[0])}={name(new[0])}"
        if what == "grouping column":
            rest = f"or --drop {name(old[0])} and --initial {name(new[0])}=VALUE if it is another"
        elif all(column.aggregate for column in self._old.values):
            rest = f"or --drop {name(old[0])} where its state goes"
        else:
            rest = "or give the code that made the state with --old"
        return Invalid(
            f"which {what} is which cannot be told",
            where=self._where,
            found=f"{', '.join(map(name, old))} in the state",
            expected=f"{', '.join(map(name, new))} in the new code",
            hint=f"say {first} if it is the same, {rest}",
        )


def _forms(columns: Sequence[StateColumn]) -> list[tuple[str, Any]]:
    return [(_spark_name(column), column.type) for column in columns]


def _aliases(columns: Sequence[StateColumn]) -> list[str] | None:
    """Return the names of the columns; None if unknown."""
    return [column.label for column in columns] if all(column.aggregate for column in columns) else None


def _spark_name(column: StateColumn) -> str:
    return column.kept or column.name.partition("#")[0]


def _aggregates(columns: Sequence[StateColumn]) -> dict[str, list[StateColumn]]:
    found: dict[str, list[StateColumn]] = {}
    for column in columns:
        found.setdefault(column.aggregate, []).append(column)
    return found


def _typed(value: Any, column: StateColumn) -> Any:
    """Return the initial value of a function, in the column's type."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(column.type, Decimal):
        return Number(0)
    if isinstance(column.type, Atom) and column.type.name in ("float", "double"):
        return float(value)
    return value


def _merge(kind: str, column: StateColumn) -> Merge | None:
    """Return the function that merges two values exactly as Spark merges partial results, or None."""
    if kind != AGGREGATE:
        return _first if kind == DEDUPE else None
    decimal = isinstance(column.type, Decimal)
    whole = decimal or (isinstance(column.type, Atom) and column.type.name in _WHOLE)
    ordered = whole or (isinstance(column.type, Atom) and column.type.name in _ORDERED)
    kept = _spark_name(column)
    if kept == "isEmpty":
        return _both
    if kept in ("count", "sum") and whole:
        return _decimal_sum if decimal else _not_null(_sum)
    return _not_null(_least if kept == "min" else _most) if kept in ("min", "max") and ordered else None


def _first(one: Any, _: Any) -> Any:
    return one


def _not_null(merge: Merge) -> Merge:
    return lambda one, other: one if other is None else other if one is None else merge(one, other)


def _both(one: Any, other: Any) -> Any:
    return one and other


def _sum(one: Any, other: Any) -> Any:
    return one + other


def _decimal_sum(one: Any, other: Any) -> Any:
    """Null is a sum that was too large for its type."""
    return None if one is None or other is None else one + other


def _least(one: Any, other: Any) -> Any:
    return min(one, other, key=_order)


def _most(one: Any, other: Any) -> Any:
    return max(one, other, key=_order)


def _order(value: Any) -> Any:
    """Text by its bytes, as Spark orders it."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def refuse_merge(
    change: OperatorConversion, where: str, collisions: int, example: str
) -> Invalid | Unsupported:
    """Return the error for rows that get one key and cannot be merged.

    Args:
        change: The change.
        where: The saved state.
        collisions: How many rows have the key of another one.
        example: A key that several get.
    """
    inexact = [source.column.label for source in change.values if source.merge is None]
    names = ", ".join(column.label for part, column in change.dropped if part == "key")
    found = f"{counted(collisions, 'row')} with the key of another one without {names}, such as {example}"
    if inexact:
        return Unsupported(
            "rows get the same key, and what they have cannot be put together exactly",
            where=f"{where}, operator {change.old.named.label}",
            found=f"{found}; {', '.join(inexact)}",
            expected="counts, sums of whole or decimal numbers, smallest and largest values",
            hint="keep the column in the key, or drop these aggregates",
        )
    return Invalid(
        "rows get the same key",
        where=f"{where}, operator {change.old.named.label}",
        found=found,
        expected="keys that stay different",
        hint="give --merge to put such rows together, as if the column had never been there",
    )
