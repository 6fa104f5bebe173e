"""What is stored for a key, as a read of each state would give it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from holdfast.worker.declarations.state_descriptors import Kind, State
from holdfast.worker.interface import STAMP_PREFIX, TIMERS, VALUE_PREFIX, Moment
from holdfast.worker.runtime.event_rows import values_of
from holdfast.worker.runtime.timers import Timer, decode, timer_of
from holdfast.worker.state.expiry import expired
from holdfast.worker.state.key_index import Keys


def read_state(states: Sequence[State], keys: Keys, at: int, moment: Moment) -> dict[str, Any]:
    """The value of each state of a key: a plain value, a list, or a dictionary."""
    return {state.name: _read(state, keys, at, moment) for state in states}


def read_timers(keys: Keys, at: int) -> tuple[Timer, ...]:
    """The timers of a key, in the order of their times."""
    stored = decode(keys.stored(TIMERS)[at].as_py())
    timers = [timer_of(name, at_ms) for name, at_ms in stored.items()]
    return tuple(sorted(timers, key=lambda timer: (timer.at_ms, timer.clock, timer.name)))


def _read(state: State, keys: Keys, at: int, moment: Moment) -> Any:
    if state.has_elements:
        return _elements(state, keys, at, moment)
    value = keys.stored(f"{VALUE_PREFIX}{state.name}").slice(at, 1)
    if state.ttl is not None and state.ttl.visibility == "never_return_expired":
        stamp = keys.stored(f"{STAMP_PREFIX}{state.name}").slice(at, 1)
        if expired(stamp, state.ttl, moment)[0]:
            value = value.slice(0, 0)
    (stored,) = values_of(value) or [None]
    if stored is None:
        return state.default
    if state.kind is Kind.AGGREGATING and state.aggregate is not None:
        return state.aggregate.result(stored)
    return stored


def _elements(state: State, keys: Keys, at: int, moment: Moment) -> Any:
    elements = keys.elements(state.name)
    rows = elements.rows.slice(int(elements.starts[at]), int(elements.starts[at + 1] - elements.starts[at]))
    rows = rows.combine_chunks()
    if state.ttl is not None and state.ttl.visibility == "never_return_expired" and rows.num_rows:
        stamps = rows.column("t").combine_chunks()
        rows = rows.filter(pa.array(~expired(stamps, state.ttl, moment)))
    values = values_of(rows.column("v").combine_chunks()) if rows.num_rows else []
    if state.kind is Kind.LIST:
        return values
    names = values_of(rows.column("k").combine_chunks()) if rows.num_rows else []
    return dict(zip(names, values, strict=True))
