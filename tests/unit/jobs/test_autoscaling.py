"""Automatic rescale: simulated days of a query, the request for a rescale, and the record of decisions."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast import autoscale
from holdfast.config.policies import Autoscale
from holdfast.errors import Invalid
from holdfast.jobs.autoscaling import (
    Autoscaler,
    HotKeyPolicy,
    ScaleDecision,
    ScalePolicy,
    decisions,
    record,
)
from holdfast.jobs.registry.operation_log import Operations, Rescale, decode
from holdfast.jobs.state_home import StateHome
from holdfast.model import BatchProgress, HeavyKey, OperatorProgress, SkewReport

MIDNIGHT = 1_772_668_800_000
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
BOUNDS = autoscale(4, 64, after="10m", cool_down="1h")


def batch(at_ms: int, rows: int, partitions: int, **changed: Any) -> BatchProgress:
    """A batch of a query with an interval of a minute; ten thousand rows need a partition."""
    operator = OperatorProgress("sums", 1000, rows, 0, 0, 900, 75, partitions, {})
    took_ms = 1_000 + rows // 20
    fields: dict[str, Any] = {"phases_ms": {"addBatch": took_ms - 500}, "interval_ms": MINUTE, "cores": 4}
    number = (at_ms - MIDNIGHT) // MINUTE
    return BatchProgress("sums", number, at_ms, rows, took_ms, None, (operator,), **{**fields, **changed})


@dataclass
class Day:
    """A day of batches, one a minute; what is decided is done."""

    settings: Autoscale = BOUNDS
    partitions: int = 8

    def run(self, rows: Callable[[int], int], days: int = 1) -> list[ScaleDecision]:
        policy, made = ScalePolicy(self.settings, None), []
        for at_ms in range(MIDNIGHT, MIDNIGHT + days * DAY, MINUTE):
            decision = policy.decide(batch(at_ms, rows(at_ms), self.partitions))
            if decision is not None:
                assert decision.before == self.partitions
                self.partitions = decision.partitions
                made.append(decision)
        return made


def swing(least: int, most: int, period_ms: int = DAY) -> Callable[[int], int]:
    def rows(at_ms: int) -> int:
        share = (1 - math.cos(2 * math.pi * (at_ms - MIDNIGHT) / period_ms)) / 2
        return int(least + share * (most - least))

    return rows


def test_a_load_that_stays_changes_nothing() -> None:
    assert Day(partitions=8).run(lambda _: 70_000) == []


@pytest.mark.parametrize("seed", range(5))
def test_noise_and_spikes_change_nothing(seed: int) -> None:
    """A quarter up and down, and five minutes of eight times the load each hour."""
    draw = random.Random(seed)

    def rows(at_ms: int) -> int:
        spike = 8 if at_ms % HOUR < 5 * MINUTE else 1
        return int(60_000 * draw.uniform(0.75, 1.25)) * spike

    assert Day(partitions=8).run(rows, days=2) == []


def test_a_load_that_has_grown_is_followed_once_and_within_the_bounds() -> None:
    day = Day(partitions=8)
    (made,) = day.run(lambda at_ms: 70_000 if at_ms < MIDNIGHT + 6 * HOUR else 300_000)
    # Thirty partitions of ten thousand rows, as a power of two.
    assert (made.before, made.partitions) == (8, 32)
    # Nine of ten of the last fifty batches are large after 5 minutes; the recommendation then stands for ten.
    assert 10 * MINUTE <= made.at_ms - (MIDNIGHT + 6 * HOUR) <= 25 * MINUTE
    day = Day(autoscale(4, 16), partitions=8)
    (made,) = day.run(lambda at_ms: 70_000 if at_ms < MIDNIGHT + 6 * HOUR else 300_000)
    assert made.partitions == 16


def test_up_to_four_times_too_many_partitions_stay() -> None:
    assert Day(partitions=32).run(lambda _: 75_000) == []
    (made,) = Day(partitions=64).run(lambda _: 75_000)
    assert (made.before, made.partitions) == (64, 8)


@pytest.mark.parametrize(("least", "most", "changes"), [(30_000, 120_000, 2), (5_000, 500_000, 6)])
def test_a_load_that_swings_over_the_day_does_not_flap(least: int, most: int, changes: int) -> None:
    """From one extreme to the other and back: few changes, up in the morning and down at night."""
    day = Day(partitions=8)
    made = day.run(swing(least, most), days=3)
    assert 0 < len(made) <= 3 * changes
    for one, other in pairwise(made):
        assert other.at_ms - one.at_ms >= HOUR
        # Never back and forth within some hours.
        if (one.partitions > one.before) != (other.partitions > other.before):
            assert other.at_ms - one.at_ms >= 4 * HOUR
    assert all(4 <= each.partitions <= 64 for each in made)


def test_a_load_that_swings_within_the_hour_keeps_the_larger_number() -> None:
    """From one to twenty partitions' rows and back, each forty minutes: sized for most of it, and left so."""
    made = Day(partitions=32).run(swing(10_000, 200_000, 40 * MINUTE))
    assert made == []


def test_a_query_without_state_or_rows_or_with_few_batches_decides_nothing() -> None:
    policy = ScalePolicy(autoscale(4, 64, after="1ms"), None)
    stateless = replace(batch(MIDNIGHT, 500_000, 8), operators=())
    assert policy.decide(stateless) is None
    assert policy.decide(batch(MIDNIGHT + MINUTE, 0, 8)) is None
    assert policy.decide(batch(MIDNIGHT + 2 * MINUTE, 500_000, 8)) is None


def test_bounds_are_checked() -> None:
    for wrong in ((0, 4), (8, 4), (4, 1_000_000)):
        with pytest.raises(Invalid):
            autoscale(*wrong)
    with pytest.raises(Invalid):
        autoscale(4, 8, after="soon")
    for wrong_share in (0, 1.5, True):
        with pytest.raises(Invalid):
            autoscale(4, 8, hot_share=wrong_share)


# Hot keys.

SHARES = autoscale(4, 64, after="10m", cool_down="1h", hot_share=0.1)


def watched(shares: dict[str, float], error: float = 0.0) -> tuple[SkewReport, ...]:
    heavy = tuple(HeavyKey((key,), int(share * 10_000), share) for key, share in shares.items())
    return (SkewReport("orders", ("customer",), 10_000, 10_000, heavy, error),)


def key_decisions(
    shares: Callable[[int], dict[str, float]], days: int = 1, error: float = 0.0
) -> list[tuple[int, tuple[str, ...]]]:
    """The keys that are decided on in some days of a batch a minute, with the minute."""
    policy, made = HotKeyPolicy(SHARES), []
    for minute in range(days * 24 * 60):
        report = watched(shares(minute), error)
        found = policy.decide(batch(MIDNIGHT + minute * MINUTE, 10_000, 8, skew=report))
        if found is not None:
            made.append((minute, found[1].hot))
    return made


def test_a_key_that_stays_hot_is_decided_on_once() -> None:
    assert key_decisions(lambda _: {"mallory": 0.3, "ann": 0.05}, days=3) == [(10, ('["mallory"]',))]
    # Another one, from six o'clock on.
    made = key_decisions(lambda minute: {"mallory": 0.3} | ({"bob": 0.2} if minute >= 360 else {}))
    assert made == [(10, ('["mallory"]',)), (370, ('["bob"]',))]


@pytest.mark.parametrize("seed", range(5))
def test_short_peaks_and_errors_of_samples_decide_nothing(seed: int) -> None:
    draw = random.Random(seed)
    # Five minutes of each hour; at random in a third of the batches; and no more than the error of a sample.
    assert key_decisions(lambda minute: {"mallory": 0.5 if minute % 60 < 5 else 0.01}) == []
    assert key_decisions(lambda _: {"mallory": 0.5 if draw.random() < 0.33 else 0.05}) == []
    assert key_decisions(lambda _: {"mallory": draw.uniform(0.1, 0.14)}, error=0.05) == []


def test_a_key_that_comes_and_goes_is_decided_on_when_it_was_away_for_the_cool_down() -> None:
    """Hot for twenty of forty minutes: once. Hot each noon for two hours: once a day."""
    assert len(key_decisions(lambda minute: {"mallory": 0.5 if minute % 40 < 20 else 0.0}, days=2)) == 1
    noon = key_decisions(lambda minute: {"mallory": 0.5 if 720 <= minute % 1440 < 840 else 0.0}, days=3)
    assert [minute // 1440 for minute, _ in noon] == [0, 1, 2]


def test_hot_keys_are_recorded_with_the_call_that_splits_them(tmp_path: Path) -> None:
    checkpoint = tmp_path / "ck"
    running = Running(tmp_path, SHARES, f"file://{checkpoint}")

    def run(minutes: int, shares: dict[str, float]) -> None:
        for _ in range(minutes):
            running.now_ms += MINUTE
            one = batch(running.now_ms, 10_000, 8, skew=watched(shares))
            assert not running.scaler.committed(one)

    run(30, {"mallory": 0.3})
    (made,) = decisions(running.home, "visits")
    assert (made.done, made.hot, made.before, made.partitions) == (False, ('["mallory"]',), 8, 8)
    assert "no join of the query splits these columns" in made.line
    # A supervisor that follows does not repeat it. The join splits bob already.
    note = checkpoint / "_holdfast" / "split-met.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"by": ["customer"], "hot": ['["bob"]'], "parts": 4, "side": "left"}))
    now_ms = running.now_ms
    running = Running(tmp_path, SHARES, f"file://{checkpoint}")
    running.now_ms = now_ms
    run(30, {"mallory": 0.3, "bob": 0.2})
    assert len(decisions(running.home, "visits")) == 1
    run(30, {"mallory": 0.3, "bob": 0.2, "cy": 0.1})
    made = decisions(running.home, "visits")[-1]
    assert made.hot == ('["cy"]',)
    assert f"hf.change('file://{checkpoint}').split('met', hot=['bob', 'cy'])" in made.line
    assert Operations(running.home).waiting("rescale", "visits") == []
    assert running.said == ["autoscale"]


# The request.


class Running:
    """An autoscaler of a running job whose load has grown."""

    def __init__(self, folder: Path, settings: Autoscale = BOUNDS, checkpoint: str = "file:///ck") -> None:
        self.home = StateHome(folder)
        self.said: list[str] = []
        self.now_ms = MIDNIGHT
        self.scaler = Autoscaler(
            self.home,
            "visits",
            settings,
            None,
            lambda: self.now_ms,
            lambda kind, text, **facts: self.said.append(kind),
            lambda: "ab" * 16,
        )
        self.scaler.started({"sums": checkpoint})

    def run(self, minutes: int = 75) -> bool:
        asked = False
        for _ in range(minutes):
            self.now_ms += MINUTE
            asked |= self.scaler.committed(batch(self.now_ms, 300_000, 8))
        return asked


def test_a_rescale_is_requested_and_recorded(tmp_path: Path) -> None:
    running = Running(tmp_path)
    assert running.run()
    (asked,) = Operations(running.home).waiting("rescale", "visits")
    assert decode("rescale", asked.arguments) == Rescale({"sums": 32}, {"sums": 8})
    assert running.said == ["autoscale"]
    (made,) = decisions(running.home, "visits")
    assert (made.done, made.note, made.partitions) == (True, None, 32)
    # The next supervisor knows of it, and the query rests.
    again = Running(tmp_path)
    again.now_ms = made.at_ms
    assert not again.run(59)
    assert len(decisions(again.home, "visits")) == 1


@pytest.mark.parametrize(
    ("settings", "checkpoint", "note"),
    [
        (replace(BOUNDS, dry_run=True), "file:///ck", "a dry run"),
        (BOUNDS, "hdfs://host/ck", "a checkpoint on this storage cannot be replaced"),
    ],
)
def test_what_is_not_done_is_recorded_with_its_reason(
    tmp_path: Path, settings: Autoscale, checkpoint: str, note: str
) -> None:
    running = Running(tmp_path, settings, checkpoint)
    assert not running.run()
    assert Operations(running.home).waiting("rescale", "visits") == []
    (made,) = decisions(running.home, "visits")
    assert (made.done, made.note) == (False, note)
    assert f"from 8 to 32 partitions not done ({note})" in made.line


def test_the_newest_decisions_are_kept(tmp_path: Path) -> None:
    home = StateHome(tmp_path)
    for number in range(210):
        record(home, "visits", ScaleDecision("sums", number, 8, 16, "why", done=True))
    kept = decisions(home, "visits")
    assert [kept[0].at_ms, kept[-1].at_ms, len(kept)] == [10, 209, 200]
    (home.job("visits") / "autoscale.json").write_text('{"decisions": [{"of": "a later release"}]}')
    assert decisions(home, "visits") == ()
