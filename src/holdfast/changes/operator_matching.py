"""The matching of the operators of saved state with those of the new code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.changes.state_columns import OperatorColumns
from holdfast.errors import Invalid
from holdfast.formats.operators import STREAM_JOIN


@dataclass(slots=True)
class Wishes:
    """The options of the user for matching, with a record of which were used.

    Attributes:
        renames: The new names of operators or columns, by old name.
        drops: The operators or columns to drop.
        initial: The initial values of new columns, by name.
        merge: Whether rows that get the same key are merged.
    """

    renames: Mapping[str, str] = field(default_factory=dict)
    drops: frozenset[str] = frozenset()
    initial: Mapping[str, str] = field(default_factory=dict)
    merge: bool = False
    _used: set[tuple[str, str]] = field(default_factory=set)

    def operator_pairs(
        self, old: Iterable[OperatorColumns], new: Iterable[OperatorColumns]
    ) -> dict[int, int]:
        """Return the pairs of operators that the user matched, by number."""
        before, after = list(old), list(new)
        pairs: dict[int, int] = {}
        for was, now in self.renames.items():
            one, other = _called(was, before), _called(now, after)
            if one is not None and other is not None:
                self._used.add(("map", was))
                pairs[one.number] = other.number
        return pairs

    def dropped_operators(self, old: Iterable[OperatorColumns]) -> set[int]:
        """Return the operators that the user dropped, by number."""
        found = set()
        before = list(old)
        for name in self.drops:
            operator = _called(name, before)
            if operator is not None:
                self._used.add(("drop", name))
                found.add(operator.number)
        return found

    def columns(self, operator: OperatorColumns, old: frozenset[str], new: frozenset[str]) -> dict[str, str]:
        """Return the columns of an operator that the user matched, as new names by old names.

        Args:
            operator: The operator of the new code.
            old: The old names of the operator's columns.
            new: The new names of the operator's columns.
        """
        found = {}
        for was, now in self.renames.items():
            bare, there = _own(was, operator), _own(now, operator)
            if bare in old and there in new:
                self._used.add(("map", was))
                found[bare] = there
        return found

    def drops_column(self, operator: OperatorColumns, name: str) -> bool:
        """Return whether the user named a column to be dropped."""
        for said in self.drops:
            if _own(said, operator) == name:
                self._used.add(("drop", said))
                return True
        return False

    def starts_with(self, operator: OperatorColumns, *names: str) -> str | None:
        """Return the initial value of a new column, under the first of several names; None if not given."""
        for name in names:
            for said, value in self.initial.items():
                if name and _own(said, operator) == name:
                    self._used.add(("initial", said))
                    return value
        return None

    def refuse_unused(self, known: Iterable[str]) -> None:
        """Check that all names in the options were used.

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
            "the option does not name an operator or a column that changes",
            code="HF-E2102",
            where=f"--{word}",
            found=f"{name}={self.renames[name]}" if word == "map" else name,
            expected=", ".join(sorted(set(known))) or "nothing, because the states are unchanged",
            hint="list the changes with --dry-run; to choose among operators, prefix the column with the "
            "number of its operator, such as 0.total",
        )


def _called(name: str, operators: Iterable[OperatorColumns]) -> OperatorColumns | None:
    """Return the operator with this number or name; None if there is none or several."""
    found = [
        operator for operator in operators if name in (str(operator.number), operator.named.display_name)
    ]
    return found[0] if len(found) == 1 else None


def _own(name: str, operator: OperatorColumns) -> str:
    """Return the name of a column without the prefix of its operator's number."""
    return name.removeprefix(f"{operator.number}.")


_SAME, _SAME_KEY, _SIMILAR, _ALIKE, _UNLIKE = 4, 3, 2, 1, 0


@dataclass(frozen=True, slots=True)
class Matched:
    """A pair of matched operators.

    Attributes:
        old: The operator in the saved state; None if only the new code has it.
        new: The operator in the new code; None if only the saved state has it.
    """

    old: OperatorColumns | None
    new: OperatorColumns | None


def match_operators(
    old: Sequence[OperatorColumns], new: Sequence[OperatorColumns], wishes: Wishes, where: str
) -> tuple[Matched, ...]:
    """Match each operator by its name, or else by its type and key columns.

    Equal operators are matched in order if their number is unchanged.

    Args:
        old: The operators of the saved state.
        new: The operators of the new code.
        wishes: The options of the user.
        where: The saved state, for messages.

    Raises:
        Invalid: The matching is ambiguous; the message lists the candidates.
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
                "operators of different types cannot be matched",
                code="HF-E2103",
                where=where,
                found=f"{operator.named.label}, and {numbers[there].named.label} in the new code",
                hint="remove the --map of these operators",
            )
        if there in pairs.values():
            raise Invalid(
                "two saved operators are mapped to the same new operator",
                code="HF-E2104",
                where=where,
                found=numbers[there].named.label,
                hint="map only one saved operator to this operator",
            )
        pairs[operator.number] = there
    for tier in (_SAME, _SAME_KEY, _SIMILAR, _ALIKE):
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
    """Return the pairs of operators whose similarity is exactly this tier."""
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
        return _likeness_of_states(old, new)
    before, after = {column.label for column in old.keys}, {column.label for column in new.keys}
    moved = wishes.columns(new, frozenset(before), frozenset(after))
    before = {moved.get(label, label) for label in before}
    was, now = ({column.expression for column in operator.keys} - {""} for operator in (old, new))
    if before == after or (was == now and len(was) == len(old.keys) == len(new.keys)):
        return _SAME_KEY
    return _SIMILAR if before & after or was & now else _UNLIKE


def _likeness_of_states(old: OperatorColumns, new: OperatorColumns) -> int:
    """Return how similar two operators are whose columns have no labels."""
    same = [store.families for store in old.shape.stores] == [store.families for store in new.shape.stores]
    if same or set(old.shape.variables) & set(new.shape.variables):
        return _SAME_KEY
    if old.kind == STREAM_JOIN:
        return _SIMILAR if _key_schemas(old) == _key_schemas(new) else _ALIKE
    return _UNLIKE


def _key_schemas(operator: OperatorColumns) -> list[str]:
    return [family.key_schema for store in operator.shape.stores for family in store.families]


def _ambiguous(old: Sequence[OperatorColumns], new: Sequence[OperatorColumns], where: str) -> Invalid:
    one, other = old[0], new[0]
    return Invalid(
        "the operators cannot be matched between state and new code",
        code="HF-E2105",
        where=where,
        found="; ".join(f"{described(operator)} in the state" for operator in old),
        expected="one of " + "; ".join(f"{described(operator)} in the new code" for operator in new),
        hint=f"give --map {one.number}={other.number} if the state belongs to operator {other.number} of the "
        f"new code, or --drop {one.number} to drop the state",
    )


def described(operator: OperatorColumns) -> str:
    """Return a description of an operator with number, name and key columns."""
    keys = ", ".join(f"{column.label} {column.type_text}" for column in operator.keys)
    return operator.named.label + (f" by ({keys})" if keys else "")
