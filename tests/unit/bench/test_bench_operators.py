from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from command import Holdfast

from holdfast_bench.operators.operator_queries import JOINS, NAMES, write


def test_an_unknown_operator_says_which_there_are(holdfast: Holdfast) -> None:
    said = holdfast("bench", "operators", "--only", "tumbling,tumbled")
    assert said.returncode == 2
    assert "found tumbled, expected control, watched, watched_keyed, watched_join, tumbling" in said.stderr
    said = holdfast("bench", "operators", "--sides", "sql")
    assert said.returncode == 2
    assert "expected keyed" in said.stderr


def test_every_kind_of_join_is_among_the_operators() -> None:
    assert {f"join_{kind}" for kind in JOINS} < set(NAMES)


def test_the_streams_are_files_in_order_with_payments_for_most_orders(tmp_path: Path) -> None:
    write(tmp_path, rows=1000, batches=3)
    for stream, least in (("orders", 1000), ("payments", 850)):
        files = sorted((tmp_path / stream).iterdir())
        times = [each.stat().st_mtime for each in files]
        assert len(files) == 3
        assert times == sorted(set(times))
        assert all(pq.read_table(each).num_rows >= least for each in files)
    orders, payments = (
        pq.read_table(tmp_path / name / "00001.parquet").to_pydict() for name in ("orders", "payments")
    )
    ordered_at = dict(zip(orders["order_id"], orders["ts"], strict=True))
    waits = [
        (at - ordered_at[order]).total_seconds()
        for order, at in zip(payments["order_id"], payments["paid_at"], strict=True)
    ]
    assert 0 <= min(waits) <= max(waits) < 60
