"""What a measured process that failed is quoted with."""

from __future__ import annotations

from holdfast.bench.measure import cause_in


def test_the_cause_is_told_and_not_what_came_after_it() -> None:
    raised = ["Traceback (most recent call last):", '  File "x.py", line 1', "ValueError: too many"]
    noise = [f"VersionEdit {number}" for number in range(100)]
    assert list(cause_in([*noise, *raised, *noise]))[:3] == raised
    assert len(cause_in([*raised, *noise])) == 40


def test_without_a_traceback_the_last_lines_are_told() -> None:
    lines = [f"line {number}" for number in range(100)]
    assert list(cause_in(lines)) == lines[60:]
    assert list(cause_in(["killed"])) == ["killed"]
