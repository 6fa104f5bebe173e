"""Keyed state of a real job, changed, regrouped and made anew at rest: the job goes on as the model does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from kept_state import asked_of, put, timers_of
from keyed_programs import EVENTS, OUTPUT, Everything, Model
from keyed_runs import batches_read, by_batch_and_key, clocks, program, read_stream, ship, write_batch

import holdfast as hf
from holdfast import checkpoints
from holdfast.at_rest.keyed_reader import keyed_states
from holdfast.changes.keyed.group_builder import build_groups
from holdfast.changes.keyed.group_changes import changed
from holdfast.changes.keyed.group_writer import regroup, replacing, write_groups
from holdfast.checkpoints.keyed import KeyTimer
from holdfast.errors import Invalid
from holdfast.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ship()


class Shop:
    """A job over files, its checkpoint, and the model that is driven by what the checkpoint says."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.checkpoint = LocalStorage(folder / "checkpoint")
        self.sent: list[list[dict[str, Any]]] = []
        self.rows: list[tuple[int, dict[str, Any]]] = []
        # What is done to the model after which batch.
        self.done: dict[int, Callable[[Model, int, int], None]] = {}

    def run(self, batches: list[list[dict[str, Any]]], key_groups: int) -> None:
        for batch in batches:
            write_batch(self.folder / "in", len(self.sent), batch)
            self.sent.append(batch)
        events = read_stream(self.spark, self.folder / "in", EVENTS).withWatermark("ts", "6 seconds")
        frame = hf.keyed(events, by="who", key_groups=key_groups).process(
            Everything(), output=OUTPUT, name="everything"
        )
        sink = hf.sink(frame, mode="update").foreach_batch(self._take)
        query = sink.start(checkpoint=str(self.folder / "checkpoint"), trigger=hf.available_now())
        query.awaitTermination()

    def _take(self, batch: DataFrame, batch_id: int) -> None:
        self.rows.extend((batch_id, row.asDict(recursive=True)) for row in batch.collect())

    def expected(self) -> dict[int, dict[str | None, list[Any]]]:
        model, found = Model(), {}
        read = batches_read(self.folder / "checkpoint", self.sent)
        for number, (now, watermark, events) in enumerate(read):
            found[number] = model.batch(now, watermark, events)
            if number in self.done:
                self.done[number](model, now, watermark)
        return {number: rows for number, rows in found.items() if rows}

    @property
    def keys(self) -> dict[Any, Any]:
        """All state, by key."""
        rows = keyed_states(self.checkpoint)[0].rows()
        return {row.key: (row.values, row.stamps, row.timers) for row in rows}


def test_a_job_goes_on_from_state_that_was_mended_at_rest(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(spark, tmp_path)
    batches = program(seed=5, batches=8, events=12)
    shop.run(batches[:3], key_groups=5)
    [state] = keyed_states(shop.checkpoint)
    assert [state.operator.name, state.operator.keys.names, state.operator.placed] == [
        "everything",
        ["who"],
        False,
    ]
    for key, (values, _, _) in shop.keys.items():
        found = state.get(key)
        assert found is not None
        assert found.values == values
    assert state.get("nobody") is None

    # One key is removed, one made, others have other state; all of it is in the next batch.
    seen = clocks(tmp_path / "checkpoint")[-1][1]
    changes: list[dict[str, Any]] = [
        {"who": "ann", "states": {}, "recent_stamps": [], "timers": None, "remove": True},
        {
            "who": "eve",
            "states": {"last": 7, "recent": [3, 4], "seen": {"k1": 5}, "span": [1, 9]},
            "recent_stamps": [seen, seen],
            "timers": [KeyTimer("t1", "event", seen + 5_000)],
            "remove": False,
        },
        {
            "who": "bob",
            "states": {"total": 1_000, "recent": None, "seen": {"k0": 8, "k2": 6}},
            "recent_stamps": [],
            "timers": [KeyTimer("t0", "event", seen + 1_000)],
            "remove": False,
        },
        {
            "who": None,
            "states": {"span": None, "last": None},
            "recent_stamps": [],
            "timers": [],
            "remove": False,
        },
    ]
    done = changed(state, map(asked_of, changes))
    batch = write_groups(shop.checkpoint, {0: done}, tmp_path / "first")
    assert checkpoints.verify(tmp_path / "checkpoint").problems == ()
    assert ("ann",) not in shop.keys
    assert shop.keys["eve",][0] == {"last": 7, "recent": [3, 4], "seen": {"k1": 5}, "span": [1, 9]}

    def mend(model: Model, now: int, watermark: int) -> None:
        for change in changes:
            put(model, change, now, watermark)

    shop.done[batch] = mend
    shop.run(batches[3:5], key_groups=5)
    assert by_batch_and_key(shop.rows) == shop.expected()

    # Fewer key groups, which the job then has to be started with.
    before = shop.keys
    [grouped] = regroup(shop.checkpoint, 3, tmp_path / "second")
    assert (grouped.operator.key_groups, grouped.keys, shop.keys) == (3, len(before), before)
    with pytest.raises(Invalid, match="key_groups differs from the checkpoint"):
        shop.run([], key_groups=5)
    shop.run(batches[5:6], key_groups=3)
    assert by_batch_and_key(shop.rows) == shop.expected()

    # All of it made anew out of its own tables.
    (state,) = keyed_states(shop.checkpoint)
    before = shop.keys
    tables = {
        each.name: pa.concat_tables([state.schema(each.name).empty_table(), *state.scan(each.name)])
        for each in state.operator.states
    }
    fresh = build_groups(state.operator, tables, timers_of(state))
    groups = replacing(state.source.groups(), fresh)
    write_groups(shop.checkpoint, {0: groups}, tmp_path / "third")
    assert shop.keys == before
    shop.run(batches[6:], key_groups=3)
    assert by_batch_and_key(shop.rows) == shop.expected()
