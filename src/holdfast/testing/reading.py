"""What is stored for a key, as a read of each state would give it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from holdfast.worker.arrays import whole
from holdfast.worker.declarations.state_descriptors import Kind, State
from holdfast.worker.interface import STAMP_PREFIX, TIMERS, VALUE_PREFIX, Moment
from holdfast.worker.runtime.event_rows import values_of
from holdfast.worker.runtime.timers import Timer, decode, timer_of
from holdfast.worker.state.expiry import expired
from holdfast.worker.state.key_index import Keys


def read_state(states: Sequence[State], key: Keys, moment: Moment) -> dict[str, Any]:
    """The value of each state of the one key: a plain value, a list, or a dictionary."""
    return {state.name: _read(state, key, moment) for state in states}


def read_timers(key: Keys) -> tuple[Timer, ...]:
    """The timers of the one key, in the order of their times."""
    stored = decode(key.stored(TIMERS)[0].as_py())
    timers = [timer_of(name, at_ms) for name, at_ms in stored.items()]
    return tuple(sorted(timers, key=lambda timer: (timer.at_ms, timer.clock, timer.name)))


def _read(state: State, key: Keys, moment: Moment) -> Any:
    if state.has_elements:
        return _elements(state, key, moment)
    value = key.stored(f"{VALUE_PREFIX}{state.name}")
    if state.ttl is not None and state.ttl.visibility == "never_return_expired":
        stamp = key.stored(f"{STAMP_PREFIX}{state.name}")
        if expired(stamp, state.ttl, moment)[0]:
            value = value.slice(0, 0)
    (stored,) = values_of(value) or [None]
    if stored is None:
        return state.default
    if state.kind is Kind.AGGREGATING and state.aggregate is not None:
        return state.aggregate.result(stored)
    return stored


def _elements(state: State, key: Keys, moment: Moment) -> Any:
    rows = key.elements(state.name).rows
    if state.ttl is not None and state.ttl.visibility == "never_return_expired":
        rows = rows.filter(pa.array(~expired(whole(rows.column("t")), state.ttl, moment)))
    values = values_of(whole(rows.column("v")))
    if state.kind is Kind.LIST:
        return values
    return dict(zip(values_of(whole(rows.column("k"))), values, strict=True))
