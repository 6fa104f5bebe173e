"""What the newest batches of a query are evidence for."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.advice.checkpoint_checks import progress_findings
from holdfast.advice.rules import PROGRESS_RULES
from holdfast.model import BatchProgress, HeavyKey, OperatorProgress, SkewReport

STORE = {"updated": 1, "removed": 0, "late_rows": 0, "memory_bytes": 0, "commit_ms": 0, "partitions": 4}


def batch(
    number: int, *, rows: int = 100, ms: int = 500, operator: dict[str, Any] | None = None, **more: Any
) -> Any:
    states = (
        () if operator is None else (OperatorProgress(**{"name": "counts", "rows": 1, **STORE, **operator}),)
    )
    return BatchProgress("visits", number, number, rows, ms, None, states, **more)


def growing(last: int, **operator: Any) -> list[BatchProgress]:
    """State that begins with 1000 rows and comes to its last number in 40 equal steps."""
    return [batch(n, operator={"rows": 1000 + (last - 1000) * n // 40, **operator}) for n in range(41)]


def skewed(share: float, looked_at: int = 5000) -> list[BatchProgress]:
    heavy = (HeavyKey(("shop 1",), int(share * looked_at), share),)
    return [batch(0, skew=(SkewReport("shops", ("shop",), looked_at, looked_at, heavy, 0.01),))]


BAD = {
    "HF701": [batch(n, operator={"late_rows": 3 if n == 4 else 0}) for n in range(20)],
    "HF702": growing(2000),
    "HF703": skewed(0.5),
    "HF704": [batch(n, ms=2000, phases_ms={"walCommit": 600, "commitOffsets": 500}) for n in range(20)],
    "HF705": [batch(n, rows=0 if n % 10 else 5) for n in range(20)],
}
GOOD = {
    "HF701": [batch(n, rows=1000, operator={"late_rows": 1 if n == 4 else 0}) for n in range(20)],
    "HF702": growing(1100),
    "HF703": skewed(0.3),
    "HF704": [batch(n, ms=2000, phases_ms={"walCommit": 400, "commitOffsets": 500}) for n in range(20)],
    "HF705": [batch(n, rows=0 if n % 5 else 5) for n in range(20)],
}


def test_every_rule_has_a_pair() -> None:
    assert list(BAD) == list(GOOD) == [rule.id for rule in PROGRESS_RULES]


@pytest.mark.parametrize("rule", list(BAD))
def test_a_rule_is_found_in_its_bad_batches_alone(rule: str) -> None:
    assert [found for found, _ in progress_findings(BAD[rule])] == [rule]
    assert progress_findings(GOOD[rule]) == []


@pytest.mark.parametrize("batches", [[], [batch(0)], growing(2000)[:19]])
def test_a_few_batches_tell_nothing(batches: list[BatchProgress]) -> None:
    assert progress_findings(batches) == []


def test_state_that_loses_rows_has_an_end() -> None:
    assert progress_findings(growing(2000, removed=1)) == []


def test_state_whose_rows_are_not_counted_tells_nothing() -> None:
    assert progress_findings([batch(n, operator={"rows": None}) for n in range(40)]) == []


def test_a_share_of_few_rows_tells_nothing() -> None:
    assert progress_findings(skewed(0.9, looked_at=100)) == []


def test_commits_of_stores_count_by_partition() -> None:
    def of(commit_ms: int) -> list[BatchProgress]:
        # Four partitions, of which each takes a fourth of the time.
        operator = {"commit_ms": commit_ms}
        return [batch(n, ms=2000, phases_ms={"addBatch": 1800}, operator=operator) for n in range(20)]

    assert progress_findings(of(4000)) == [
        ("HF704", "committing the state of a partition took 55.6% of a batch, over 20 batches")
    ]
    assert progress_findings(of(3000)) == []


def test_what_was_seen_is_said_in_numbers() -> None:
    assert progress_findings(BAD["HF701"]) == [
        ("HF701", "3 rows were dropped as late, 0.1% of the input, in 1 of 20 batches")
    ]
    assert progress_findings(BAD["HF702"]) == [
        ("HF702", "counts grew from 1,000 to 2,000 rows in 41 batches with input, and lost none")
    ]
