"""The rules in our own engine and in Prometheus's."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from promtool_files import TEST_FILE, Course, metric_labels, test_file
from required import require

from holdfast.config.alert_settings import Alerts
from holdfast.observe.alerting import FIRING, Alert, Key, evaluate
from holdfast.observe.metrics import sample
from holdfast.observe.prometheus import RULE_FILE, expression, rule_file
from holdfast.observe.rules import BY_RULE, RULES, AlertRule

test_file.__test__ = False  # type: ignore[attr-defined]


def firing(rule: AlertRule, threshold: float, values: Sequence[float | None]) -> list[bool]:
    """At which minutes our own engine has the alert."""
    standing: dict[Key, Alert] = {}
    found = []
    for minute, value in enumerate(values):
        samples = [sample("holdfast_alert_threshold", threshold, "shop", rule.name)]
        if value is not None:
            samples.append(sample(rule.metric, value, *metric_labels(rule).values()))
        standing, _ = evaluate(samples, standing, minute * 60_000)
        found.append(any(each.phase == FIRING for each in standing.values()))
    return found


def promtool(folder: Path, verb: str, name: str) -> None:
    done = subprocess.run(
        [str(require("promtool")), verb, "rules", name],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / RULE_FILE).write_text(rule_file())
    return tmp_path


# Worked out by hand: at which minutes an alert stands, for a rule that waits and lingers as named.
LARGE, SMALL = 11e9, 1e9
HAND: list[tuple[str, list[float | None], str]] = [
    # At once, and for a minute after: right since 4, over at 5.
    ("state_size", [SMALL, LARGE, LARGE, LARGE, SMALL, SMALL, SMALL], "0111100"),
    # Right for a single look does not end it.
    ("state_size", [LARGE, SMALL, LARGE, SMALL, SMALL], "11110"),
    # A number that is gone is right.
    ("state_size", [LARGE, None, None], "110"),
    # A minute of waiting; wrong for a single look is nothing.
    ("access_latency", [0.0, 0.2, 0.0, 0.2, 0.2, 0.2, 0.0, 0.0], "00001110"),
    # What lies at the threshold is right, for those above and those below.
    ("checkpoint_duration", [60.0, 60.5, 60.0, 60.0], "0110"),
    ("format_version", [2.0, 1.0, 2.0], "010"),
    # Five minutes of both.
    ("full_within", [*[3600.0] * 7, *[None] * 7], "00000111111100"),
]


@pytest.mark.parametrize(("name", "values", "expected"), HAND)
def test_an_alert_stands_as_worked_out(name: str, values: list[float | None], expected: str) -> None:
    threshold = Alerts().thresholds[name] if name != "state_size" else 10e9
    found = firing(BY_RULE[name], threshold, values)
    assert "".join("01"[each] for each in found) == expected


def test_prometheus_takes_the_rules(folder: Path) -> None:
    promtool(folder, "check", RULE_FILE)


def test_prometheus_has_alerts_at_the_minutes_worked_out(folder: Path) -> None:
    courses = [
        Course(
            BY_RULE[name],
            Alerts().thresholds[name] if name != "state_size" else 10e9,
            values,
            [each == "1" for each in expected],
        )
        for name, values, expected in HAND
    ]
    (folder / TEST_FILE).write_text(test_file(courses))
    promtool(folder, "test", TEST_FILE)


@pytest.mark.slow
def test_both_engines_have_the_same_alerts_at_the_same_minutes(folder: Path) -> None:
    thresholds = Alerts(offsets_expiring="6d").thresholds
    assert set(thresholds) == {rule.name for rule in RULES}
    courses = []
    chance = random.Random(17)
    for rule in RULES:
        right = thresholds[rule.name]
        wrong = right * 2 + 1 if rule.above else right / 2
        values: list[float | None] = [*[wrong] * 7, *[right] * 3, wrong, *[right] * 7]
        # Wrong and right for a while, and gone now and then, in many turns.
        for _ in range(12):
            values += [chance.choice((wrong, wrong, right, right, None))] * chance.randrange(1, 9)
        courses.append(Course(rule, right, values, firing(rule, right, values)))
    assert all(any(each.firing) and not all(each.firing) for each in courses)
    (folder / TEST_FILE).write_text(test_file(courses))
    promtool(folder, "test", TEST_FILE)


def test_an_expression_sums_up_what_the_rule_does_not_tell_apart() -> None:
    assert expression(BY_RULE["state_size"]) == (
        "sum by (job_name, query) (holdfast_state_bytes) > on (job_name) group_left () "
        'max by (job_name) (holdfast_alert_threshold{rule="state_size"})'
    )
    assert " < on (job_name)" in expression(BY_RULE["format_version"])
