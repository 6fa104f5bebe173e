"""The conversion of values stored under an earlier declaration of a state.

Two types are compared once, which gives a `TypeChange`; the change is then applied to each array when it is
read, so stored values are rewritten only when they are used. Only lossless changes are allowed:

- a wider number: byte to short to int to long; byte and short to float; byte, short and int to double (a long
  has more digits than a double); float to double; an integer to a decimal that holds its digits; a decimal to
  one with at least as many digits on both sides of the point;
- a date to the timestamp of its midnight, in UTC;
- fields of a struct added, dropped, reordered or renamed, at any depth;
- a `NOT NULL` removed.

All other changes are rejected: a narrower number, an incompatible type, and any change of a map's key type,
which would merge or lose entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.declarations.state_descriptors import State
from holdfast.worker.declarations.types import (
    Former,
    check_paths,
    check_value,
    join_path,
    names_of,
    type_text,
)

# A function that converts an array into one of equal length and a different type, and keeps nulls.
Reshape = Callable[[Any], Any]


def cast(to: pa.DataType) -> Reshape:
    """Return a function that casts arrays to a type and raises an error if a value does not fit."""
    return lambda array: array.cast(to)


def fill(to: pa.DataType, value: pa.Scalar) -> Reshape:
    """Return a function that gives every row of a struct the same value, for a field that was not stored."""

    def filled(array: pa.Array) -> pa.Array:
        if not value.is_valid or not len(array):
            return pa.nulls(len(array), to)
        return pa.repeat(value, len(array))

    return filled


def in_struct(to: pa.DataType, sources: Sequence[int | None], parts: Sequence[Reshape | None]) -> Reshape:
    """Return a function that builds a struct from the fields of another; a null struct stays null.

    Args:
        to: The new struct type.
        sources: For each new field, the index of its source among the old fields, or None.
        parts: For each new field, the conversion of its source, or of the whole struct if it has no source;
            None copies the source.
    """

    def rebuilt(array: pa.StructArray) -> pa.StructArray:
        fields = [array if source is None else array.field(source) for source in sources]
        children = [field if part is None else part(field) for part, field in zip(parts, fields, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(to), mask=_mask(array))

    return rebuilt


def in_list(to: pa.DataType, inner: Reshape) -> Reshape:
    """Return a function that converts the elements of lists."""

    def changed(array: pa.ListArray) -> pa.ListArray:
        offsets, start, length = _offsets(array)
        values = inner(array.values.slice(start, length))
        return pa.ListArray.from_arrays(offsets, values, type=to, mask=_mask(array))

    return changed


def in_map(to: pa.DataType, inner: Reshape) -> Reshape:
    """Return a function that converts the values of maps and keeps their keys."""

    def changed(array: pa.MapArray) -> pa.MapArray:
        offsets, start, length = _offsets(array)
        keys = array.keys.slice(start, length)
        items = inner(array.items.slice(start, length))
        return pa.MapArray.from_arrays(offsets, keys, items, type=to, mask=_mask(array))

    return changed


def _offsets(array: Any) -> tuple[pa.Array, int, int]:
    """Return list offsets that begin at zero, as a mask requires, and the start and length of the elements in
    use.
    """
    if not len(array):
        return pa.array([0], pa.int32()), 0, 0
    raw = array.offsets.to_numpy()
    start = int(raw[0])
    return pa.array(raw - start, pa.int32()), start, int(raw[-1]) - start


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


_BESIDE = "declare a new state or field under a different name, and fill it from the old one"
_WHOLE_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_WHOLE = tuple(_WHOLE_DIGITS)
_WIDER = {(old, new) for at, old in enumerate(_WHOLE) for new in _WHOLE[at + 1 :]}
_WIDER |= {(old, pa.float32()) for old in (pa.int8(), pa.int16())}
_WIDER |= {(old, pa.float64()) for old in (pa.int8(), pa.int16(), pa.int32(), pa.float32())}


@dataclass(frozen=True, slots=True)
class TypeChange:
    """The conversion of stored values into the declared type.

    Attributes:
        steps: One phrase per change, for example "widen spend: float to double".
        lost: The paths of stored fields that are no longer declared.
        type: The declared type.
        reshape: The conversion of arrays, or None if nothing changes.
    """

    steps: tuple[str, ...]
    lost: tuple[str, ...]
    type: pa.DataType
    reshape: Reshape | None

    @property
    def is_same(self) -> bool:
        """Return whether the stored and declared types are equal, so that `apply` changes nothing."""
        return self.reshape is None

    def apply(self, array: Any) -> Any:
        """Convert an array or chunked array from the stored type to the declared type.

        Only the changed parts are copied.
        """
        if self.reshape is None:
            return array
        if isinstance(array, pa.ChunkedArray):
            return pa.chunked_array(map(self.reshape, array.chunks), type=self.type)
        return self.reshape(array)


def change_of(
    state: State, kind: str, stored: pa.DataType, key_type: pa.DataType | None = None
) -> TypeChange:
    """Compare a declared state with its stored kind, type and map key type, and return the conversion.

    Args:
        state: The declaration. A field that `field_defaults` does not name reads as null in values that were
            stored without it.
        kind: The stored kind, one of the values of `StateKind`.
        stored: The type of the stored values, elements or accumulators.
        key_type: The stored type of a map's keys, or None.

    Raises:
        Invalid: The change could lose or misread a value; the message has the path, the stored type and the
            declared type.
    """
    if kind != state.kind.value:
        raise Invalid(
            "stored values cannot be read as declared: the kind of state differs",
            code="HF-E2427",
            where=f"state {state.name}",
            found=f"{state.kind.value} in the declaration",
            expected=f"{kind}, as stored",
            hint=_BESIDE,
        )
    if key_type != state.key_type:
        raise Invalid(
            "stored values cannot be read as declared: the key type of a map cannot change",
            code="HF-E2428",
            where=f"state {state.name}, key",
            found=f"{state.key_type and type_text(state.key_type)} in the declaration",
            expected=f"{key_type and type_text(key_type)}, as stored",
            hint=_BESIDE,
        )
    name = f"state {state.name}"
    check_paths(name, state.type, state.fields_were, state.field_defaults)
    walk = _Walk(name, state.fields_were, state.field_defaults)
    reshape = walk.compare(stored, state.type, "")
    return TypeChange(tuple(walk.steps), tuple(walk.lost), state.type, reshape)


class _Walk:
    """A comparison of a stored and a declared type, from the outermost type inwards."""

    def __init__(self, name: str, were: Former, defaults: Mapping[str, Any]) -> None:
        self.steps: list[str] = []
        self.lost: list[str] = []
        self._name = name
        self._were = {path: names_of(former) for path, former in were.items()}
        self._defaults = defaults

    def compare(self, old: pa.DataType, new: pa.DataType, path: str) -> Reshape | None:
        if old == new:
            return None
        if kinds.is_struct(old) and kinds.is_struct(new):
            return self._struct(old, new, path)
        if kinds.is_list(old) and kinds.is_list(new):
            inner = self.compare(old.value_type, new.value_type, join_path(path, "element"))
            return None if inner is None else in_list(new, inner)
        if kinds.is_map(old) and kinds.is_map(new):
            if old.key_type != new.key_type:
                raise self._refused(
                    old.key_type,
                    new.key_type,
                    join_path(path, "key"),
                    "the key type of a map cannot change",
                )
            inner = self.compare(old.item_type, new.item_type, join_path(path, "value"))
            return None if inner is None else in_map(new, inner)
        if _widens(old, new):
            self.steps.append(f"widen {self._at(path)}: {type_text(old)} to {type_text(new)}")
            return cast(new)
        raise self._refused(old, new, path, _why(old, new))

    def _struct(self, old: pa.DataType, new: pa.DataType, path: str) -> Reshape | None:
        sources = [self._source(old, field, path) for field in new]
        parts: list[Reshape | None] = []
        for source, field in zip(sources, new, strict=True):
            here = join_path(path, field.name)
            if source is None:
                parts.append(self._added(field, here))
                continue
            stored = old.field(source)
            if stored.name != field.name:
                self.steps.append(f"rename {self._at(join_path(path, stored.name))} to {field.name}")
            if stored.nullable and not field.nullable:
                raise Invalid(
                    "a nullable field cannot become NOT NULL, because stored values may be null",
                    code="HF-E2429",
                    where=f"{self._name}, {here}",
                    found=f"{type_text(field.type)} NOT NULL in the declaration",
                    expected=f"{type_text(stored.type)} with nulls, as stored",
                    hint="remove NOT NULL, or add a new field with a default",
                )
            parts.append(self.compare(stored.type, field.type, here))
        for at, stored in enumerate(old):
            if at not in sources:
                self.lost.append(join_path(path, stored.name))
                self.steps.append(f"drop {self._at(join_path(path, stored.name))}")
        unmoved = sources == list(range(old.num_fields))
        alike = [(field.name, field.nullable) for field in old] == [
            (field.name, field.nullable) for field in new
        ]
        if unmoved and alike and not any(parts):
            return None
        return in_struct(new, sources, parts)

    def _source(self, old: pa.DataType, field: pa.Field, path: str) -> int | None:
        here = join_path(path, field.name)
        # A former name takes precedence: if it is still stored, a stored field with the new name is an older
        # field.
        names = [field.name for field in old]
        stored_name = next((name for name in (*self._were.get(here, ()), field.name) if name in names), None)
        return None if stored_name is None else names.index(stored_name)

    def _added(self, field: pa.Field, here: str) -> Reshape:
        value = self._defaults.get(here)
        if value is None and not field.nullable:
            raise Invalid(
                "a new NOT NULL field has no default for existing values",
                code="HF-E2430",
                where=f"{self._name}, {here}",
                hint=f'add field_defaults={{"{here}": …}}, or remove NOT NULL',
            )
        self.steps.append(f"add {self._at(here)}: {type_text(field.type)}, {value!r} for existing values")
        return fill(field.type, check_value(value, field.type, f"{self._name}, default of {here}"))

    def _at(self, path: str) -> str:
        return path or self._name

    def _refused(self, old: pa.DataType, new: pa.DataType, path: str, why: str) -> Invalid:
        return Invalid(
            f"stored values cannot be read as declared: {why}",
            code="HF-E2431",
            where=f"{self._name}, {path}" if path else self._name,
            found=f"{type_text(new)} in the declaration",
            expected=f"{type_text(old)}, as stored",
            hint=_BESIDE,
        )


def _widens(old: pa.DataType, new: pa.DataType) -> bool:
    if (old, new) in _WIDER:
        return True
    if kinds.is_decimal128(new):
        before = new.precision - new.scale
        if kinds.is_decimal128(old):
            return bool(new.scale >= old.scale and before >= old.precision - old.scale)
        return old in _WHOLE_DIGITS and bool(before >= _WHOLE_DIGITS[old])
    return bool(kinds.is_date32(old) and kinds.is_timestamp(new))


def _why(old: pa.DataType, new: pa.DataType) -> str:
    if _widens(new, old):
        return "the new type is narrower"
    numbers = [
        kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind) for kind in (old, new)
    ]
    return "the new type cannot hold every old number" if all(numbers) else "the types are incompatible"
