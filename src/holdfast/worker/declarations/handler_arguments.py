"""The arguments of a processor's handlers: rows, timers and the context."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections import namedtuple
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

Clock: TypeAlias = Literal["processing", "event"]


class Event(tuple[Any, ...]):
    """A row of a stream: an immutable tuple with named fields.

    A field with the name of a tuple method, such as `count`, hides the method.

    Example:
        class Spend(hf.Keyed):
            def on_event(self, event: hf.Event, state, ctx):
                yield {"customer": event.customer, "amount": event["amount"]}
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    _places: ClassVar[dict[str, int]] = {}

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                key = self._places[key]
            except KeyError:
                raise KeyError(f"unknown field {key!r}; expected {', '.join(self._fields)}") from None
        return tuple.__getitem__(self, key)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"unknown field {name!r}; expected {', '.join(self._fields)}")

    def __repr__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True)).join(
            "()"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _record, (self._fields, tuple(self))


@lru_cache(maxsize=256)
def record_class(names: tuple[str, ...]) -> type[Event]:
    """Return a subclass of `Event` with these fields; calling it with a tuple of values makes a row."""
    # The getters of a namedtuple are written in C and work on any tuple, whatever the name of the field.
    donor = namedtuple("donor", [f"f{at}" for at in range(len(names))])  # type: ignore[misc]
    fields: dict[str, Any] = {
        name: vars(donor)[f"f{at}"] for at, name in enumerate(names) if not name.startswith("__")
    }
    places = {name: at for at, name in enumerate(names)}
    return type("Record", (Event,), {**fields, "__slots__": (), "_fields": names, "_places": places})


def _record(names: tuple[str, ...], values: tuple[Any, ...]) -> Event:
    return record_class(names)(values)


class Timer(NamedTuple):
    """A timer of a key, set or due.

    Attributes:
        name: The name that the handler gave the timer, or "" without a name.
        at: The due time, in UTC.
        at_ms: The due time in epoch milliseconds.
        clock: The clock of the due time: "event" or "processing".

    Example:
        class Reminders(hf.Keyed):
            def on_event(self, event, state, ctx):
                ctx.timer(event.ts + hf.minutes(30), name="quiet")

            def on_timer(self, timer: hf.Timer, state, ctx):
                yield {"customer": ctx.key.customer, "what": timer.name, "at": timer.at}
    """

    name: str
    at: dt.datetime
    at_ms: int
    clock: Clock


class Context(ABC):
    """The `ctx` argument of a handler: the current key, the times of the batch, and the timers of the key.

    One object serves all keys of a task; do not use it after the handler has returned.

    Attributes:
        now_ms: The batch's processing time in epoch milliseconds, constant within a batch.
        watermark_ms: The batch's watermark in epoch milliseconds, or None without one.
        batch_id: The id of the batch, or None if unknown.

    Example:
        class Reminders(hf.Keyed):
            def on_event(self, event, state, ctx: hf.Context):
                ctx.cancel_timer("quiet")
                ctx.timer(ctx.now + hf.minutes(30), name="quiet", clock="processing")

            def on_timer(self, timer, state, ctx: hf.Context):
                yield {"customer": ctx.key.customer}
    """

    __slots__ = ()
    now_ms: int
    watermark_ms: int | None
    batch_id: int | None

    @property
    @abstractmethod
    def key(self) -> Event:
        """Return the key as a row of the key columns: `ctx.key.customer`."""

    @property
    @abstractmethod
    def broadcast(self) -> Mapping[Any, Any]:
        """Return the rows of the broadcast stream by key, the same for all events of the batch."""

    @property
    @abstractmethod
    def now(self) -> dt.datetime:
        """Return the batch's processing time, in UTC."""

    @property
    @abstractmethod
    def watermark(self) -> dt.datetime | None:
        """Return the batch's watermark in UTC, or None without a watermark."""

    @abstractmethod
    def timer(self, at: Any, name: str = "", clock: Clock | None = None) -> None:
        """Set a timer of the key; an existing timer with the same name and clock is moved.

        Args:
            at: The due time: a datetime (in UTC if it has no time zone) or epoch milliseconds. A timer in the
                past fires in this batch, after the key's events.
            name: The name of the timer, unique per key and clock.
            clock: "event" fires when the watermark reaches the due time, "processing" in the first batch at
                or after it. The default is "event" if the stream has a watermark, otherwise "processing".

        Raises:
            Invalid: The processor has no `on_timer`, there is no current key, or an argument is invalid.
        """

    @abstractmethod
    def cancel_timer(self, name: str = "", clock: Clock | None = None) -> None:
        """Cancel a timer of the key by name and clock; do nothing if no such timer is set."""

    @abstractmethod
    def timers(self) -> tuple[Timer, ...]:
        """Return the key's timers, ordered by due time."""
