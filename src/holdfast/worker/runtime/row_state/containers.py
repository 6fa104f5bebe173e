"""What a list or map state is in a handler: a list and a dict whose elements are stored one by one.

A handle is of one key and good for one pass, as those of `handles`. What it wrote and removed is collected
when the pass ends. Each state has a subclass of its own, made once, that knows its type and TTL.
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
from typing import Any, NamedTuple

from holdfast.worker.runtime.ttl import Rule, read_list


class Stored(NamedTuple):
    """The elements of one key as they were before the pass, in slot order."""

    slots: list[int]
    values: list[Any]
    keys: list[Any]
    stamps: list[int]


# Gives the stored elements of a key; the first call reads those of all touched keys.
Source = Callable[[int], Stored]


class ListHandle:
    """A list of any length; `append` does not read what is there.

    Everything else reads the key's whole list. With a TTL an element expires on its own, but what has
    expired leaves the list only when a refreshing read writes it anew or when nothing in it is alive.
    What was added in this pass, and its stamps, is in `fresh` and `fresh_stamps`.
    """

    __slots__ = ("_values", "dead", "fresh", "fresh_stamps", "position", "rewritten", "slots", "stamps")
    source: Source
    rule: Rule | None = None
    freeze: Callable[[Any], Any] | None = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, position: int) -> None:
        self.position = position
        self._values: list[Any] | None = None  # those that were stored, once they are read
        self.fresh: list[Any] = []
        self.fresh_stamps: list[int] = []
        self.slots: list[int] = []
        self.stamps: list[int] = []
        self.dead: list[int] = []
        self.rewritten = False

    def append(self, value: Any) -> None:
        """Add an element at the end."""
        self.fresh.append(value if self.freeze is None else self.freeze(value))
        if self.rule is not None:
            self.fresh_stamps.append(self.rule.stamp(None))

    def extend(self, values: Iterable[Any]) -> None:
        """Add elements at the end."""
        for value in values:
            self.append(value)

    def set(self, values: Iterable[Any]) -> None:
        """Replace the list."""
        new = list(values)
        self.clear()
        self.extend(new)

    def clear(self) -> None:
        """Empty the list."""
        self._stored()
        self.dead += self.slots
        self._values, self.slots, self.stamps = [], [], []
        self.fresh, self.fresh_stamps = [], []

    def __iter__(self) -> Iterator[Any]:
        return iter(self._read())

    def __reversed__(self) -> Iterator[Any]:
        return iter(self._read()[::-1])

    def __len__(self) -> int:
        return len(self._read())

    def __getitem__(self, index: Any) -> Any:
        return self._read()[index]

    def __contains__(self, value: Any) -> bool:
        return value in self._read()

    def __eq__(self, other: object) -> bool:
        return self._read() == list(other) if isinstance(other, (list, ListHandle)) else NotImplemented

    def __repr__(self) -> str:
        return repr(list(self._stored()) + self.fresh)

    def index(self, value: Any) -> int:
        """Give the place of the first element that equals a value."""
        return self._read().index(value)

    @property
    def untouched(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.fresh or self.dead or self.rewritten)

    def kept(self) -> list[Any]:
        """The stored elements that are still there; only where they were read."""
        return self._values or []

    @property
    def is_empty(self) -> bool:
        """Whether the list is known to be empty now."""
        return self._values is not None and not self._values and not self.fresh

    def _stored(self) -> list[Any]:
        if self._values is None:
            stored = self.source(self.position)
            self._values, self.slots, self.stamps = stored.values, stored.slots, stored.stamps
        return self._values

    def _read(self) -> list[Any]:
        values = self._stored() + self.fresh
        return values if self.rule is None or not values else self._read_timed(self.rule, values)

    def _read_timed(self, rule: Rule, values: list[Any]) -> list[Any]:
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


class MapHandle(MutableMapping[Any, Any]):
    """A map of any size, used like a dict; the first use reads the key's entries.

    With a TTL an entry expires on its own. `keys`, `in`, `len` and iteration know living entries only;
    with "return_if_not_cleaned_up" the others, which read values, give an expired one a last time.
    """

    __slots__ = ("_now", "_slots", "_stamps", "dead", "position", "written")
    source: Source
    rule: Rule | None = None
    freeze: Callable[[Any], Any] | None = None
    read_key: Callable[[Any], Any] | None = None

    def __init__(self, position: int) -> None:
        self.position = position
        self._now: dict[Any, Any] | None = None
        self._slots: dict[Any, int] = {}
        self._stamps: dict[Any, int] = {}
        self.dead: list[tuple[int, Any]] = []
        self.written: dict[Any, None] = {}

    def __getitem__(self, key: Any) -> Any:
        if self.read_key is not None:
            key = self.read_key(key)
        entries = self._now if self._now is not None else self._entries()
        if self.rule is None or key not in entries:
            return entries[key]
        return self._read(entries, key, self.rule)

    def get(self, key: Any, default: Any = None) -> Any:
        """Give the value of a key, or the default."""
        if self.rule is not None or self.read_key is not None:
            try:
                return self[key]
            except KeyError:
                return default
        return (self._now if self._now is not None else self._entries()).get(key, default)

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is None:
            raise TypeError("a map has no entry for None")
        if self.read_key is not None:
            key = self.read_key(key)
        entries = self._now if self._now is not None else self._entries()
        entries[key] = value if self.freeze is None else self.freeze(value)
        self.written[key] = None
        if self.rule is not None:
            self._stamps[key] = self.rule.stamp(self._stamps.get(key))

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Give the value of a key; where it has none, set the default and give it as it is kept."""
        try:
            return self[key]
        except KeyError:
            self[key] = default
            return self._entries()[key if self.read_key is None else self.read_key(key)]

    def __delitem__(self, key: Any) -> None:
        self.pop(key)

    def pop(self, key: Any, *default: Any) -> Any:
        """Take an entry out and give its value."""
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

    def popitem(self) -> tuple[Any, Any]:
        """Take the oldest entry out."""
        for key, value in self.items():
            self.pop(key, None)
            return key, value
        raise KeyError("the map is empty")

    def clear(self) -> None:
        """Empty the map."""
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

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def keys(self) -> KeysView[Any]:
        """Give the keys of living entries."""
        if self.rule is None:
            return self._entries().keys()
        return dict.fromkeys(key for key in list(self._entries()) if key in self).keys()

    def values(self) -> ValuesView[Any]:
        """Give the values."""
        return self._all().values()

    def items(self) -> ItemsView[Any, Any]:
        """Give keys with their values."""
        return self._all().items()

    def __repr__(self) -> str:
        return repr(self._entries())

    @property
    def is_empty(self) -> bool:
        """Whether the map is known to be empty now."""
        return self._now is not None and not self._now

    def writes(self) -> Iterator[tuple[Any, Any, int | None, int | None]]:
        """Give key, value, slot (None: it needs a new one) and stamp of what was written, in order."""
        entries = self._entries()
        for key in self.written:
            yield key, entries[key], self._slots.get(key), self._stamps.get(key)

    def _entries(self) -> dict[Any, Any]:
        if self._now is None:
            stored = self.source(self.position)
            keys = stored.keys if self.read_key is None else [self.read_key(key) for key in stored.keys]
            self._now = dict(zip(keys, stored.values, strict=True))
            self._slots = dict(zip(keys, stored.slots, strict=True))
            if len(self._slots) < len(keys):  # entries of one key, as former versions wrote them
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

    def _read(self, entries: dict[Any, Any], key: Any, rule: Rule) -> Any:
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
