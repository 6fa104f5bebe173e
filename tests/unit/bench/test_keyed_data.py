from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast_bench.keyed.keyed_data import LOAD_BATCHES, Shape, write


def distinct(table: pa.Table) -> int:
    return int(pc.count_distinct(table["user"]).as_py())


def test_a_batch_touches_exactly_as_many_users_as_it_should(tmp_path: Path) -> None:
    files = write(tmp_path / "events", Shape(keys=5000, rows=1000, batches=3, touched=970))
    for path in files.batches:
        table = pq.read_table(path)
        assert table.num_rows == 1000
        assert distinct(table) == 970
        assert 0 <= pc.min(table["user"]).as_py() <= pc.max(table["user"]).as_py() < 5000
    assert files.load == ()


def test_without_a_number_users_are_drawn_from_all(tmp_path: Path) -> None:
    files = write(tmp_path / "events", Shape(keys=500, rows=1000, batches=1))
    # 500 users and two events a user on average: 500 * (1 - exp(-2)) = 432 have one.
    assert 400 < distinct(pq.read_table(files.batches[0])) < 465


def test_a_load_brings_each_user_once(tmp_path: Path) -> None:
    files = write(tmp_path / "events", Shape(keys=1234, rows=10, batches=2, loaded=True))
    assert len(files.load) == LOAD_BATCHES
    loaded = pa.concat_tables([pq.read_table(path) for path in files.load])
    assert sorted(loaded["user"].to_pylist()) == list(range(1234))


def test_files_are_ordered_by_their_time_of_change(tmp_path: Path) -> None:
    files = write(tmp_path / "events", Shape(keys=50, rows=10, batches=12, loaded=True))
    times = [path.stat().st_mtime for path in (*files.load, *files.batches)]
    assert times == sorted(set(times))


def test_the_same_shape_is_the_same_events_however_many_batches_follow(tmp_path: Path) -> None:
    few = write(tmp_path / "few", Shape(keys=50, rows=40, batches=2))
    many = write(tmp_path / "many", Shape(keys=50, rows=40, batches=4))
    for one, other in zip(few.batches, many.batches, strict=False):
        assert pq.read_table(one).equals(pq.read_table(other))


def test_sums_of_amounts_are_exact(tmp_path: Path) -> None:
    files = write(tmp_path / "events", Shape(keys=50, rows=1000, batches=1))
    amounts = pq.read_table(files.batches[0])["amount"].to_pylist()
    assert all((amount * 4).is_integer() and 0 < amount <= 100 for amount in amounts)
