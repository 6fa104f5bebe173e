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
    """A row: an immutable tuple with named fields.

    A field named like a method of tuples, such as `count`, hides the method.

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
    """Make the class of rows with these fields; called with a tuple of values, it makes a row."""
    # The getters of a namedtuple are written in C and read any tuple, whatever the field's name.
    donor = namedtuple("donor", [f"f{at}" for at in range(len(names))])  # type: ignore[misc]
    fields: dict[str, Any] = {
        name: vars(donor)[f"f{at}"] for at, name in enumerate(names) if not name.startswith("__")
    }
    places = {name: at for at, name in enumerate(names)}
    return type("Record", (Event,), {**fields, "__slots__": (), "_fields": names, "_places": places})


def _record(names: tuple[str, ...], values: tuple[Any, ...]) -> Event:
    return record_class(names)(values)


class Timer(NamedTuple):
    """A timer that has fired or is set.

    Attributes:
        name: The user's name of it, "" where none was given.
        at: When it is due, in UTC.
        at_ms: The same in epoch milliseconds.
        clock: "event" or "processing".

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
    """The `ctx` of a handler: the current key, the times of the batch, and the timers of the key.

    One object serves all keys of a task, so it is valid only until the handler returns.

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
        """The key, a row of its columns: `ctx.key.customer`."""

    @property
    @abstractmethod
    def broadcast(self) -> Mapping[Any, Any]:
        """The rows of the broadcast stream by key, the same for all events of the batch."""

    @property
    @abstractmethod
    def now(self) -> dt.datetime:
        """The batch's processing time, in UTC."""

    @property
    @abstractmethod
    def watermark(self) -> dt.datetime | None:
        """The batch's watermark in UTC, or None without one."""

    @abstractmethod
    def timer(self, at: Any, name: str = "", clock: Clock | None = None) -> None:
        """Set a timer of the key; one of the same name and clock is moved.

        Args:
            at: The time: a datetime (in UTC if it has no zone) or epoch milliseconds. A time in the past
                fires in this batch, after the key's events.
            name: The name of the timer, unique per key and clock.
            clock: "event" fires when the watermark reaches the time, "processing" with the first batch
                at or after it. By default "event" if the stream has a watermark.

        Raises:
            Invalid: The processor has no `on_timer`, there is no current key, or an argument is wrong.
        """

    @abstractmethod
    def cancel_timer(self, name: str = "", clock: Clock | None = None) -> None:
        """Cancel a timer of the key, if it exists."""

    @abstractmethod
    def timers(self) -> tuple[Timer, ...]:
        """Return the key's timers, in the order in which they are due."""
