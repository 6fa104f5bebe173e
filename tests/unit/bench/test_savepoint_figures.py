"""Which batches count as disturbed, and what they are compared with."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command import Holdfast

from holdfast_bench.at_rest.savepoint_bench import _WARM, Ran, _slower
from holdfast_bench.at_rest.savepoint_process import write


def test_a_batch_is_compared_with_those_around_it_that_nothing_disturbed() -> None:
    ran = [Ran(number, number * 2.0, 1.0) for number in range(_WARM)]
    ran += [
        Ran(_WARM + number, 100 + number * 2.0, seconds) for number, seconds in enumerate((1, 1.2, 3, 1, 1))
    ]
    slower, control = _slower(ran, [(104.5, 104.6)], [(102.1, 103.0)])
    assert slower == [3.0]
    assert control == pytest.approx([1.2])


def test_between_batches_nothing_is_disturbed() -> None:
    batch = Ran(0, 10.0, 1.0)
    assert not batch.overlaps((11.5, 11.9))
    assert not batch.overlaps((8.0, 9.9))
    assert batch.overlaps((10.9, 12.0))
    assert batch.overlaps((9.0, 10.1))


def test_the_first_file_has_every_key_and_the_others_some(tmp_path: Path) -> None:
    write(tmp_path / "events", keys=500, changed=20, files=3)
    first, *rest = [
        pq.read_table(file)["user"].to_pylist() for file in sorted((tmp_path / "events").iterdir())
    ]
    assert sorted(first) == list(range(500))
    assert [len(set(each)) for each in rest] == [20, 20]


def test_sizes_that_it_does_not_take_are_refused(holdfast: Holdfast) -> None:
    assert (
        "expected keyed or operators or overhead or skew"
        in holdfast("bench", "savepoint", "--batches", "3").stderr
    )
