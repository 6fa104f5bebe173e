"""What watching has to remember over restarts: numbers, counters, alerts and what was told of them.

One SQLite file in the state home, beside the registry. Lose it, and counters begin anew and alerts that
stand are told once more.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.json_shapes import JsonShape, json_spread
from holdfast.observe.alerting import Alert, AlertEvent
from holdfast.observe.alerting import Key as AlertKey
from holdfast.observe.metrics import Sample, packed, unpacked
from holdfast.observe.rules import BY_RULE
from holdfast.observe.totals import Key as TotalKey
from holdfast.storage.shared_database import Shape, SharedDatabase

FILE: Final = "watching.db"
EVENTS_KEPT: Final = 1000

# Of an event that is to be told elsewhere.
WAITING, TOLD, GIVEN_UP = 0, 1, 2

_DIARY: Final = Shape(
    "the diary of alerts",
    1,
    (
        """
CREATE TABLE numbers (job TEXT PRIMARY KEY, at_ms INTEGER NOT NULL, samples TEXT NOT NULL)
        """,
        """
CREATE TABLE totals (
  job TEXT NOT NULL, metric TEXT NOT NULL, labels TEXT NOT NULL, value REAL NOT NULL,
  PRIMARY KEY (job, metric, labels))
        """,
        """
CREATE TABLE standing (
  job TEXT NOT NULL, rule TEXT NOT NULL, labels TEXT NOT NULL, body TEXT NOT NULL,
  PRIMARY KEY (job, rule, labels))
        """,
        """
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL, at_ms INTEGER NOT NULL, body TEXT NOT NULL,
  told INTEGER NOT NULL)
        """,
        """
CREATE INDEX events_of_job ON events (job, id)
        """,
    ),
    "move it away: jobs and checkpoints do not need it, and a new one is made",
    # Nothing here is worth waiting for the disk, which the job's own checkpoint needs.
    lasting=False,
)


@dataclass(frozen=True, slots=True)
class NotedEvent(JsonShape):
    """An event with its number in the diary, by which later ones are asked for.

    Attributes:
        id: The number.
        event: The event.
    """

    id: int
    event: AlertEvent = field(metadata=json_spread())


class AlertStore:
    """The diary of one state home; cheap to open, safe to share between processes.

    Only the one who watches a job writes of it. Reading a diary that is not there finds nothing.

    Args:
        home: The state home.
    """

    def __init__(self, home: Path) -> None:
        self.path = home / FILE
        self._file = SharedDatabase(self.path, _DIARY)

    def save(
        self,
        job: str,
        at_ms: int,
        *,
        samples: Iterable[Sample],
        totals: Mapping[TotalKey, float],
        standing: Mapping[AlertKey, Alert],
        events: Iterable[AlertEvent] = (),
        told: int = TOLD,
    ) -> None:
        """Write down how a job stands, all of it or nothing.

        Args:
            job: The job's name.
            at_ms: The clock.
            samples: Its numbers, in the place of those before.
            totals: Its counters.
            standing: Its alerts.
            events: What has happened to them.
            told: `WAITING` for events that somebody else is still to be told of.
        """
        text = json.dumps(packed(samples))
        with self._file.write() as db:
            db.execute("INSERT OR REPLACE INTO numbers VALUES (?, ?, ?)", (job, at_ms, text))
            db.executemany(
                "INSERT OR REPLACE INTO totals VALUES (?, ?, ?, ?)",
                [(job, metric, json.dumps(labels), value) for (metric, labels), value in totals.items()],
            )
            db.execute("DELETE FROM standing WHERE job = ?", (job,))
            db.executemany(
                "INSERT INTO standing VALUES (?, ?, ?, ?)",
                [
                    (job, alert.rule, json.dumps(alert.labels), json.dumps(alert.as_dict()))
                    for alert in standing.values()
                ],
            )
            _add_events(db, job, events, told)

    def numbers(self) -> dict[str, tuple[int, tuple[Sample, ...]]]:
        """Each job's newest numbers, and when they were put together."""
        rows = self._file.read("SELECT job, at_ms, samples FROM numbers ORDER BY job")
        return {row["job"]: (row["at_ms"], unpacked(json.loads(row["samples"]))) for row in rows}

    def totals(self, job: str) -> dict[TotalKey, float]:
        """A job's counters."""
        rows = self._file.read("SELECT metric, labels, value FROM totals WHERE job = ?", job)
        return {(row["metric"], tuple(json.loads(row["labels"]))): row["value"] for row in rows}

    def standing(self, job: str | None = None) -> dict[AlertKey, Alert]:
        """The alerts that stand, of one job or of all; those of rules that are no more are left out."""
        query = "SELECT body FROM standing WHERE job = coalesce(?, job) ORDER BY job, rule, labels"
        bodies = (json.loads(row["body"]) for row in self._file.read(query, job))
        alerts = (Alert.from_dict(body) for body in bodies if body["rule"] in BY_RULE)
        return {alert.key: alert for alert in alerts}

    def events(self, job: str | None = None, last: int = EVENTS_KEPT) -> list[NotedEvent]:
        """What has happened to alerts, of one job or of all, oldest first."""
        query = "SELECT id, body FROM events WHERE job = coalesce(?, job) ORDER BY id DESC LIMIT ?"
        return list(reversed(_events(self._file.read(query, job, last))))

    def waiting(self, job: str, since_ms: int) -> list[NotedEvent]:
        """The events of a job since a moment that are still to be told, oldest first."""
        query = "SELECT id, body FROM events WHERE job = ? AND told = ? AND at_ms >= ? ORDER BY id"
        return _events(self._file.read(query, job, WAITING, since_ms))

    def settle(self, event_id: int, told: int) -> None:
        """Note that an event has been told, or that this was given up."""
        with self._file.write() as db:
            db.execute("UPDATE events SET told = ? WHERE id = ?", (told, event_id))


def _add_events(db: sqlite3.Connection, job: str, events: Iterable[AlertEvent], told: int) -> None:
    rows = [(job, event.at_ms, json.dumps(event.as_dict()), told) for event in events]
    if rows:
        db.executemany("INSERT INTO events (job, at_ms, body, told) VALUES (?, ?, ?, ?)", rows)
        db.execute(
            "DELETE FROM events WHERE job = ? AND id NOT IN"
            " (SELECT id FROM events WHERE job = ? ORDER BY id DESC LIMIT ?)",
            (job, job, EVENTS_KEPT),
        )


def _events(rows: Iterable[Mapping[str, Any]]) -> list[NotedEvent]:
    bodies = ((row["id"], json.loads(row["body"])) for row in rows)
    return [
        NotedEvent(number, AlertEvent.from_dict(body))
        for number, body in bodies
        if body["alert"]["rule"] in BY_RULE
    ]
