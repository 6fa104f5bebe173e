"""How much keyed state holds: as a model counts it, and as its rows are when they are counted again."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import counted_programs
import keyed_programs
import keyed_runs
import pyarrow as pa
import pytest
from counted_programs import DELAY_MS, Baskets, BasketsModel, Items, ItemsModel

from holdfast.errors import Corrupt
from holdfast.formats.key_groups import Meta
from holdfast.testing import Harness
from holdfast.worker.state.local_copies import Copies
from holdfast.worker.state.store import MemoryStore
from holdfast.worker.state.tables import Levels, Run
from holdfast.worker.state.upkeep import Census


def baskets(key_groups: int = 3) -> Harness:
    return Harness(
        Baskets(),
        by="who",
        events=counted_programs.EVENTS,
        output=counted_programs.OUTPUT,
        time="ts",
        key_groups=key_groups,
    )


def forgotten(store: MemoryStore) -> None:
    """Leave the records as a Holdfast wrote them that did not count."""
    for group in store.groups:
        (meta,) = store.metas([group])
        assert meta is not None
        store.put(group, replace(meta, counts=None).encode(), store.load(group))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_the_totals_are_those_of_a_model(seed: int) -> None:
    harness, model, watermark = baskets(), BasketsModel(), 0
    for events in counted_programs.program(seed, batches=12, events=20):
        if watermark:
            harness.set_clocks(watermark=watermark)
        harness.send(*(each | {"ts": keyed_runs.EPOCH + _ms(each["ts"])} for each in events))
        wanted = model.batch(watermark, events)
        found = harness.totals()
        assert {"keys": found.keys, "timers": found.timers, **found.entries} == wanted
        watermark = max(watermark, max(each["ts"] for each in events) - DELAY_MS)


def test_expired_values_are_counted_once_and_leave_the_totals() -> None:
    harness = Harness(
        Items(),
        by="item",
        events=counted_programs.EVENTS,
        output=counted_programs.OUTPUT,
        time="ts",
        key_groups=2,
    )
    model, watermark = ItemsModel(), 0
    for events in counted_programs.program(3, batches=10, events=15):
        if watermark:
            harness.set_clocks(watermark=watermark)
        harness.send(*(each | {"ts": keyed_runs.EPOCH + _ms(each["ts"])} for each in events))
        model.batch(watermark, events)
        assert harness.totals().keys >= len(model.seen)
        watermark = max(watermark, max(each["ts"] for each in events) - DELAY_MS)
    harness.set_clocks(watermark=watermark)
    model.expire(watermark)
    assert harness.cleaned().totals().keys == harness.cleaned().totals().entries["seen"] == len(model.seen)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_counting_on_gives_what_counting_anew_gives(seed: int) -> None:
    harness = Harness(
        keyed_programs.Everything(),
        by="who",
        events=keyed_programs.EVENTS,
        output=keyed_programs.OUTPUT,
        time="ts",
        now=keyed_runs.START,
    )
    for number, events in enumerate(keyed_runs.program(seed, batches=12, events=25)):
        harness.set_clocks(now=keyed_runs.START + number * 7_000)
        harness.send(*(each | {"ts": keyed_runs.EPOCH + _ms(each["ts"])} for each in events))
        harness.set_clocks(watermark=keyed_runs.START + number * 7_000 - 5_000)
        counted = harness.totals()
        again = harness.over(harness.inspect.store.snapshot()).inspect
        forgotten(again.store)
        partition = again.partition()
        partition.open(list(range(8)), again.moment)
        sums = sum((each.counts for each in partition._open.values()), partition._census.none())
        assert [counted.keys, counted.timers, *counted.entries.values()] == [*sums[:2], *sums[2::2]]


def test_a_group_of_an_older_holdfast_is_unknown_until_a_batch_opens_it() -> None:
    harness = baskets()
    event = {"item": "i", "op": "add", "n": 1, "ts": keyed_runs.EPOCH + _ms(counted_programs.START)}
    harness.send(*({**event, "who": who} for who in "abcdefg"))
    known = harness.totals()
    assert known.keys == 7
    inspected = harness.inspect
    forgotten(inspected.store)
    groups = range(3)
    totals, size, uncounted = inspected.partition().totals(groups, inspected.moment)
    assert (totals.keys, uncounted) == (0, [0, 1, 2])
    assert size > 0
    for group in groups:
        partition = inspected.partition()
        partition.open([group], inspected.moment)
        partition.write(inspected.moment)
    totals, _, uncounted = inspected.partition().totals(groups, inspected.moment)
    assert (totals.keys, totals.entries, uncounted) == (7, known.entries, [])


def test_a_record_without_counts_is_read_and_one_of_another_kind_refused() -> None:
    plain = Meta(8, b"12345678", b"87654321", 5, 6, 7, 8, 9, mixed=True)
    counted = replace(plain, counts=(1, 2, 3, 4))
    assert len(counted.encode()) == len(plain.encode()) + 4 * 8
    assert Meta.decode(plain.encode()) == plain
    assert Meta.decode(counted.encode()) == counted
    for data in (counted.encode()[:-1], plain.encode() + b"12345678", b"HFK9" + plain.encode()[4:]):
        with pytest.raises(Corrupt):
            Meta.decode(data)


def test_elements_are_found_by_hash_ordinal_and_slot() -> None:
    schema = pa.schema([("h", pa.uint64()), ("ord", pa.int32()), ("slot", pa.int64()), ("dead", pa.bool_())])

    def run(*rows: tuple[int, int, int, bool]) -> Run:
        columns = list(zip(*rows, strict=True))
        return Run(
            pa.RecordBatch.from_arrays(
                [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
                schema=schema,
            )
        )

    levels = Levels(schema)
    levels.extend(run((1, 0, 0, False), (1, 0, 4, False), (1, 1, 0, False), (7, 0, 2, False)))
    levels.put(run((1, 0, 4, True), (7, 0, 3, False)).batch)
    wanted = run(
        (1, 0, 0, False),
        (1, 0, 3, False),
        (1, 0, 4, False),
        (1, 1, 0, False),
        (7, 0, 3, False),
        (9, 0, 0, False),
    )
    alive, stamps = levels.held(wanted)
    assert alive.tolist() == [True, False, False, True, True, False]
    assert stamps is None


def test_records_that_a_task_leaves_are_good_for_the_next_batch_alone(tmp_path: Path) -> None:
    harness = baskets()
    form = harness.inspect.lane.layout.form
    meta = Meta(3, b"12345678", form.fingerprint, counts=tuple(Census(form, 3).none().tolist()))
    Copies(tmp_path, form.fingerprint, "a").save({}, {}, {0: meta, 1: None}, 40)
    for batch_id, wanted in ((41, {0: meta, 1: None}), (42, {}), (40, {}), (None, {})):
        copies = Copies(tmp_path, form.fingerprint, "b")
        copies.read({})
        assert dict(copies.records(batch_id)) == wanted


def _ms(number: int) -> dt.timedelta:
    return dt.timedelta(milliseconds=number)
