"""The state of a harness as keyed state at rest, and back: the same key groups, without a checkpoint."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from holdfast.at_rest.keyed.groups import Held
from holdfast.at_rest.keyed.operators import KeyedOperator, kept_states
from holdfast.at_rest.keyed.reading import KeyedState
from holdfast.checkpoints.key_groups import KeyGroup
from holdfast.formats.xxhash64 import key_hashes
from holdfast.testing import Harness
from holdfast.worker.kept.store import MemoryStore, Stored

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


def groups_of(store: MemoryStore) -> list[KeyGroup]:
    """The groups of a store in memory."""
    found = []
    for number in store.groups:
        stored = store.load(number)
        meta = store._metas[number]
        found.append(KeyGroup(number, meta, stored.forms or b"{}", tuple(stored.base), tuple(stored.log)))
    return found


def kept(harness: Harness, **facts: Any) -> KeyedState:
    """What a harness holds."""
    layout = harness._lane.layout
    keys = harness._lane.streams[0].schema
    operator = KeyedOperator(
        0,
        layout.operator,
        2,
        layout.key_groups,
        pa.schema([keys.field(name) for name in layout.key_names]),
        kept_states(layout.form),
        harness._definition.has_timers,
        layout.form,
        harness._now_ms,
        harness._watermark_ms,
        **{"placed": layout.placement is not None, **facts},
    )
    return KeyedState(operator, Held(groups_of(harness._store)))


def hold(harness: Harness, groups: Iterable[KeyGroup], *, anew: bool = False) -> None:
    """Let a harness go on with these groups in place of its own; `anew` with no others."""
    store = MemoryStore() if anew else harness._store.snapshot()
    for group in groups:
        assert group.meta is not None
        store.put(group.group, group.meta, Stored(group.forms, group.base, group.log))
    harness._store = store


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
