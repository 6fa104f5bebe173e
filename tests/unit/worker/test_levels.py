"""Tables of segments and a tail hold what a dictionary holds, through settling, splitting and dropping."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from grid import WHOLE

from holdfast.errors import Unsupported
from holdfast.worker.state import tables
from holdfast.worker.state.tables import Levels, Run, empty_run, joined, merged, pages, sorted_run, spans

ROWS = pa.schema(
    [("h", pa.uint64()), ("ord", pa.int32()), ("dead", pa.bool_()), ("v", pa.int64()), ("due", pa.int64())]
)
ELEMENTS = pa.schema(
    [("h", pa.uint64()), ("ord", pa.int32()), ("slot", pa.int64()), ("dead", pa.bool_()), ("v", pa.int64())]
)
HIGHEST = (1 << 64) - 1
Row = tuple[int, int, int | None]  # h, ord, v; None marks a row that is gone


def batch(rows: Iterable[Row], due: int | None = None) -> pa.RecordBatch:
    found = list(rows)
    arrays = [
        pa.array([row[0] for row in found], pa.uint64()),
        pa.array([row[1] for row in found], pa.int32()),
        pa.array([row[2] is None for row in found], pa.bool_()),
        pa.array([row[2] for row in found], pa.int64()),
        pa.array([due if due is not None else row[2] for row in found], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)


def elements(rows: Iterable[tuple[int, int, int, int | None]]) -> pa.RecordBatch:
    found = list(rows)
    arrays = [
        pa.array([row[0] for row in found], pa.uint64()),
        pa.array([row[1] for row in found], pa.int32()),
        pa.array([row[2] for row in found], pa.int64()),
        pa.array([row[3] is None for row in found], pa.bool_()),
        pa.array([row[3] for row in found], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ELEMENTS)


def values(run: Run) -> list[int]:
    found: list[int] = run.column("v").to_pylist()
    return found


def lookup(table: Levels, keys: Iterable[tuple[int, int]]) -> list[int | None]:
    wanted = sorted(keys)
    h = np.array([each for each, _ in wanted], np.uint64)
    found = table.find(h, np.array([each for _, each in wanted], np.int32))
    column: list[int | None] = found.column("v").to_pylist()
    dead = found.column("dead").to_pylist()
    return [None if gone else value for value, gone in zip(column, dead, strict=True)]


def test_of_rows_with_one_identity_the_last_stays() -> None:
    assert values(sorted_run(batch([(5, 0, 1), (3, 0, 2), (5, 0, 3)]))) == [2, 3]
    assert values(sorted_run(batch([(5, 1, 1), (5, 0, 2), (5, 1, 3)]))) == [2, 3]
    assert values(sorted_run(elements([(5, 0, 2, 1), (5, 0, 1, 2), (5, 0, 2, 3)]))) == [2, 3]
    already = batch([(1, 0, 1), (2, 0, 2)])
    assert sorted_run(already).batch is already


@pytest.mark.parametrize("ordinal", [0, 1])
def test_newer_rows_win_when_runs_are_merged(ordinal: int) -> None:
    old = sorted_run(batch([(1, 0, 1), (2, ordinal, 2), (HIGHEST, 0, 3)]))
    new = sorted_run(batch([(0, 0, 9), (2, ordinal, None), (HIGHEST, 0, 5)]))
    both = merged(old, new)
    assert both.h.tolist() == [0, 1, 2, HIGHEST]
    assert values(both) == [9, 1, None, 5]
    assert values(both.alive()) == [9, 1, 5]
    assert merged(old, empty_run(ROWS)) is old
    assert merged(empty_run(ROWS), new) is new
    assert values(joined([empty_run(ROWS), old], ROWS)) == values(old)


def test_rows_that_share_a_hash_are_found_by_their_ordinals() -> None:
    chance = random.Random(5)
    identities = sorted({(chance.randrange(4), chance.randrange(-1, 9)) for _ in range(20)})
    run = Run(
        pa.record_batch(
            {
                "h": pa.array([h for h, _ in identities], pa.uint64()),
                "ord": pa.array([ordinal for _, ordinal in identities], pa.int32()),
                "dead": pa.array([False] * len(identities)),
            }
        )
    )
    wanted = [(h, ordinal) for h in range(6) for ordinal in range(-2, 11)]
    places = run.find(
        np.array([h for h, _ in wanted], np.uint64), np.array([ordinal for _, ordinal in wanted], np.int32)
    )
    expected = [identities.index(identity) if identity in identities else -1 for identity in wanted]
    assert places.tolist() == expected


def test_spans_are_the_places_of_each_one_after_the_other() -> None:
    assert spans(np.array([4, 9, 0]), np.array([2, 0, 3])).tolist() == [4, 5, 0, 1, 2]
    assert spans(np.array([], np.int64), np.array([], np.int64)).tolist() == []


def test_the_hashes_at_both_ends_are_in_the_table() -> None:
    table = Levels(ROWS)
    table.put(batch([(HIGHEST, 0, 1), (0, 0, 2), (1 << 63, 0, 3)]))
    for _ in range(2):
        assert lookup(table, [(0, 0), (1 << 63, 0), (HIGHEST, 0), (5, 0)]) == [2, None, 3, 1]
        assert values(table.between(0, None)) == [2, 3, 1]
        assert values(table.between(1, 1 << 63)) == []
        assert values(table.between(1 << 63, None)) == [3, 1]
        assert values(table.of_hashes(np.array([0, 7, HIGHEST], np.uint64))) == [2, 1]
        table.settle()
        assert not len(table.tail)


def test_a_row_that_is_gone_hides_the_settled_one_until_it_is_settled_too() -> None:
    table = Levels(ROWS)
    table.extend(sorted_run(batch((each, 0, each) for each in range(100))))
    table.put(batch([(7, 0, None)]))
    assert lookup(table, [(7, 0)]) == [None]
    assert 7 not in values(table.between(0, None))
    assert values(table.of_hashes(np.array([6, 7, 8], np.uint64))) == [6, 8]
    assert table.rows == 101
    table.put(batch((each, 0, -each) for each in range(50, 80)))
    table.settle()
    assert table.rows == 99
    assert lookup(table, [(7, 0), (60, 0), (90, 0)]) == [None, -60, 90]


def test_settling_copies_the_worst_segments_first_and_no_more_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "SEGMENT_ROWS", 20)
    table = Levels(ROWS)
    table.extend(sorted_run(batch((each, 0, each) for each in range(100))))
    assert table.settled.lows.tolist() == list(range(0, 100, 10))
    table.put(batch([*((each, 0, -1) for each in range(40, 48)), (5, 0, -1), (71, 0, -1), (72, 0, -1)]))
    table.settle(15)
    # One row in ten of the first is too few; of the others only the one with eight has room.
    assert table.tail.between(0, None).h.tolist() == [5, 71, 72]
    table.settle(15)
    assert table.tail.between(0, None).h.tolist() == [5]
    table.settle(15)
    assert table.tail.between(0, None).h.tolist() == [5]
    assert [len(run) for run in table.settled] == [10] * 10
    expected = [-1 if each in (5, 71, 72, *range(40, 48)) else each for each in range(100)]
    assert values(table.between(0, None)) == expected


def test_a_segment_that_grows_is_split_and_no_hash_is_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SEGMENT_ROWS", 8)
    table = Levels(ELEMENTS)
    table.put(elements((7, 0, slot, slot) for slot in range(30)))
    table.put(elements((each, 0, 0, each) for each in (1, 5, 9, 20)))
    table.settle()
    parts = table.settled.parts
    for segment, following in pairwise(parts):
        assert segment.run.h.max() < following.low <= following.run.h.min()
    assert values(table.of_hashes(np.array([7], np.uint64))) == list(range(30))
    assert values(table.between(7, 8)) == list(range(30))
    assert values(table.between(8, None)) == [9, 20]


def texts_of(rows: Iterable[tuple[int, str | None]]) -> pa.RecordBatch:
    """Rows of one text column; None is a row that is gone."""
    cells = list(rows)
    return pa.record_batch(
        {
            "h": pa.array([h for h, _ in cells], pa.uint64()),
            "ord": pa.array([0] * len(cells), pa.int32()),
            "dead": pa.array([text is None for _, text in cells]),
            "text": pa.array([text for _, text in cells], pa.string()),
        }
    )


def test_no_rows_of_many_bytes_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """However large a batch is, segments stay small, and only a few of them are ever joined."""
    most = 4_000
    monkeypatch.setattr(tables, "SEGMENT_BYTES", most)
    joins: list[int] = []
    concatenate = tables.concatenated

    def watched(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        joins.append(sum(part.nbytes for part in parts))
        return concatenate(parts)

    monkeypatch.setattr(tables, "concatenated", watched)
    for seed in range(5):
        chance = random.Random(seed)
        table = Levels(texts_of([]).schema)
        model: dict[int, str] = {}
        for _ in range(12):
            rows = {
                chance.randrange(200): None
                if chance.random() < 0.2
                else str(chance.random()) + "x" * chance.choice([9, 900, 1_900])
                for _ in range(chance.randrange(60))
            }
            joins.clear()
            table.put(texts_of(rows.items()))
            for h, text in rows.items():
                model.pop(h, None)
                if text is not None:
                    model[h] = text
            table.settle(chance.choice([1, sys.maxsize]))
            assert max(joins, default=0) <= 3 * most
            parts = [*table.settled.parts, *table.tail.parts]
            assert max(part.run.batch.nbytes for part in parts) <= most
            found = table.between(0, None)
            texts = found.column("text").to_pylist()
            assert dict(zip(found.h.tolist(), texts, strict=True)) == model


def test_pages_are_of_few_rows_and_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SEGMENT_BYTES", 4_000)
    texts = ["x" * size for size in (9, 9, 9, 9, 3_000, 3_000, 9_000, 9, 1_000, 1_000, 1_000)]
    run = Run(texts_of(enumerate(texts)))
    cut = [page.column(3).to_pylist() for page in pages(run, 4)]
    assert [text for page in cut for text in page] == texts
    assert all(len(page) == 1 or (len(page) <= 4 and sum(map(len, page)) < 4_000) for page in cut)


def test_more_than_arrow_can_address_is_an_error_of_ours() -> None:
    text = texts_of([(1, "x" * (1 << 26))])
    with pytest.raises(Unsupported, match="exceed 2 GiB in one column") as refused:
        joined([Run(text)] * 33, text.schema)
    assert "33 rows of 2,112 MiB" in str(refused.value)


def test_rows_until_a_number_are_the_live_and_newest() -> None:
    table = Levels(ROWS)
    table.extend(sorted_run(batch((each, 0, each) for each in range(10))))
    table.put(batch([(2, 0, None)]))
    table.put(batch([(3, 0, 3)], due=50))
    table.put(batch([(8, 0, 8)], due=1))
    assert table.until("due", 4).h.tolist() == [0, 1, 4, 8]
    assert len(table.until("due", -1)) == 0
    table.settle()
    assert table.until("due", 4).h.tolist() == [0, 1, 4, 8]


@pytest.mark.slow
def test_random_changes_hold_what_a_dictionary_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SEGMENT_ROWS", 16)
    for seed in range(40 if WHOLE else 8):
        chance = random.Random(seed)
        table = Levels(ROWS)
        model: dict[tuple[int, int], int] = {}
        several = seed % 2  # half of the runs have keys that share a hash
        for step in range(30):
            rows: list[Row] = [
                (
                    chance.randrange(60) << 58 if chance.random() < 0.5 else chance.randrange(40),
                    chance.randrange(3) if several else 0,
                    None if chance.random() < 0.3 else step * 100 + at,
                )
                for at in range(chance.randrange(12))
            ]
            table.put(batch(rows))
            for h, ordinal, value in rows:
                if value is None:
                    model.pop((h, ordinal), None)
                else:
                    model[h, ordinal] = value
            if chance.random() < 0.2:
                low = chance.randrange(60) << 58
                high = None if chance.random() < 0.3 else min(low + (chance.randrange(1, 30) << 57), HIGHEST)
                if chance.random() < 0.5:
                    table.drop(low, high)
                    model = {key: v for key, v in model.items() if key[0] < low or (high and key[0] >= high)}
                wanted = [
                    v for key, v in sorted(model.items()) if low <= key[0] and (not high or key[0] < high)
                ]
                assert values(table.between(low, high)) == wanted, seed
            if chance.random() < 0.7:
                table.settle(chance.choice([1, 20, 10**6]))
            everything = [v for _, v in sorted(model.items())]
            assert values(table.between(0, None)) == everything, seed
            asked = {(h, o) for h, o, _ in rows} | set(chance.sample(sorted(model), min(5, len(model))))
            assert lookup(table, asked) == [model.get(key) for key in sorted(asked)], seed
            hashes = np.unique(np.array([h for h, _ in asked], np.uint64))
            wanted = [v for key, v in sorted(model.items()) if key[0] in set(hashes.tolist())]
            assert values(table.of_hashes(hashes)) == wanted, seed
            most = chance.randrange(3000)
            due = table.until("due", most)
            assert sorted(values(due)) == sorted(v for v in model.values() if v <= most), seed
