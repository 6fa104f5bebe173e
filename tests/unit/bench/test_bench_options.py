from __future__ import annotations

from command import Holdfast


def test_sizes_belong_to_one_measurement(holdfast: Holdfast) -> None:
    said = holdfast("bench", "--keys", "1000")
    assert said.returncode == 2
    assert "expected keyed" in said.stderr
    assert holdfast("bench", "startup", "--only", "dense").returncode == 2
    assert "expected keyed" in holdfast("bench", "overhead", "--keys", "5").stderr


def test_an_unknown_workload_or_side_says_which_there_are(holdfast: Holdfast) -> None:
    said = holdfast("bench", "keyed", "--only", "dense,thick")
    assert said.returncode == 2
    assert "found thick, expected dense, dense_1m, sparse, latency, ttl" in said.stderr
    said = holdfast("bench", "keyed", "--sides", "scala")
    assert said.returncode == 2
    assert "expected raw_tws, sql, on_event, on_key, on_batch, on_batch_combined" in said.stderr
