"""How often a job's drivers have failed and were started again, over all of its attempts.

The registry keeps the newest attempts one by one, and of those that made room how many there were of a kind.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

ATTEMPTS_KEPT: Final = 200
# So many of them keep the whole text of their failure.
DETAILS_KEPT: Final = 20

COUNTED: Final = """
SELECT cause, recovers, failed, ran, initial, count(*) AS attempts FROM attempt_kinds WHERE job = ?
GROUP BY cause, recovers, failed, ran, initial
UNION ALL SELECT cause, recovers, failed, ran, initial, attempts FROM dropped_attempts WHERE job = ?
"""
_DROP: Final = """
INSERT INTO dropped_attempts
SELECT job, cause, recovers, failed, ran, initial, count(*) FROM attempt_kinds
WHERE job = ? AND number <= ? AND number NOT IN (?, ?) GROUP BY cause, recovers, failed, ran, initial
ON CONFLICT DO UPDATE SET attempts = attempts + excluded.attempts
"""
# A recovery that lasts began with the failure of one of the two.
_BEGINNINGS: Final = """
SELECT coalesce(max(CASE WHEN first_commit_ms IS NOT NULL THEN number END), 0),
  coalesce(max(CASE WHEN recovers = 0 THEN number END), 0) FROM attempts WHERE job = ?
"""


@dataclass(frozen=True, slots=True)
class AttemptCounts:
    """The attempts of a job in numbers.

    Attributes:
        restarts: Those that followed a failed one.
        failed: Those that failed.
        failed_running: Those that failed once their queries had started.
        restored: Those after the first one whose queries had started.
        causes: Those that failed, by whose it is to mend.
    """

    restarts: int = 0
    failed: int = 0
    failed_running: int = 0
    restored: int = 0
    causes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, kinds: Iterable[Mapping[str, Any]]) -> AttemptCounts:
        """The sums over what `COUNTED` finds."""
        sums: Counter[str] = Counter()
        causes: Counter[str] = Counter()
        for kind in kinds:
            attempts, ran, failed = kind["attempts"], kind["ran"], kind["failed"]
            sums["restarts"] += attempts * kind["recovers"]
            sums["failed"] += attempts * failed
            sums["failed_running"] += attempts * failed * ran
            sums["restored"] += attempts * ran * (1 - kind["initial"])
            if kind["cause"]:
                causes[kind["cause"]] += attempts
        return cls(**sums, causes=dict(causes))


def make_room(db: sqlite3.Connection, job: str, newest: int) -> None:
    """Keep the newest attempts of a job, and the rest as numbers; a transaction is open."""
    last, beginnings = newest - ATTEMPTS_KEPT, tuple(db.execute(_BEGINNINGS, (job,)).fetchone())
    db.execute(_DROP, (job, last, *beginnings))
    db.execute(
        "DELETE FROM attempts WHERE job = ? AND number <= ? AND number NOT IN (?, ?)",
        (job, last, *beginnings),
    )
    db.execute(
        "UPDATE attempts SET failure = json_set(failure, '$.detail', '')"
        " WHERE job = ? AND number <= ? AND json_extract(failure, '$.detail') != ''",
        (job, newest - DETAILS_KEPT),
    )
