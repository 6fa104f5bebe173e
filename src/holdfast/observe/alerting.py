"""What stands wrong and since when: from numbers and what stood before to what is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.json_shapes import JsonShape, in_json, json_as
from holdfast.observe.metrics import Sample
from holdfast.observe.rules import BY_RULE, RULES, Rule
from holdfast.plain_values import from_known

PENDING: Final = "pending"
FIRING: Final = "firing"
CLEARED: Final = "cleared"

THRESHOLD: Final = "holdfast_alert_threshold"

# A rule, and the values of its labels.
Key = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Alert(JsonShape):
    """One thing that is wrong, or may be.

    Attributes:
        rule: The rule's name.
        labels: The values of the rule's labels, in their order; the job is the first.
        phase: `pending` until it has been wrong for long enough, then `firing`.
        since_ms: When it was first seen to be wrong.
        right_ms: When it was first seen to be right again; None while it is wrong.
        value: The newest value that was wrong.
        threshold: The threshold.
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
        """What makes two alerts the same."""
        return self.rule, self.labels

    @property
    def job(self) -> str:
        """The job's name."""
        return self.labels[0]

    @property
    @in_json
    def named(self) -> dict[str, str]:
        """The labels with their names."""
        return dict(zip(BY_RULE[self.rule].by, self.labels, strict=True))

    @property
    @in_json
    def text(self) -> str:
        """The alert in a sentence."""
        return BY_RULE[self.rule].text(self.named, self.value, self.threshold)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Alert:
        """What `as_dict` gave, or JSON made of it."""
        return from_known(cls, fields)

    @property
    @in_json
    def severity(self) -> str:
        """How bad it is: `warning` or `critical`."""
        return BY_RULE[self.rule].severity

    @property
    @in_json
    def unit(self) -> str:
        """The unit of value and threshold."""
        return BY_RULE[self.rule].unit

    @property
    @in_json
    def advice(self) -> str:
        """What to do first."""
        return BY_RULE[self.rule].advice


@dataclass(frozen=True, slots=True)
class AlertEvent(JsonShape):
    """An alert begins, or is over.

    Attributes:
        kind: `firing` or `cleared`.
        at_ms: When that was seen.
        alert: The alert.
    """

    kind: str = field(metadata=json_as("event"))
    at_ms: int
    alert: Alert

    @property
    def text(self) -> str:
        """In a sentence."""
        return self.alert.text if self.kind == FIRING else f"over: {self.alert.text}"

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> AlertEvent:
        """What `as_dict` gave, or JSON made of it."""
        return cls(fields["event"], fields["at_ms"], Alert.from_dict(fields["alert"]))


def evaluate(
    samples: Iterable[Sample],
    standing: Mapping[Key, Alert],
    now_ms: int,
    rules: Sequence[Rule] = RULES,
) -> tuple[dict[Key, Alert], tuple[AlertEvent, ...]]:
    """Hold numbers against the rules.

    An alert is told when its value has been wrong at each look for the rule's `for_ms`, and is over when it
    has been right at each look for its `keep_ms`; a number that is not there is right. What stays as it was
    is not told again. Prometheus does the same with `for` and `keep_firing_for`.

    Args:
        samples: The numbers of one job or of several, with their thresholds.
        standing: What this function gave the last time.
        now_ms: The clock.
        rules: The rules.

    Returns:
        What stands now, and what is to be told.
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
    rule: Rule, key: Key, before: Alert | None, now_ms: int, value: float | None, threshold: float | None
) -> tuple[Alert | None, str | None]:
    """An alert after this look, and what is told of it; a rule without a threshold is off."""
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
    """What is told where nobody looks any more: every firing alert is over, but for those of some rules."""
    kept = set(stays)
    over = (alert for alert in standing.values() if alert.phase == FIRING and alert.rule not in kept)
    return tuple(AlertEvent(CLEARED, now_ms, replace(alert, right_ms=now_ms)) for alert in over)
