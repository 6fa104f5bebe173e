"""The handles of list, map, reducing and aggregating states, as used by handlers.

A handle belongs to one key and one pass. It only collects changes, which its cells read at the end of the
pass. Each state has its own subclass with the state's function, type and TTL.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    ValuesView,
)
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from holdfast.errors import Invalid
from holdfast.worker.runtime.ttl import TtlRule, read_list

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from holdfast.worker.declarations.state_descriptors import Aggregate

    T = TypeVar("T", default=Any)
    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    T, K, V = TypeVar("T"), TypeVar("K"), TypeVar("V")


class StoredElements(NamedTuple):
    """The elements of one key as they were stored before the pass, in slot order."""

    slots: list[int]
    values: list[Any]
    keys: list[Any]
    stamps: list[int]


# Returns the stored elements of a key; the first call reads those of all touched keys.
Source = Callable[[int], StoredElements]


class ListState(Generic[T]):
    """A list of any length; `append` does not read the stored elements.

    All other methods read the key's whole list. With a TTL each element expires separately, but expired
    elements are removed only when a refreshing read rewrites the list or when all have expired. `fresh` and
    `fresh_stamps` contain the elements added in this pass and their timestamps.

    Example:
        class Orders(hf.Keyed):
            amounts = hf.list(float)

            def on_event(self, event, state, ctx):
                state.amounts.append(event.amount)
                yield {"customer": event.customer, "orders": len(state.amounts)}
    """

    __slots__ = ("_values", "dead", "fresh", "fresh_stamps", "position", "rewritten", "slots", "stamps")
    source: Source
    rule: TtlRule | None = None
    freeze: Callable[[Any], Any] | None = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, position: int) -> None:
        self.position = position
        self._values: list[Any] | None = None  # the stored elements, after the first read
        self.fresh: list[Any] = []
        self.fresh_stamps: list[int] = []
        self.slots: list[int] = []
        self.stamps: list[int] = []
        self.dead: list[int] = []
        self.rewritten = False

    def append(self, value: T) -> None:
        """Add an element at the end."""
        self.fresh.append(value if self.freeze is None else self.freeze(value))
        if self.rule is not None:
            self.fresh_stamps.append(self.rule.stamp(None))

    def extend(self, values: Iterable[T]) -> None:
        """Add several elements at the end."""
        for value in values:
            self.append(value)

    def set(self, values: Iterable[T]) -> None:
        """Replace all elements of the list."""
        new = list(values)
        self.clear()
        self.extend(new)

    def clear(self) -> None:
        """Remove all elements of the list."""
        self._stored()
        self.dead += self.slots
        self._values, self.slots, self.stamps = [], [], []
        self.fresh, self.fresh_stamps = [], []

    def __iter__(self) -> Iterator[T]:
        return iter(self._read())

    def __reversed__(self) -> Iterator[T]:
        return iter(self._read()[::-1])

    def __len__(self) -> int:
        return len(self._read())

    def __getitem__(self, index: Any) -> Any:
        return self._read()[index]

    def __contains__(self, value: Any) -> bool:
        return value in self._read()

    def __eq__(self, other: object) -> bool:
        return self._read() == list(other) if isinstance(other, (list, ListState)) else NotImplemented

    def __repr__(self) -> str:
        return repr(list(self._stored()) + self.fresh)

    def index(self, value: Any) -> int:
        """Return the index of the first element that equals a value; raise ValueError if there is none."""
        return self._read().index(value)

    @property
    def untouched(self) -> bool:
        """Return whether the list has no changes to write."""
        return not (self.fresh or self.dead or self.rewritten)

    def kept(self) -> list[Any]:
        """Return the stored elements that remain in the list; empty if they were not read."""
        return self._values or []

    @property
    def is_empty(self) -> bool:
        """Return whether the list is known to be empty, without reading it."""
        return self._values is not None and not self._values and not self.fresh

    def _stored(self) -> list[Any]:
        if self._values is None:
            stored = self.source(self.position)
            self._values, self.slots, self.stamps = stored.values, stored.slots, stored.stamps
        return self._values

    def _read(self) -> list[Any]:
        values = self._stored() + self.fresh
        return values if self.rule is None or not values else self._read_timed(self.rule, values)

    def _read_timed(self, rule: TtlRule, values: list[Any]) -> list[Any]:
        stamps = self.stamps + self.fresh_stamps
        reading = read_list(rule, stamps)
        old = len(self.slots)
        shown = values if len(reading.shown) == len(values) else [values[at] for at in reading.shown]
        for at in reading.restamped:
            stamps[at] = rule.stamp(stamps[at])
        self.rewritten |= bool(reading.restamped)
        gone = set(reading.removed)
        self.dead += [self.slots[at] for at in reading.removed if at < old]
        kept = [at for at in range(len(values)) if at not in gone]
        self._values = [values[at] for at in kept if at < old]
        self.slots = [self.slots[at] for at in kept if at < old]
        self.stamps = [stamps[at] for at in kept if at < old]
        self.fresh = [values[at] for at in kept if at >= old]
        self.fresh_stamps = [stamps[at] for at in kept if at >= old]
        return shown


class MapState(MutableMapping[K, V]):
    """A map of any size, used like a dict; the first use reads the key's entries.

    With a TTL each entry expires separately. `keys`, `in`, `len` and iteration include only entries that have
    not expired; with "return_if_not_cleaned_up", methods that read values may return an expired value until
    it is removed.

    Example:
        class Drinks(hf.Keyed):
            drinks = hf.map(str, int)

            def on_event(self, event, state, ctx):
                state.drinks[event.drink] = state.drinks.get(event.drink, 0) + 1
    """

    __slots__ = ("_now", "_slots", "_stamps", "dead", "position", "written")
    source: Source
    rule: TtlRule | None = None
    freeze: Callable[[Any], Any] | None = None
    read_key: Callable[[Any], Any] | None = None

    def __init__(self, position: int) -> None:
        self.position = position
        self._now: dict[Any, V] | None = None
        self._slots: dict[Any, int] = {}
        self._stamps: dict[Any, int] = {}
        self.dead: list[tuple[int, Any]] = []
        self.written: dict[Any, None] = {}

    def __getitem__(self, key: K) -> V:
        if self.read_key is not None:
            key = self.read_key(key)
        entries = self._now if self._now is not None else self._entries()
        if self.rule is None or key not in entries:
            return entries[key]
        return self._read(entries, key, self.rule)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, or the default if the key has no value."""
        if self.rule is not None or self.read_key is not None:
            try:
                return self[key]
            except KeyError:
                return default
        return (self._now if self._now is not None else self._entries()).get(key, default)

    def __setitem__(self, key: K, value: V) -> None:
        if key is None:
            raise TypeError("a map key cannot be None")
        if self.read_key is not None:
            key = self.read_key(key)
        entries = self._now if self._now is not None else self._entries()
        entries[key] = value if self.freeze is None else self.freeze(value)
        self.written[key] = None
        if self.rule is not None:
            self._stamps[key] = self.rule.stamp(self._stamps.get(key))

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key; if the key has none, set the default and return it as stored."""
        try:
            return self[key]
        except KeyError:
            self[key] = default
            return self._entries()[key if self.read_key is None else self.read_key(key)]

    def __delitem__(self, key: K) -> None:
        self.pop(key)

    def pop(self, key: Any, *default: Any) -> Any:
        """Remove an entry and return its value, or return the default if the key has no value."""
        if self.read_key is not None:
            key = self.read_key(key)
        entries = self._entries()
        if key in entries:
            value = entries[key]
            hidden = self.rule is not None and self._has_expired(key) and not self.rule.shows_expired
            self._remove(entries, key)
            if not hidden:
                return value
        if default:
            return default[0]
        raise KeyError(key)

    def popitem(self) -> tuple[K, V]:
        """Remove the oldest entry and return its key and value."""
        for key, value in self.items():
            self.pop(key, None)
            return key, value
        raise KeyError("the map is empty")

    def clear(self) -> None:
        """Remove all entries of the map."""
        entries = self._entries()
        for key in list(entries):
            self._remove(entries, key)

    def __contains__(self, key: object) -> bool:
        if self.read_key is not None:
            key = self.read_key(key)
        entries = self._entries()
        if self.rule is None or key not in entries:
            return key in entries
        if self.rule.shows_expired and self._has_expired(key):
            return False
        try:
            self._read(entries, key, self.rule)
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def keys(self) -> KeysView[K]:
        """Return the keys of entries that have not expired."""
        if self.rule is None:
            return self._entries().keys()
        return dict.fromkeys(key for key in list(self._entries()) if key in self).keys()

    def values(self) -> ValuesView[V]:
        """Return the values of the map."""
        return self._all().values()

    def items(self) -> ItemsView[K, V]:
        """Return the pairs of key and value."""
        return self._all().items()

    def __repr__(self) -> str:
        return repr(self._entries())

    @property
    def is_empty(self) -> bool:
        """Return whether the map is known to be empty, without reading it."""
        return self._now is not None and not self._now

    def writes(self) -> Iterator[tuple[Any, Any, int | None, int | None]]:
        """Yield key, value, slot and timestamp of each write, in order; the slot of a new entry is None."""
        entries = self._entries()
        for key in self.written:
            yield key, entries[key], self._slots.get(key), self._stamps.get(key)

    def _entries(self) -> dict[Any, V]:
        if self._now is None:
            stored = self.source(self.position)
            keys = stored.keys if self.read_key is None else [self.read_key(key) for key in stored.keys]
            self._now = dict(zip(keys, stored.values, strict=True))
            self._slots = dict(zip(keys, stored.slots, strict=True))
            if len(self._slots) < len(keys):  # several entries of one key, as written by former versions
                kept = set(self._slots.values())
                self.dead += [pair for pair in zip(stored.slots, keys, strict=True) if pair[0] not in kept]
            if self.rule is not None:
                self._stamps = dict(zip(keys, stored.stamps, strict=True))
        return self._now

    def _all(self) -> Mapping[Any, Any]:
        entries = self._entries()
        rule = self.rule
        if rule is None:
            return entries
        shown = {}
        for key, value in list(entries.items()):
            if not self._has_expired(key):
                shown[key] = self._read(entries, key, rule)
                continue
            self._remove(entries, key)
            if rule.shows_expired:
                shown[key] = value
        return shown

    def _read(self, entries: dict[Any, V], key: Any, rule: TtlRule) -> V:
        value = entries[key]
        if self._has_expired(key):
            self._remove(entries, key)
            if not rule.shows_expired:
                raise KeyError(key)
        elif rule.refreshes:
            self._stamps[key] = rule.stamp(self._stamps[key])
            self.written[key] = None
        return value

    def _has_expired(self, key: Any) -> bool:
        return self.rule is not None and self._stamps[key] <= self.rule.cutoff

    def _remove(self, entries: dict[Any, Any], key: Any) -> None:
        del entries[key]
        self._stamps.pop(key, None)
        self.written.pop(key, None)
        slot = self._slots.pop(key, None)
        if slot is not None:
            self.dead.append((slot, key))


class ReducingState(Generic[T]):
    """A single value per key, into which the state's function merges new values: `state.spend.add(3.5)`.

    Example:
        class Spend(hf.Keyed):
            spend = hf.reducing(float, hf.add)

            def on_event(self, event, state, ctx):
                state.spend.add(event.amount)
                yield {"customer": event.customer, "spend": state.spend.get()}
    """

    __slots__ = ("value",)
    function: Callable[[Any, Any], Any]
    freeze: Callable[[Any], Any] | None = None
    name = ""
    value: T | None

    def add(self, value: T) -> None:
        """Merge a value into the state; the first value is stored unchanged."""
        if value is None:
            raise _no_none(self.name)
        before = self.value
        if before is not None:
            value = self.function(before, value)
            if value is None:
                raise gave_nothing(self.name)
        self.value = value if self.freeze is None else self.freeze(value)

    def merge(self, other: ReducingState[T]) -> None:
        """Merge the value of another state, as in `state.spend.merge(part.spend)`; an empty one changes
        nothing.
        """
        if other.value is not None:
            self.add(other.value)

    def get(self) -> T | None:
        """Return the merged value, or None if nothing was added."""
        return self.value

    def clear(self) -> None:
        """Remove the value."""
        self.value = None


class TimedReducing(ReducingState):
    """A `ReducingState` with a TTL; adding to an expired value starts a new one."""

    __slots__ = ("stamp",)
    rule: TtlRule
    stamp: int | None

    def add(self, value: Any) -> None:
        """Merge a value into the state and set the timestamp."""
        if value is None:
            raise _no_none(self.name)
        before, stamp, rule = self.value, self.stamp, self.rule
        if before is None or stamp is None or stamp <= rule.cutoff:
            stamp = None
        else:
            value = self.function(before, value)
            if value is None:
                raise gave_nothing(self.name)
        self.value = value if self.freeze is None else self.freeze(value)
        self.stamp = rule.stamp(stamp) if rule.event else rule.clock.stamp

    def get(self) -> Any:
        """Return the merged value, or None if nothing was added or the value has expired."""
        return read_stamped(self)


class AggregatingState(Generic[T]):
    """An accumulator per key to which values are added; `get` returns the aggregate's result.

    Example:
        class Mean(hf.Aggregate):
            def create(self):
                return {"sum": 0.0, "count": 0}

            def add(self, accumulator, value):
                return {"sum": accumulator["sum"] + value, "count": accumulator["count"] + 1}

            def result(self, accumulator):
                return accumulator["sum"] / accumulator["count"]

        class Averages(hf.Keyed):
            mean = hf.aggregating("struct<sum: double, count: long>", Mean())

            def on_event(self, event, state, ctx):
                state.mean.add(event.amount)
                yield {"customer": event.customer, "mean": state.mean.get()}
    """

    __slots__ = ("value",)
    aggregate: Aggregate
    thaw: Callable[[Any], Any] | None = None
    name = ""
    value: Any

    def add(self, value: Any) -> None:
        """Add a value to the accumulator."""
        self.value = self._taken_in(self.value, value)

    def merge(self, other: AggregatingState) -> None:
        """Merge another accumulator, as in `state.average.merge(part.average)`.

        Raises:
            Invalid: The aggregate does not define `merge(self, one, other)`.
        """
        if other.value is not None:
            self.value = other.value if self.value is None else self._merged(self.value, other.value)

    def get(self) -> Any:
        """Return the aggregate's result, or None if nothing was added."""
        accumulator = self.value
        return None if accumulator is None else self.aggregate.result(accumulator)

    def clear(self) -> None:
        """Remove the accumulator."""
        self.value = None

    def _merged(self, one: Any, other: Any) -> Any:
        merge = getattr(self.aggregate, "merge", None)
        if merge is None:
            raise Invalid(
                f"accumulators of state {self.name} cannot be merged, because the aggregate has no merge",
                code="HF-E2489",
                where=type(self.aggregate).__name__,
                hint="define merge(self, one, other) on the aggregate",
            )
        merged = merge(one, other)
        if merged is None:
            raise gave_nothing(self.name)
        return merged if self.thaw is None else self.thaw(merged)

    def _taken_in(self, accumulator: Any, value: Any) -> Any:
        thaw = self.thaw
        if accumulator is None:
            accumulator = self.aggregate.create()
            if thaw is not None:
                accumulator = thaw(accumulator)
        accumulator = self.aggregate.add(accumulator, value)
        if accumulator is None:
            raise gave_nothing(self.name)
        return accumulator if thaw is None else thaw(accumulator)


class TimedAggregating(AggregatingState):
    """An `AggregatingState` with a TTL; adding to an expired accumulator starts a new one."""

    __slots__ = ("stamp",)
    rule: TtlRule
    stamp: int | None

    def add(self, value: Any) -> None:
        """Add a value to the accumulator and set the timestamp."""
        before, stamp, rule = self.value, self.stamp, self.rule
        if before is None or stamp is None or stamp <= rule.cutoff:
            before = stamp = None
        self.value = self._taken_in(before, value)
        self.stamp = rule.stamp(stamp)

    def merge(self, other: AggregatingState) -> None:
        """Merge another accumulator and set the timestamp."""
        if other.value is None:
            return
        before, stamp, rule = self.value, self.stamp, self.rule
        if before is None or stamp is None or stamp <= rule.cutoff:
            before = stamp = None
        self.value = other.value if before is None else self._merged(before, other.value)
        self.stamp = rule.stamp(stamp)

    def get(self) -> Any:
        """Return the aggregate's result, or None if nothing was added or the accumulator has expired."""
        accumulator = read_stamped(self)
        return None if accumulator is None else self.aggregate.result(accumulator)


def read_stamped(handle: TimedReducing | TimedAggregating) -> Any:
    """Return the value of a handle with a TTL, or None if it is unset.

    An expired value is removed. If the TTL is extended by reads, the timestamp of a valid value is set.
    """
    value, stamp, rule = handle.value, handle.stamp, handle.rule
    if value is None or stamp is None:
        return None
    if stamp <= rule.cutoff:
        handle.value = handle.stamp = None
        return value if rule.shows_expired else None
    if rule.refreshes:
        handle.stamp = rule.stamp(stamp)
    return value


def _no_none(name: str) -> TypeError:
    return TypeError(f"None cannot be added to state.{name}; use state.{name}.clear() to clear it")


def gave_nothing(name: str) -> TypeError:
    """Return the error for a state's function that returned None instead of a merged value."""
    return TypeError(f"the function of state {name} returned None instead of a merged value")
