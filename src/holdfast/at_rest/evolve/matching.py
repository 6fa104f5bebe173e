"""Which operator of the saved state is which of the new code's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.at_rest.evolve.state_columns import OperatorColumns
from holdfast.at_rest.evolve.wishes import Wishes
from holdfast.errors import Invalid

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
