from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from command import Holdfast

SOURCE = Path(__file__).parents[3] / "src"


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


@pytest.mark.slow
def test_a_package_without_benches_says_where_they_are() -> None:
    """Without `site`, no editable install puts the benches on the path, as where a wheel was installed."""
    path = os.pathsep.join([str(SOURCE), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    said = subprocess.run(
        [sys.executable, "-S", "-m", "holdfast", "bench", "startup"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 7
    assert "the benchmarks are not part of an installed package" in said.stderr
    assert "hint: clone the repository" in said.stderr
