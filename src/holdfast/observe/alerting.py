"""The evaluation of alert rules, and the database of open alerts and their events.

The alert database is one SQLite file in the state home, next to the registry. If the file is lost, counters
start from zero and open alerts are sent again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast.json_shapes import JsonShape, in_json, json_as, json_spread
from holdfast.observe.job_metrics import Key as TotalKey
from holdfast.observe.metrics import MetricSample, packed, unpacked
from holdfast.observe.rules import BY_RULE, RULES, AlertRule
from holdfast.plain_values import from_known
from holdfast.storage.shared_database import DatabaseShape, SharedDatabase

PENDING: Final = "pending"
FIRING: Final = "firing"
CLEARED: Final = "cleared"

THRESHOLD: Final = "holdfast_alert_threshold"

# A rule, and the values of its labels.
Key = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Alert(JsonShape):
    """A pending or firing alert.

    Attributes:
        rule: The rule's name.
        labels: The values of the rule's labels, in order; the first is the job.
        phase: `pending`, then `firing` once the condition has held for long enough.
        since_ms: The time when the condition was first true.
        right_ms: The time when the condition was first false again; None while it is true.
        value: The newest value that violated the threshold.
        threshold: The threshold.

    Example:
        from pathlib import Path

        checkpoint = Path("checkpoints/drinks").absolute()
        query = events.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        with hf.watch(query, name="drinks") as watch:
            query.processAllAvailable()
            query.stop()
            alerts: tuple[hf.Alert, ...] = watch.alerts()
        for alert in alerts:
            print(alert.severity, alert.text, alert.advice)
    """

    rule: str
    labels: tuple[str, ...]
    phase: str
    since_ms: int
    right_ms: int | None
    value: float
    threshold: float

    @property
    def key(self) -> Key:
        """Return the identity of the alert."""
        return self.rule, self.labels

    @property
    def firing(self) -> bool:
        """Return whether the alert is firing: the condition has been true for long enough."""
        return self.phase == FIRING

    @property
    def job(self) -> str:
        """The job's name."""
        return self.labels[0]

    @property
    @in_json
    def named(self) -> dict[str, str]:
        """Return the labels by name."""
        return dict(zip(BY_RULE[self.rule].by, self.labels, strict=True))

    @property
    @in_json
    def text(self) -> str:
        """Return the text of the alert."""
        return BY_RULE[self.rule].text(self.named, self.value, self.threshold)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Alert:
        """Build an alert from the result of `as_dict`, or from its JSON."""
        return from_known(cls, fields)

    @property
    @in_json
    def severity(self) -> str:
        """The severity: `warning` or `critical`."""
        return BY_RULE[self.rule].severity

    @property
    @in_json
    def unit(self) -> str:
        """The unit of value and threshold."""
        return BY_RULE[self.rule].unit

    @property
    @in_json
    def advice(self) -> str:
        """The first action to take."""
        return BY_RULE[self.rule].advice


@dataclass(frozen=True, slots=True)
class AlertEvent(JsonShape):
    """The start or the end of an alert.

    Attributes:
        kind: `firing` or `cleared`.
        at_ms: The time of the evaluation.
        alert: The alert.

    Example:
        from pathlib import Path


        def page(event: hf.AlertEvent) -> None:
            print(event.kind, event.text)


        checkpoint = Path("checkpoints/drinks").absolute()
        query = events.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        with hf.watch(query, name="drinks", on_alert=page):
            query.processAllAvailable()
            query.stop()
    """

    kind: str = field(metadata=json_as("event"))
    at_ms: int
    alert: Alert

    @property
    def text(self) -> str:
        """Return the text of the event."""
        return self.alert.text if self.kind == FIRING else f"ended: {self.alert.text}"

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> AlertEvent:
        """Build an event from the result of `as_dict`, or from its JSON."""
        return cls(fields["event"], fields["at_ms"], Alert.from_dict(fields["alert"]))


def evaluate(
    samples: Iterable[MetricSample],
    standing: Mapping[Key, Alert],
    now_ms: int,
    rules: Sequence[AlertRule] = RULES,
) -> tuple[dict[Key, Alert], tuple[AlertEvent, ...]]:
    """Evaluate the alert rules over samples.

    An alert fires once its condition has been true at each evaluation for the rule's `for_ms`, and ends once
    the condition has been false at each evaluation for `keep_ms`; a missing value makes the condition false.
    Unchanged alerts cause no event. Prometheus does the same with `for` and `keep_firing_for`.

    Args:
        samples: The samples of one or several jobs, with their thresholds.
        standing: The open alerts of the last evaluation.
        now_ms: The current time in epoch milliseconds.
        rules: The rules.

    Returns:
        The open alerts, and the new events.
    """
    listed = list(samples)
    thresholds = {number.labels: number.value for number in listed if number.metric == THRESHOLD}
    now: dict[Key, Alert] = {}
    events: list[AlertEvent] = []
    for rule in rules:
        values = rule.values(listed)
        known = [labels for name, labels in standing if name == rule.name]
        for labels in dict.fromkeys((*values, *known)):
            key = (rule.name, labels)
            threshold = thresholds.get((labels[0], rule.name))
            alert, kind = _next(rule, key, standing.get(key), now_ms, values.get(labels), threshold)
            if alert is not None and kind is not None:
                events.append(AlertEvent(kind, now_ms, alert))
            if alert is not None and kind != CLEARED:
                now[key] = alert
    return now, tuple(events)


def _next(
    rule: AlertRule, key: Key, before: Alert | None, now_ms: int, value: float | None, threshold: float | None
) -> tuple[Alert | None, str | None]:
    """Return an alert after an evaluation, and its event; a rule without a threshold is off."""
    if value is not None and threshold is not None and rule.breached(value, threshold):
        if before is None:
            before = Alert(*key, PENDING, now_ms, None, value, threshold)
        alert = replace(before, right_ms=None, value=value, threshold=threshold)
        if alert.phase == PENDING and now_ms - alert.since_ms >= rule.for_ms:
            return replace(alert, phase=FIRING), FIRING
        return alert, None
    if before is None or before.phase == PENDING:
        return None, None
    right_ms = now_ms if before.right_ms is None else before.right_ms
    over = threshold is None or now_ms - right_ms >= rule.keep_ms
    return replace(before, right_ms=right_ms), CLEARED if over else None


def ended(standing: Mapping[Key, Alert], now_ms: int, stays: Iterable[str] = ()) -> tuple[AlertEvent, ...]:
    """Return the events that end all firing alerts, except alerts of the rules in `stays`."""
    kept = set(stays)
    over = (alert for alert in standing.values() if alert.firing and alert.rule not in kept)
    return tuple(AlertEvent(CLEARED, now_ms, replace(alert, right_ms=now_ms)) for alert in over)


FILE: Final = "watching.db"
EVENTS_KEPT: Final = 1000

# The delivery states of an event.
WAITING, TOLD, GIVEN_UP = 0, 1, 2

_DIARY: Final = DatabaseShape(
    "the alert database",
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
    "move the file away; jobs and checkpoints do not need it, and a new one is created",
    # The data is not synced to disk, whose bandwidth the checkpoint of the job needs.
    lasting=False,
)


@dataclass(frozen=True, slots=True)
class NotedEvent(JsonShape):
    """An event with its ID in the alert database; IDs increase with time.

    Attributes:
        id: The ID of the event.
        event: The event.
    """

    id: int
    event: AlertEvent = field(metadata=json_spread())


class AlertStore:
    """The alert database of one state home, which is cheap to open and safe to share between processes.

    Only the process that watches a job writes the job's entries. A missing database is read as empty.

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
        samples: Iterable[MetricSample],
        totals: Mapping[TotalKey, float],
        standing: Mapping[Key, Alert],
        events: Iterable[AlertEvent] = (),
        told: int = TOLD,
    ) -> None:
        """Store the state of a job in one transaction.

        Args:
            job: The job's name.
            at_ms: The current time in epoch milliseconds.
            samples: The job's samples, which replace the earlier ones.
            totals: The job's counters.
            standing: The job's open alerts.
            events: The new events of the job's alerts.
            told: The delivery status of the events: `WAITING` for events that must still be sent.
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

    def numbers(self) -> dict[str, tuple[int, tuple[MetricSample, ...]]]:
        """Return each job's newest samples with their time."""
        rows = self._file.read("SELECT job, at_ms, samples FROM numbers ORDER BY job")
        return {row["job"]: (row["at_ms"], unpacked(json.loads(row["samples"]))) for row in rows}

    def totals(self, job: str) -> dict[TotalKey, float]:
        """Return a job's counters."""
        rows = self._file.read("SELECT metric, labels, value FROM totals WHERE job = ?", job)
        return {(row["metric"], tuple(json.loads(row["labels"]))): row["value"] for row in rows}

    def standing(self, job: str | None = None) -> dict[Key, Alert]:
        """Return the open alerts of one job or of all jobs, except alerts of rules that no longer exist."""
        query = "SELECT body FROM standing WHERE job = coalesce(?, job) ORDER BY job, rule, labels"
        bodies = (json.loads(row["body"]) for row in self._file.read(query, job))
        alerts = (Alert.from_dict(body) for body in bodies if body["rule"] in BY_RULE)
        return {alert.key: alert for alert in alerts}

    def events(self, job: str | None = None, last: int = EVENTS_KEPT) -> list[NotedEvent]:
        """Return the events of alerts of one job or of all jobs, oldest first."""
        query = "SELECT id, body FROM events WHERE job = coalesce(?, job) ORDER BY id DESC LIMIT ?"
        return list(reversed(_events(self._file.read(query, job, last))))

    def waiting(self, job: str, since_ms: int) -> list[NotedEvent]:
        """Return the unsent events of a job since a given time, oldest first."""
        query = "SELECT id, body FROM events WHERE job = ? AND told = ? AND at_ms >= ? ORDER BY id"
        return _events(self._file.read(query, job, WAITING, since_ms))

    def settle(self, event_id: int, told: int) -> None:
        """Record that an event was sent, or that its delivery was abandoned."""
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
