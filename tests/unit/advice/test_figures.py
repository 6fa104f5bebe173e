"""Figures of backends: the guide's, and those of a file of the bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.advice.evidence import GUIDE, ROCKSDB, figures
from holdfast.errors import Invalid, NotFound

SIDE: dict[str, Any] = {
    "batch_s": [2.0, 4.0, 3.0],
    "commit_s": [0.1],
    "recovery_s": {"10000": [0.5, 0.7, 0.6], "1000000": [2.6]},
    "small_s": {"10000": [0.1]},
    "state_bytes": 5_000,
    "get_us": {"p50": 3.5, "p99": 9.0},
    "put_us": {"p50": 8.0, "p99": 20.0},
    "rows": 50,
}


def written(folder: Path, **changed: Any) -> Path:
    side = {**SIDE, **changed}
    sides = {"rocksdb": {name: value for name, value in side.items() if value is not None}}
    file = folder / "backends.json"
    file.write_text(json.dumps({"machine": {}, "backends": {"sizes": {"rows": 600}, "sides": sides}}))
    return file


def test_medians_of_the_bench(tmp_path: Path) -> None:
    found = figures(written(tmp_path))
    own = found.of(ROCKSDB)
    # 600 rows in three seconds, and 5,000 bytes of 50 rows.
    assert (own.rows_a_second, own.bytes_a_key, own.read_us) == (200, 100, 3.5)
    assert own.recovery_ms == {10_000: 600, 1_000_000: 2_600}
    assert found.of("redis") == GUIDE["redis"]
    assert found.source.startswith("your measurements, ")
    assert found.source.endswith("; memory and redis and cassandra from the guide")


def test_a_recovery_between_and_beyond_what_was_measured(tmp_path: Path) -> None:
    """Two seconds for 990,000 keys more, by two tasks: by four half of it, by one twice."""
    own = figures(written(tmp_path)).of(ROCKSDB)
    assert own.recovery(10) == 600
    assert own.recovery(505_000) == pytest.approx(1_600)
    assert own.recovery(1_990_000) == pytest.approx(4_600)
    assert own.recovery(1_990_000, tasks=4) == pytest.approx(2_600)
    assert own.recovery(1_990_000, tasks=1) == pytest.approx(8_600)


def test_larger_values_take_as_much_more() -> None:
    """The bench's values have 16 bytes."""
    assert GUIDE[ROCKSDB].state_bytes(1_000, 116) == 239_000


def test_the_guide_says_the_same() -> None:
    guide = Path(__file__).parents[3] / "docs" / "guides" / "which-backend.md"
    rows = {
        cells[0].strip(): [cell.strip().replace(",", "") for cell in cells[1:-1]]
        for line in guide.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and (cells := line[1:].split("|"))
    }
    backends = list(GUIDE.values())
    assert rows["rows per second"] == [f"{each.rows_a_second:.0f}" for each in backends]
    assert rows["bytes per key, with the versions that are kept"] == [
        f"{each.bytes_a_key:.0f}" for each in backends
    ]
    for keys in (10_000, 100_000, 1_000_000):
        told = [f"{each.recovery_ms[keys]:.0f} ms" for each in backends]
        assert rows[f"recovery with {keys:,} keys"] == told
    reads = [text.split(" ")[0] for text in rows["read of one key, p50 and p99"]]
    assert reads == [f"{each.read_us:g}" for each in backends]


@pytest.mark.parametrize(
    "changed",
    [
        {"batch_s": []},
        {"batch_s": None},
        {"batch_s": "fast"},
        {"recovery_s": {"10000": [1]}},
        {"recovery_s": {"many": [1], "more": [2]}},
        {"recovery_s": []},
        {"state_bytes": -1},
        {"rows": 0},
        {"rows": True},
        {"get_us": {"p50": "quick"}},
    ],
)
def test_what_the_bench_does_not_write_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="invalid measurement file"):
        figures(written(tmp_path, **changed))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"backends": {"sides": {}, "sizes": {}}}', "\x00"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(Invalid):
        figures(file)
    with pytest.raises(Invalid):
        figures(tmp_path)
    with pytest.raises(NotFound):
        figures(tmp_path / "nothing")
