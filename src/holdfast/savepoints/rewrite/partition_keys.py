"""Which partition the keys of a state belong to: by what of them Spark's hash goes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from holdfast.checkpoints.state.states import StateCodec
from holdfast.errors import Corrupt, Unsupported
from holdfast.formats.operators import FamilyUse, KeyPlacement, OperatorName, family_of, operator_kind, use_of
from holdfast.formats.rows.murmur3 import require_hashed
from holdfast.formats.rows.row_forms import KeyKind
from holdfast.formats.rows.row_hashes import row_hashes

_COMPOSITE: Final = ("key", "userKey")

_Fields = Sequence[Mapping[str, Any]]


class PlacedOperator(Protocol):
    """What decides where the keys of an operator go."""

    @property
    def name(self) -> str:
        """Spark's name for it."""

    @property
    def named(self) -> OperatorName:
        """What people call it."""

    @property
    def gathered(self) -> bool:
        """Whether it goes by no key, and one task has all of it."""


class Placement:
    """Where the keys of one state belong.

    Args:
        operator: The state's operator.
        state: The state.
        where: Its address, for messages.

    Raises:
        Unsupported: By what the operator's keys go is not known here, or the hash of its type.
        Corrupt: The state has no schema.
    """

    def __init__(self, operator: PlacedOperator, state: StateCodec, where: str) -> None:
        if state.schema is None:
            raise Corrupt(
                "a state has no schema",
                where=where,
                found=state.name.label,
                hint="`holdfast checkpoint verify` names the files that are gone",
            )
        self._state = state
        self._where = where
        self._fields: _Fields = json.loads(state.schema.key_schema)["fields"]
        self._part: KeyKind | None = None
        self._inside = 0
        self._hashed = self._by(operator)
        for field in self._fields[: self._hashed]:
            require_hashed(field["type"], where)

    def hashes(self, keys: Sequence[bytes]) -> list[int]:
        """Spark's hash of what decides the partition: it is the rest of a division by their number.

        Args:
            keys: Keys as they are stored, without the number of their column family.

        Raises:
            Corrupt: A key is damaged.
        """
        if not self._hashed:
            # What goes by no key at all is gathered in one task.
            return [0] * len(keys)
        if self._part is None:
            rows = [self._state.key_row(key) for key in keys]
        else:
            rows = [self._row_of_part(key) for key in keys]
        return row_hashes(rows, self._fields, self._hashed, self._where)

    def _by(self, operator: PlacedOperator) -> int:
        """How many fields of the row are hashed; sees to which row that is."""
        kind = operator_kind(operator.name)
        placement = None if kind is None else kind.placement
        if placement is KeyPlacement.WHOLE_KEY:
            family = family_of(operator.name, self._state.name.label)
            return len(self._fields) - (0 if family is None else family.row_fields)
        if placement is KeyPlacement.FIRST_FIELDS:
            columns = len(self._state.key_form.first)
            if self._state.values.rocksdb:
                self._part = KeyKind.PREFIX
                self._fields = self._fields[:columns]
            return columns
        if placement is KeyPlacement.GROUPING_KEY:
            return self._by_grouping(operator.name)
        if operator.gathered:
            return 0
        raise Unsupported(
            "which partition a key of this operator belongs to is not known here",
            where=self._where,
            found=f"operator {operator.named.label}" if operator.name else "an operator without a name",
            hint="keep the number of partitions that it has",
        )

    def _by_grouping(self, operator: str) -> int:
        """The families of transformWithState: their keys are, or hold, what the query groups by."""
        form = self._state.key_form
        if form.kind is KeyKind.ROW:
            return len(self._fields)
        if form.kind in (KeyKind.PREFIX, KeyKind.RANGE):
            self._part = form.kind
            ranged = form.kind is KeyKind.RANGE
            left = [field for at, field in enumerate(self._fields) if (at in form.first) is not ranged]
            self._fields = self._unwrapped(left)
            is_index = use_of(operator, self._state.name.label) is FamilyUse.EXPIRY_INDEX
            if is_index and _names(self._fields) == _COMPOSITE:
                # An index of what expires holds the key of a map's entry, with what is grouped by in it.
                self._fields = self._unwrapped(self._fields)
            return len(self._fields)
        raise self._unknown(f"by {form.kind.value}")

    def _unwrapped(self, fields: _Fields) -> _Fields:
        """The fields of the first of these, which is a struct: its hash is theirs, one after the other."""
        inner = fields[0]["type"]
        if not isinstance(inner, dict) or inner.get("type") != "struct":
            raise self._unknown(f"of {', '.join(_names(fields))}")
        self._inside += 1
        found: _Fields = inner["fields"]
        return found

    def _unknown(self, keys: str) -> Unsupported:
        return Unsupported(
            "which partition these keys belong to is not known here",
            where=self._where,
            found=f"{self._state.name.label}, with keys {keys}",
            hint="keep the number of partitions, or let Spark move them with `holdfast rescale`",
        )

    def _row_of_part(self, key: bytes) -> bytes:
        """The part of a key that has what is grouped by, and in that the struct of it."""
        size = int.from_bytes(key[:4], "little")
        row = key[5 : 4 + size] if self._part is KeyKind.PREFIX else key[5 + size :]
        for _ in range(self._inside):
            # Behind eight bytes for nulls, since no such struct has more than two fields: size and place.
            start = int.from_bytes(row[12:16], "little")
            row = row[start : start + int.from_bytes(row[8:12], "little")]
        return row


def _names(fields: _Fields) -> tuple[str, ...]:
    return tuple(str(field["name"]) for field in fields)
