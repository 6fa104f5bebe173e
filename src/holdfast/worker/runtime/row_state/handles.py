"""What a reducing or aggregating state is in a handler, as in `state.spend.add(3.5)`.

A handle is of one key and good for one pass. It changes nothing outside of itself; the cells behind it
collect what it holds when the pass ends. Each state has a subclass of its own, made once, that knows the
state's function, type and TTL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.errors import Invalid
from holdfast.worker.runtime.ttl import Rule

if TYPE_CHECKING:
    from holdfast.worker.declarations.state_descriptors import Aggregate


class Reducing:
    """Merges values into one by the state's function; `state.spend.add(3.5)`."""

    __slots__ = ("value",)
    function: Callable[[Any, Any], Any]
    freeze: Callable[[Any], Any] | None = None
    name = ""
    value: Any

    def add(self, value: Any) -> None:
        """Merge a value in; the first one is kept as it is."""
        if value is None:
            raise _no_none(self.name)
        before = self.value
        if before is not None:
            value = self.function(before, value)
            if value is None:
                raise gave_nothing(self.name)
        self.value = value if self.freeze is None else self.freeze(value)

    def merge(self, other: Reducing) -> None:
        """Add what another one holds, as in `state.spend.merge(part.spend)`; nothing where that is empty."""
        if other.value is not None:
            self.add(other.value)

    def get(self) -> Any:
        """Give the merged value, or None where nothing was added."""
        return self.value

    def clear(self) -> None:
        """Forget what was added."""
        self.value = None


class TimedReducing(Reducing):
    """The same with a TTL: adding restarts from scratch what has expired."""

    __slots__ = ("stamp",)
    rule: Rule
    stamp: int | None

    def add(self, value: Any) -> None:
        """Merge a value in and stamp the result."""
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
        """Give the merged value, or None where nothing was added or it has expired."""
        return read_stamped(self)


class Aggregating:
    """Takes values into an accumulator; `get` gives the aggregate's result."""

    __slots__ = ("value",)
    aggregate: Aggregate
    thaw: Callable[[Any], Any] | None = None
    name = ""
    value: Any

    def add(self, value: Any) -> None:
        """Take a value in."""
        self.value = self._taken_in(self.value, value)

    def merge(self, other: Aggregating) -> None:
        """Bring in another accumulator, as in `state.average.merge(part.average)`.

        Raises:
            Invalid: The aggregate has no `merge(self, one, other)`.
        """
        if other.value is not None:
            self.value = other.value if self.value is None else self._merged(self.value, other.value)

    def get(self) -> Any:
        """Give the result, or None where nothing was added."""
        accumulator = self.value
        return None if accumulator is None else self.aggregate.result(accumulator)

    def clear(self) -> None:
        """Forget what was added."""
        self.value = None

    def _merged(self, one: Any, other: Any) -> Any:
        merge = getattr(self.aggregate, "merge", None)
        if merge is None:
            raise Invalid(
                f"accumulators of state {self.name} cannot be merged",
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


class TimedAggregating(Aggregating):
    """The same with a TTL: adding starts a new accumulator where the old one has expired."""

    __slots__ = ("stamp",)
    rule: Rule
    stamp: int | None

    def add(self, value: Any) -> None:
        """Take a value in and stamp the accumulator."""
        before, stamp, rule = self.value, self.stamp, self.rule
        if before is None or stamp is None or stamp <= rule.cutoff:
            before = stamp = None
        self.value = self._taken_in(before, value)
        self.stamp = rule.stamp(stamp)

    def merge(self, other: Aggregating) -> None:
        """Bring in another accumulator, and stamp the result."""
        if other.value is None:
            return
        before, stamp, rule = self.value, self.stamp, self.rule
        if before is None or stamp is None or stamp <= rule.cutoff:
            before = stamp = None
        self.value = other.value if before is None else self._merged(before, other.value)
        self.stamp = rule.stamp(stamp)

    def get(self) -> Any:
        """Give the result, or None where nothing was added or it has expired."""
        accumulator = read_stamped(self)
        return None if accumulator is None else self.aggregate.result(accumulator)


def read_stamped(handle: TimedReducing | TimedAggregating) -> Any:
    """Read a stamped value: what has expired goes, what is alive is stamped if reading does that."""
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
    return TypeError(f"state.{name}.add(None): there is nothing to add; use state.{name}.clear() to clear it")


def gave_nothing(name: str) -> TypeError:
    """A state's function gave None where a merged value is expected."""
    return TypeError(f"the function of state {name} gave None in place of a merged value")
