"""The sides of `holdfast bench peers` on six events that were worked out by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from command import Holdfast

from holdfast.testing import Harness
from holdfast_bench.peers import peers_bench
from holdfast_bench.peers.alert_processors import OUTPUT, BatchAlerts, EventAlerts, apply_in_pandas
from holdfast_bench.peers.peer_events import SCHEMA, count_alerts, write, write_tables
from holdfast_bench.peers.peers_bench import Peers, Sizes
from holdfast_bench.peers.stopwatch import Run, Stopwatch, Task, combined, in_processes

# 31 is more than three times the average of 10 and 10; 12 is exactly three times 4; 25 is more than
# three times the average of 4 and 12.
EVENTS = [(1, 10.0), (2, 4.0), (1, 10.0), (2, 12.0), (1, 31.0), (2, 25.0)]
ALERTS = [(1, 31.0, 10.0), (2, 25.0, 8.0)]


class Seen:
    """The state of a user, as `applyInPandasWithState` has it."""

    exists = False
    get: tuple[int, float] = (0, 0.0)

    def update(self, value: tuple[int, float]) -> None:
        self.exists, self.get = True, value


def task(folder: Path, **fields: Any) -> Task:
    plain = {"side": "csp", "events": str(folder), "rows": 10, "warm_up": 20, "total": 50}
    return Task(**{**plain, "folder": str(folder), **fields})


def test_the_plain_loop_finds_the_alerts() -> None:
    assert count_alerts(EVENTS) == len(ALERTS)


@pytest.mark.parametrize("processor", [EventAlerts, BatchAlerts])
@pytest.mark.parametrize("cut", [0, 3, 5])
def test_holdfast_finds_the_alerts(processor: type[Any], cut: int) -> None:
    harness = Harness(processor(), by="user", events=SCHEMA, output=OUTPUT)
    found = []
    for part in (EVENTS[:cut], EVENTS[cut:]):
        found += harness.send(*({"user": user, "amount": amount} for user, amount in part))
    assert sorted(tuple(row.values()) for row in found) == ALERTS


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_pandas_finds_the_alerts(cut: int) -> None:
    found = []
    for user in (1, 2):
        state: Any = Seen()
        amounts = [amount for each, amount in EVENTS if each == user]
        for part in (amounts[:cut], amounts[cut:]):
            frames = apply_in_pandas((user,), iter([pd.DataFrame({"amount": part})]), state)
            found += [tuple(row) for frame in frames for row in frame.itertuples(index=False)]
    assert found == ALERTS


def test_all_layouts_have_the_same_events(tmp_path: Path) -> None:
    users, amounts = zip(*EVENTS, strict=True)
    write_tables(tmp_path, [pa.table({"user": users, "amount": amounts})])
    assert (tmp_path / "csv" / "1.csv").read_text() == "1,10\n1,10\n1,31\n"
    assert (tmp_path / "rows" / "0" / "00000.csv").read_text().startswith('"user","amount","at"\n2,4,')
    assert len(task(tmp_path).half(0)) == 1


def test_equal_seeds_write_equal_events(tmp_path: Path) -> None:
    first, second = (write(tmp_path / name, rows=200, batches=2, users=10) for name in "ab")
    assert first == second > 0
    files = [tmp_path / name / "csv" / "0.csv" for name in "ab"]
    assert files[0].read_text() == files[1].read_text()


def test_a_wrong_number_of_alerts_fails_the_side() -> None:
    found = Peers(Sizes(), expected=7)
    found.add("csp", Run(1000, 2.0, 3.0, 7))
    found.add("csp", Run(1000, 1.0, 3.0, 7))
    found.add("sql", Run(1000, 2.0, 3.0, None))
    found.add("quix", Run(1000, 2.0, 3.0, 8))
    assert found.failed == {"quix": "wrong number of alerts: found 8, expected 7"}
    sides = found.as_dict()["sides"]
    assert set(sides) == {"csp", "sql"}
    assert (sides["csp"]["events_per_s"], sides["csp"]["events_per_s_per_core"]) == (750, 375)
    assert (sides["csp"]["min_events_per_s"], sides["csp"]["max_events_per_s"]) == (500, 1000)
    assert sides["csp"]["core_s_per_million"] == 3000


def test_notes_are_combined_from_the_first_event_to_the_last(tmp_path: Path) -> None:
    for name, times, used in (("a", (10, 14), {"1": (1, 3), "9": (0, 5)}), ("b", (11, 15), {"1": (2, 4)})):
        note = {"times": times, "used": used, "alerts": 2, "events": None}
        (tmp_path / f"{name}.note").write_text(json.dumps(note))
    assert combined(task(tmp_path)) == Run(events=30, seconds=5, processor=8, alerts=4)


def test_the_clock_begins_once(tmp_path: Path) -> None:
    watch = Stopwatch(task(tmp_path))
    watch.begin()
    watch.begin()
    watch.end(alerts=3, events=25)
    run = combined(task(tmp_path))
    assert (run.events, run.alerts) == (25, 3)
    assert run.seconds >= 0


def one_fails(task: Task, number: int, watch: Stopwatch) -> None:
    if number:
        raise ValueError("as the test wants it")
    watch.begin()  # waits for the other


def both_end(task: Task, number: int, watch: Stopwatch) -> None:
    watch.begin()
    watch.end(alerts=number + 1)


@pytest.mark.slow
def test_an_instance_that_fails_ends_the_others(tmp_path: Path) -> None:
    in_processes(both_end, task(tmp_path), independent=True)
    assert combined(task(tmp_path)).alerts == 3
    with pytest.raises(RuntimeError, match="2 of 2 processes failed"):
        in_processes(one_fails, task(tmp_path), independent=True)


def test_a_missing_engine_is_reported_and_does_not_fail(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers_bench, "ENVIRONMENTS", tmp_path)
    said = holdfast("bench", "peers", "--sides", "csp", "--rows", "10", "--batches", "1")
    assert said.returncode == 0
    assert "csp: not installed: make peers" in said.stdout


def test_an_engine_that_breaks_off_fails_the_bench(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "csp" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho out of luck >&2\nexit 1\n")
    python.chmod(0o755)
    (tmp_path / "csp" / "lib" / f"python{sys.version_info.major}.0").mkdir(parents=True)
    (tmp_path / "csp" / ".installed").touch()
    monkeypatch.setattr(peers_bench, "ENVIRONMENTS", tmp_path)
    said = holdfast("bench", "peers", "--sides", "csp,pathway", "--rows", "10", "--batches", "1")
    assert said.returncode not in (0, 70)
    assert "csp: FAILED" in said.stdout
    assert "pathway: not installed" in said.stdout
    assert "out of luck" in said.stderr


def test_an_unknown_side_lists_the_sides(holdfast: Holdfast) -> None:
    said = holdfast("bench", "peers", "--sides", "storm")
    assert said.returncode == 2
    assert "found storm, expected raw_tws, tws_pandas, apply_pandas, sql" in said.stderr
