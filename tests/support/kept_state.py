"""The state of a harness as keyed state at rest, and back: the same key groups, without a checkpoint."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from keyed_programs import LAST_TTL, SEEN_TTL, SPAN_TTL, TOTAL_TTL, Model, _Key

from holdfast.at_rest.keyed_operators import KeyedOperator, kept_states
from holdfast.at_rest.keyed_reader import TIMER_SCHEMA, GroupsInMemory, KeyedStateReader
from holdfast.changes.keyed.store_rows import KeyChange
from holdfast.checkpoints.keyed import KeyGroup
from holdfast.formats.rows.xxhash64 import key_hashes
from holdfast.testing import Harness
from holdfast.worker.state.store import GroupBlobs, MemoryStore

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


class Shop(Harness):
    """A harness whose keys have the hashes that they have in Spark."""

    def _hash(self, key: tuple[Any, ...]) -> int:
        if self._options.instances is not None:
            return 0
        schema = self._lane.streams[0].schema
        columns = [
            pa.array([value], schema.field(name).type) for name, value in zip(self._by, key, strict=True)
        ]
        return int(key_hashes(pa.Table.from_arrays(columns, names=list(self._by)))[0])


def timers_of(state: KeyedStateReader) -> pa.Table:
    """All timers of an operator, in the columns that state is made of."""
    rows = [
        dict(zip(state.operator.keys.names, row.key, strict=True))
        | {"name": timer.name, "clock": timer.clock, "at_ms": timer.at_ms}
        for row in state.rows()
        for timer in row.timers
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema([*state.operator.keys, *TIMER_SCHEMA]))


def groups_of(store: MemoryStore) -> list[KeyGroup]:
    """The groups of a store in memory."""
    found = []
    for number in store.groups:
        stored = store.load(number)
        meta = store._metas[number]
        found.append(KeyGroup(number, meta, stored.forms or b"{}", tuple(stored.base), tuple(stored.log)))
    return found


def kept(harness: Harness, **facts: Any) -> KeyedStateReader:
    """What a harness holds."""
    layout = harness.inspect.lane.layout
    keys = harness.inspect.lane.streams[0].schema
    operator = KeyedOperator(
        0,
        layout.operator,
        2,
        layout.key_groups,
        pa.schema([keys.field(name) for name in layout.key_names]),
        kept_states(layout.form),
        harness.inspect.definition.has_timers,
        layout.form,
        harness.inspect.moment.now_ms,
        harness.inspect.moment.watermark_ms,
        **{"placed": layout.placement is not None, **facts},
    )
    return KeyedStateReader(operator, GroupsInMemory(groups_of(harness.inspect.store)))


def hold(harness: Harness, groups: Iterable[KeyGroup], *, anew: bool = False) -> None:
    """Let a harness go on with these groups in place of its own; `anew` with no others."""
    store = harness.inspect.store
    if anew:
        store.clear()
    for group in groups:
        assert group.meta is not None
        store.put(group.group, group.meta, GroupBlobs(group.forms, group.base, group.log))


def in_time(ms: int) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=ms)


def timed(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event with a time in place of milliseconds."""
    return {**event, "ts": in_time(event["ts"])}


def by_who(rows: Iterable[Mapping[str, Any]]) -> dict[str | None, list[Any]]:
    """The rows of each key, as the model of `keyed_programs` gives them."""
    found: dict[str | None, list[Any]] = {}
    for row in rows:
        found.setdefault(row["who"], []).append(tuple(row.values()))
    return found


def asked_of(change: Mapping[str, Any]) -> KeyChange:
    """A change of a key of `keyed_programs` as it is asked for."""
    return KeyChange(
        (change["who"],),
        change["states"],
        {"recent": change["recent_stamps"]},
        timers=change["timers"],
        remove=change["remove"],
    )


def put(model: Model, change: Mapping[str, Any], now: int, watermark: int) -> None:
    """Change a key of the model: what was there keeps its stamp, what is new gets the batch's."""
    if change["remove"]:
        model.keys.pop(change["who"], None)
        return
    key = model.keys.setdefault(change["who"], _Key())
    states = change["states"]
    for name in ("last", "total"):
        if name in states:
            before, value = getattr(key, name), states[name]
            lives = before is not None and now < before[1] + {"last": LAST_TTL, "total": TOTAL_TTL}[name]
            setattr(key, name, None if value is None else (value, before[1] if lives else now))
    if "recent" in states:
        # Which places there are depends on what has been cleaned up, so their stamps are set as well.
        key.recent = list(zip(states["recent"] or (), change["recent_stamps"], strict=False))
    if "seen" in states:
        before = {entry: stamp for entry, (_, stamp) in key.seen.items() if stamp + SEEN_TTL > watermark}
        key.seen = {
            entry: (value, before.get(entry, watermark)) for entry, value in (states["seen"] or {}).items()
        }
    if "span" in states:
        lives = key.span is not None and key.span[2] + SPAN_TTL > watermark
        value, stamp = states["span"], key.span[2] if key.span is not None and lives else watermark
        key.span = None if value is None else (value[0], value[1], stamp)
    if change["timers"] is not None:
        key.timers = {(each.clock, each.name): each.at_ms for each in change["timers"]}
