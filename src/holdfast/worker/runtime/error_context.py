"""Errors that say which key, event and line of a processor they are about."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import holdfast.errors as kinds_of_error
from holdfast.errors import HoldfastError, Invalid
from holdfast.worker.runtime.event_rows import EventRecord

_PACKAGE = __name__.partition(".")[0]
_LONGEST = 200


class Stopped(Exception):
    """A function of the user's raised; `__cause__` is what it raised.

    Attributes:
        function: The function that was called.
        event: Which of the stream's events in hand it was called with, where it was one.
        stream: The name of the stream that the event came in.
    """

    def __init__(
        self, function: Callable[..., Any], event: int | None = None, stream: str | None = None
    ) -> None:
        super().__init__(function, event, stream)
        self.function = function
        self.event = event
        self.stream = stream


@dataclass(frozen=True, slots=True)
class Place:
    """What an error is about, as far as it is known."""

    operator: str
    key: EventRecord | None = None
    stream: str | None = None
    batch_id: int | None = None
    state: str | None = None
    line: str | None = None

    def __str__(self) -> str:
        key = None if self.key is None else key_text(self.key)
        names = {"state": self.state, "key": key, "stream": self.stream, "batch": self.batch_id}
        known = {"operator": self.operator, **names, "at": self.line}
        return ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)


def key_text(key: EventRecord) -> str:
    """Write a key as `customer=7, shop='east'`."""
    return shortened(", ".join(f"{name}={value!r}" for name, value in zip(key._fields, key, strict=True)))


def failure(
    processor: str,
    function: Callable[..., Any],
    error: BaseException,
    place: Place,
    *,
    hint: str | None = None,
) -> kinds_of_error.Failed:
    """Make the error that ends a batch because a function of the user's raised."""
    return kinds_of_error.Failed(
        f"{processor}.{_name(function)} failed: {summary(error)}", where=str(place), hint=hint
    )


def misfit(fact: str, why: Invalid, place: Place) -> kinds_of_error.Failed:
    """Make the error that ends a batch because a value that was written does not fit its type."""
    column = f", {why.where}" if why.where else ""
    return kinds_of_error.Failed(f"{fact}: {why.fact}", **(why.facts() | {"where": f"{place}{column}"}))


def summary(error: BaseException) -> str:
    """Give an error's class and message in one line."""
    text = error.fact if isinstance(error, HoldfastError) else str(error)
    line = " ".join(text.split())
    return shortened(f"{type(error).__name__}: {line}" if line else type(error).__name__)


def line_of(error: BaseException, function: Callable[..., Any]) -> str | None:
    """Give the file and line in the user's code at which an error arose.

    It is the innermost frame in the file of the function that was called, so that an error inside of a
    library is shown where the library was called; failing that, the innermost frame that is not ours.
    """
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    home = getattr(code, "co_filename", None)
    in_home = other = None
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name == home:
            in_home = f"{name}:{trace.tb_lineno}"
        elif trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] != _PACKAGE:
            other = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return in_home or other


def shortened(text: str) -> str:
    """Give a text that fits a line of a log."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
