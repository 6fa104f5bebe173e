"""What is named in the code of handlers: by themselves, by what they call, and by what cannot be read."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import holdfast as hf
from holdfast.worker.declarations.processor import names_any

WORDS = frozenset({"now", "now_ms"})


# A module of another package.
helpers_of_others = ModuleType("helpers_of_others")
exec("def age(event, ctx): return ctx.now_ms - event.ms", vars(helpers_of_others))


def passing_on(ctx: Any) -> Any:
    return helper(ctx)


def helper(ctx: Any) -> Any:
    return ctx.now


def unnamed(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


class Silent(hf.Keyed):
    n = hf.value("long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        """Uses neither now nor now_ms."""
        state.n = time.time() + event.knows + len(str(ctx.key))
        return "it is now"

    def on_end(self, state: Any, ctx: Any) -> Any:
        yield ctx.now_ms


class Plain(Silent):
    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        state.n = ctx.now_ms


class ByText(Silent):
    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        state.n = getattr(ctx, "now_ms")  # noqa: B009 - what is looked for


class Within(Silent):
    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        state.n = sorted([event], key=lambda _: ctx.now)


class Helped(Silent):
    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        state.n = passing_on(ctx)


class Inherited(Plain):
    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        super().on_event(event, state, ctx)


class OwnMethod(Silent):
    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        self.set(state, ctx)

    @staticmethod
    def set(state: Any, ctx: Any) -> None:
        state.n = ctx.now_ms


class OwnProperty(Silent):
    ctx: Any = None

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        self.ctx = ctx
        state.n = self.found

    @property
    def found(self) -> Any:
        return self.ctx.now


class Elsewhere(Silent):
    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        state.n = helpers_of_others.age(event, ctx)


class Wrapped(Silent):
    on_event = unnamed(Plain.on_event)


class Cached(Silent):
    on_event = functools.lru_cache(Silent.on_event)


class Starts(Silent):
    def on_start(self, ctx: Any) -> None:
        self.began = ctx.now


@pytest.mark.parametrize(
    "processor",
    [
        Plain(),
        ByText(),
        Within(),
        Helped(),
        Inherited(),
        OwnMethod(),
        OwnProperty(),
        Wrapped(),
        Cached(),
        Starts(),
        Elsewhere(),
    ],
)
def test_the_word_is_found(processor: hf.Keyed) -> None:
    assert found(processor)


class Holding(Silent):
    """What it calls is known to the instance alone."""

    def __init__(self) -> None:
        self.rule = helper

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        state.n = self.rule(ctx)


@pytest.mark.parametrize("processor", [Silent(), Holding()])
def test_the_word_is_not_found(processor: hf.Keyed) -> None:
    assert not found(processor)


def found(processor: hf.Keyed) -> bool:
    handlers = [getattr(processor, name) for name in ("on_event", "on_start")]
    return names_any(handlers, type(processor), WORDS)
