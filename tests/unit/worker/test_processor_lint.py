from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import Invalid
from holdfast.worker.declarations.processor import Keyed, KeyedTable, definition_of, stream_names
from holdfast.worker.declarations.state_descriptors import State, StateKind


def on_event(self: Any, event: Any, state: Any, ctx: Any) -> None: ...


def processor(base: type = Keyed, **attributes: Any) -> Any:
    return type("P", (base,), attributes)()


def refusal(given: object, streams: tuple[str, ...] = ("events",)) -> Invalid:
    with pytest.raises(Invalid) as caught:
        definition_of(given, streams)
    return caught.value


class Regulars(Keyed):
    visits = State(StateKind.VALUE, pa.int64(), default=0)
    seen = State(StateKind.LIST, pa.string())

    def __init__(self, limit: int = 3) -> None:
        self.limit = limit

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        yield (event.customer,)

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> None: ...


class Totals(KeyedTable):
    total = State(StateKind.REDUCING, pa.int64(), function=max)
    combined = "customer string, total long"

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:
        return events

    def combine(self, events: pa.Table) -> pa.Table:
        return events


def test_a_definition_says_what_a_class_is() -> None:
    found = definition_of(Regulars(), ["events"])
    assert (found.name, found.kind, found.streams, found.handlers) == (
        "Regulars", "event", ("events",), ("on_event",),
    )  # fmt: skip
    assert [state.name for state in found.states] == ["visits", "seen"]
    assert (found.has_timers, found.combines) == (True, False)
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_table_is_one_too() -> None:
    found = definition_of(Totals(), ["events"])
    assert (found.kind, found.handlers, found.has_timers, found.combines) == (
        "table",
        ("on_batch",),
        False,
        True,
    )
    assert not definition_of(processor(KeyedTable, on_batch=lambda _s, _e, _t: None), ["a"]).combines


def test_all_events_of_a_key_go_to_on_key() -> None:
    found = definition_of(processor(on_key=lambda _s, _k, _e, _t, _c: None), ["events"])
    assert (found.kind, found.handlers) == ("key", ("on_key",))


def test_connected_streams_have_a_handler_each() -> None:
    given = processor(on_visits=on_event, on_orders=on_event)
    found = definition_of(given, ["orders", "visits"])
    assert (found.kind, found.handlers) == ("event", ("on_orders", "on_visits"))
    assert stream_names(given) == ("visits", "orders")
    assert stream_names(Regulars()) == ()


@pytest.mark.parametrize(
    ("attributes", "streams", "fact"),
    [
        ({}, ("a",), "no handler for events"),
        ({"on_b": on_event}, ("a",), "no handler for events"),
        ({"on_event": on_event, "on_key": lambda _s, _k, _e, _t, _c: None}, ("a",), "cannot be combined"),
        ({"on_event": on_event, "on_visits": on_event}, ("a",), "no stream is connected"),
        ({"on_event": on_event, "on_a": on_event, "on_b": on_event}, ("a", "b"), "a handler each"),
        ({"on_a": on_event}, ("a", "b"), "do not match"),
        ({"on_a": on_event, "on_b": on_event, "on_c": on_event}, ("a", "b"), "do not match"),
        ({"on_a": on_event, "on_timer": on_event}, ("a", "timer"), "name of a connected stream is reserved"),
        ({"on_a": on_event}, ("a", "b-c"), "part of a method name"),
        ({"on_a": on_event}, ("a", "a"), "the same name"),
        ({"on_event": on_event}, (), "has no stream"),
        ({"on_event": lambda _s, _e: None}, ("a",), "the wrong arguments"),
        ({"on_event": lambda _s, _e, _t, _c, _x: None}, ("a",), "the wrong arguments"),
        ({"on_event": on_event, "on_timer": lambda _s, _t: None}, ("a",), "the wrong arguments"),
        ({"on_event": on_event, "on_start": lambda _s: None}, ("a",), "the wrong arguments"),
        ({"on_event": on_event, "on_batch": lambda _s, _e, _t: None}, ("a",), "never called"),
        ({"on_event": on_event, "combine": lambda _s, _e: None}, ("a",), "never called"),
        (
            {"on_event": on_event, "visits": State(StateKind.VALUE, pa.int64(), default="x")},
            ("a",),
            "declared type",
        ),
        ({"on_event": on_event, "clear": State(StateKind.VALUE, pa.int64())}, ("a",), "is reserved"),
        ({"on_event": on_event, "on_start": State(StateKind.VALUE, pa.int64())}, ("a",), "is reserved"),
    ],
)
def test_a_class_that_could_only_fail_later_is_refused(
    attributes: dict[str, Any], streams: tuple[str, ...], fact: str
) -> None:
    assert fact in refusal(processor(**attributes), streams).fact


@pytest.mark.parametrize(
    ("attributes", "streams", "fact"),
    [
        ({"on_event": on_event}, ("a",), "never called"),
        ({"on_batch": lambda _s, _e: None}, ("a",), "the wrong arguments"),
        ({"on_batch": lambda _s, _e, _t: None, "combine": lambda _s: None}, ("a",), "the wrong arguments"),
        ({"on_batch": lambda _s, _e, _t: None, "combined": "a int"}, ("a",), "combine is not defined"),
        ({"on_a": on_event, "on_b": on_event, "combine": lambda _s, _e: None}, ("a", "b"), "a handler each"),
    ],
)
def test_a_table_that_could_only_fail_later_is_refused(
    attributes: dict[str, Any], streams: tuple[str, ...], fact: str
) -> None:
    assert fact in refusal(processor(KeyedTable, **attributes), streams).fact


def test_a_missing_and_a_superfluous_handler_are_named() -> None:
    error = refusal(processor(on_a=on_event, on_x=on_event), ("a", "b"))
    assert (error.found, error.expected) == ("on_a, on_x", "on_a, on_b")
    assert error.hint == "add on_b and connect a stream for on_x, or rename it"


def test_wrong_arguments_are_shown_beside_the_right_ones() -> None:
    def short(self: Any, event: Any) -> None: ...

    error = refusal(processor(on_event=short))
    assert (error.where, error.found, error.expected) == (
        "P.on_event", "on_event(self, event)", "on_event(self, event, state, ctx)",
    )  # fmt: skip


def test_coroutines_and_generators_in_the_wrong_place_are_refused() -> None:
    async def later(self: Any, event: Any, state: Any, ctx: Any) -> None: ...

    def many(self: Any, ctx: Any) -> Iterator[int]:
        yield 1

    def tables(self: Any, events: Any, state: Any) -> Iterator[int]:
        yield 1

    assert "async" in refusal(processor(on_event=later)).fact
    error = refusal(processor(on_event=on_event, on_start=many))
    assert error.fact == "on_start cannot be a generator"
    assert error.hint == "remove yield: a generator would never run here"
    assert "generator" in refusal(processor(KeyedTable, on_batch=tables)).fact


def test_only_an_instance_of_a_processor_is_one() -> None:
    error = refusal(Regulars)
    assert (error.fact, error.hint) == ("the processor is a class, not an instance", "write Regulars()")
    for other in (on_event, 5, None, type("Both", (Keyed, KeyedTable), {})()):
        assert "not a valid processor" in refusal(other).fact


def test_a_state_on_the_instance_is_refused() -> None:
    given = Regulars()
    given.limit = State(StateKind.VALUE, pa.int64())  # type: ignore[assignment]
    error = refusal(given)
    assert "on the instance" in error.fact
    assert error.where == "Regulars.limit"


def test_an_attribute_that_cannot_be_pickled_is_named() -> None:
    given = Regulars()
    given.lock = threading.Lock()  # type: ignore[attr-defined]
    error = refusal(given)
    assert error.where == "Regulars.lock"
    assert error.hint == "create this attribute in on_start, which runs in the worker"


def test_what_a_method_uses_around_the_class_must_be_picklable_too() -> None:
    lock = threading.Lock()

    class Locked(Keyed):
        def on_event(self, event: Any, state: Any, ctx: Any) -> None:
            with lock:
                pass

    error = refusal(Locked())
    assert "the processor cannot be pickled" in error.fact
    assert "lock" in str(error.found)


def pickling_by_module(self: Any, event: Any, state: Any, ctx: Any) -> None:
    state.blob = pickle.dumps(event)


def pickling_by_import(self: Any, event: Any, state: Any, ctx: Any) -> None:
    from pickle import dumps

    state.blob = dumps(event)


@pytest.mark.parametrize("handler", [pickling_by_module, pickling_by_import])
def test_pickled_blobs_are_refused(handler: Callable[..., None]) -> None:
    blob = State(StateKind.VALUE, pa.struct([("data", pa.binary())]))
    error = refusal(processor(on_event=handler, blob=blob))
    assert "cannot use pickle" in error.fact
    assert error.where == "P.on_event"
    definition_of(processor(on_event=handler, text=State(StateKind.VALUE, pa.string())), ["a"])
    definition_of(processor(on_event=on_event, blob=blob), ["a"])
