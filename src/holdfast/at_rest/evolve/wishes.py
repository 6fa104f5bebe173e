"""What a person says of the change: which is which, what goes, what new columns start with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.at_rest.evolve.state_columns import OperatorColumns
from holdfast.errors import Invalid


@dataclass(slots=True)
class Wishes:
    """What was said, and what of it has been used so far.

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
        """Whether a column was said to go."""
        for said in self.drops:
            if _own(said, operator) == name:
                self._used.add(("drop", said))
                return True
        return False

    def starts_with(self, operator: OperatorColumns, *names: str) -> str | None:
        """What a new column starts with, under the first of some names; None where nobody has said it."""
        for name in names:
            for said, value in self.initial.items():
                if name and _own(said, operator) == name:
                    self._used.add(("initial", said))
                    return value
        return None

    def refuse_unused(self, known: Iterable[str]) -> None:
        """Refuse what stands for nothing.

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
