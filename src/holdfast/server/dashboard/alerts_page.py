"""Alerts as the pages show them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.config.job.alert_settings import Alerts
from holdfast.errors import HoldfastError
from holdfast.jobs.monitoring import metrics_snapshot
from holdfast.observe.alerting import FIRING, Alert
from holdfast.observe.rules import BY_RULE, RULES, shown_value
from holdfast.server.control_plane import ControlPlane
from holdfast.server.dashboard.views import AlertLine, AlertsView, RuleLine

_EVENTS_SHOWN: Final = 100


def alerts_view(plane: ControlPlane) -> AlertsView:
    """What stands, what has been, the newest first, and the rules with their defaults."""
    alerts = metrics_snapshot.alerts(plane.home)
    events = metrics_snapshot.alert_events(plane.home, last=_EVENTS_SHOWN)
    told = [
        _line(event.event.alert, event.event.kind, event.event.at_ms, event.event.text)
        for event in reversed(events)
    ]
    defaults = Alerts().thresholds
    rules = tuple(
        RuleLine(
            rule.name,
            rule.alert,
            rule.severity,
            rule.above,
            _round(shown_value(defaults[rule.name], rule.unit)) if rule.name in defaults else "off",
            rule.advice,
        )
        for rule in RULES
    )
    firing = sum(alert.phase == FIRING for alert in alerts)
    return AlertsView(plane.clock(), alert_lines(alerts), tuple(told), rules, firing)


def _round(threshold: str) -> str:
    """`1 min` for `1 min 0 s`: a threshold is not measured."""
    return re.sub(r" 0 (s|min|h)$", "", threshold)


def standing(plane: ControlPlane) -> Sequence[Alert]:
    """The alerts of all jobs that stand now, for pages that are about something else.

    Where they cannot be read, those pages are still worth having: the page of alerts says why.
    """
    try:
        return plane.cache.get("standing alerts", lambda: metrics_snapshot.alerts(plane.home))
    except HoldfastError:
        return ()


def alert_lines(alerts: Iterable[Alert]) -> tuple[AlertLine, ...]:
    """Those that fire first, and the worst of them first."""
    lines = [_line(alert, alert.phase, alert.since_ms, alert.text) for alert in alerts]
    return tuple(sorted(lines, key=lambda line: (line.phase != FIRING, line.severity, -line.at_ms)))


def _line(alert: Alert, phase: str, at_ms: int, text: str) -> AlertLine:
    rule = BY_RULE[alert.rule]
    return AlertLine(alert.job, alert.rule, phase, rule.severity, text, rule.advice, at_ms)
