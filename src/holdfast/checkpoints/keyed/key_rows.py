"""The keys of Holdfast's keyed state with their values, out of the tables of a key group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.checkpoints.keyed.key_groups import KeyGroup, Part, parts_of
from holdfast.checkpoints.problems import SEE_DAMAGE
from holdfast.errors import Corrupt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdfast.worker.state.tables.runs import Run

# Rows of a broadcast stream have this ordinal in place of a key's.
SHARED: Final = -1

_Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class KeyTimer:
    """A timer of a key.

    Attributes:
        name: The user's name of it, "" where it has none.
        clock: "event" or "processing".
        at_ms: When it is due.
    """

    name: str
    clock: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class KeyRow:
    """All state of one key.

    Attributes:
        key: Its values, in the order of the key columns.
        values: What each state holds that holds anything: a value, a list, or a dictionary. A map whose keys
            cannot be those of a dictionary is a list of pairs.
        stamps: When what has a time to live was last stamped, in the shape of the value, in milliseconds.
        timers: Its timers, by time.
        group: The key group.
        h: The hash that it is found by.
        ordinal: What tells it from another key with that hash.
    """

    key: tuple[Any, ...]
    values: Mapping[str, Any]
    stamps: Mapping[str, Any]
    timers: tuple[KeyTimer, ...]
    group: int
    h: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class SharedRow:
    """One row of a broadcast stream, of which each key group has a copy.

    Attributes:
        state: The stream's name.
        key: The columns that tell its rows apart.
        value: The row, and whether it was taken back.
        group: The key group.
    """

    state: str
    key: Any
    value: Any
    group: int


@dataclass(slots=True)
class _Elements:
    """The elements of one state, by key: slots, keys of maps, values, stamps."""

    is_map: bool
    stamped: bool
    by_key: dict[_Identity, list[tuple[int, Any, Any, Any]]] = field(default_factory=dict)

    def take(self, run: Run) -> None:
        names = run.batch.schema.names
        slots = [] if run.slot is None else run.slot.tolist()
        empty = [None] * len(run)
        keys = run.column("k").to_pylist() if "k" in names else empty
        stamps = run.column("t").to_pylist() if "t" in names else empty
        self.stamped = self.stamped or "t" in names
        values = run.column("v").to_pylist()
        for h, ordinal, *element in zip(
            run.h.tolist(), run.ord.tolist(), slots, keys, values, stamps, strict=True
        ):
            self.by_key.setdefault((h, ordinal), []).append(tuple(element))

    def of(self, identity: _Identity) -> list[tuple[int, Any, Any, Any]]:
        return sorted(self.by_key.get(identity, ()), key=lambda element: element[0])

    def shaped(self, found: Sequence[tuple[int, Any, Any, Any]], at: int) -> Any:
        """One column of a key's elements: a list, or a dictionary by the keys of a map."""
        if not self.is_map:
            return [element[at] for element in found]
        try:
            return {element[1]: element[at] for element in found}
        except TypeError:  # a key that has no hash, such as a struct
            return sorted(((element[1], element[at]) for element in found), key=lambda pair: repr(pair[0]))


def key_rows(group: KeyGroup, where: str, h: NDArray[np.uint64] | None = None) -> Iterator[KeyRow]:
    """Every key of a group with its state, in the order of hashes.

    A state that was renamed is found under the name that each row was written with. Cost: some 10
    microseconds a key.

    Args:
        group: The group.
        where: The operator, for messages.
        h: Only keys with these hashes, ascending.

    Raises:
        Corrupt: A blob cannot be read.
    """
    from holdfast.worker.state.blob_schema import ROWS

    parts = parts_of(group, where)
    if h is not None:
        parts = [
            Part(part.form, {name: run.take(run.of_hashes(h)) for name, run in part.tables.items()})
            for part in parts
        ]
    elements = _elements_of(parts)
    try:
        for part in parts:
            if ROWS in part.tables:
                yield from _keys(group.group, part, elements)
    except (ValueError, KeyError, TypeError) as error:
        raise group.unreadable(where, error) from error


def shared_rows(group: KeyGroup, where: str) -> Iterator[SharedRow]:
    """A group's copy of the rows of a broadcast stream, in the order of their first arrival.

    Raises:
        Corrupt: A blob cannot be read.
    """
    for name, found in _elements_of(parts_of(group, where)).items():
        for identity in found.by_key:
            if identity[1] == SHARED:
                for _, key, value, _ in found.of(identity):
                    yield SharedRow(name, key, value, group.group)


def _elements_of(parts: Sequence[Part]) -> dict[str, _Elements]:
    from holdfast.worker.state.blob_schema import ROWS

    found: dict[str, _Elements] = {}
    for part in parts:
        for name, run in part.tables.items():
            if name != ROWS:
                columns = part.form.tables[name].names
                found.setdefault(name, _Elements("k" in columns, "t" in columns)).take(run)
    return found


def _keys(group: int, part: Part, elements: Mapping[str, _Elements]) -> Iterator[KeyRow]:
    from holdfast.worker.interface import STAMP_PREFIX, TIMERS, VALUE_PREFIX
    from holdfast.worker.state.blob_schema import KEY_PREFIX, ROWS

    run = part.tables[ROWS]
    columns = {name: run.column(name).to_pylist() for name in part.form.tables[ROWS].names}
    keys = [name for name in columns if name.startswith(KEY_PREFIX)]
    states = [name.removeprefix(VALUE_PREFIX) for name in columns if name.startswith(VALUE_PREFIX)]
    lists = [name for name in elements if name in part.form.slots]
    for at, identity in enumerate(zip(run.h.tolist(), run.ord.tolist(), strict=True)):
        values: dict[str, Any] = {}
        stamps: dict[str, Any] = {}
        for name in states:
            value = columns[f"{VALUE_PREFIX}{name}"][at]
            if value is not None:
                values[name] = value
                stamp = columns.get(f"{STAMP_PREFIX}{name}")
                if stamp is not None and stamp[at] is not None:
                    stamps[name] = stamp[at]
        for name in lists:
            held = elements[name].of(identity)
            if held:
                values[name] = elements[name].shaped(held, 2)
                if elements[name].stamped:
                    stamps[name] = elements[name].shaped(held, 3)
        yield KeyRow(
            tuple(columns[name][at] for name in keys),
            values,
            stamps,
            timers_in(columns[TIMERS][at]) if TIMERS in columns else (),
            group,
            *identity,
        )


def timers_in(text: str | None) -> tuple[KeyTimer, ...]:
    """The timers in a stored text, by time.

    Raises:
        Corrupt: It is none.
    """
    from holdfast.worker.runtime.timers import decode, timer_of

    try:
        found = [timer_of(key, at) for key, at in decode(text).items()]
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        raise Corrupt("the timers of a key cannot be read", found=repr(text), hint=SEE_DAMAGE) from error
    timers = [KeyTimer(timer.name, timer.clock, timer.at_ms) for timer in found]
    return tuple(sorted(timers, key=lambda timer: (timer.at_ms, timer.clock, timer.name)))
