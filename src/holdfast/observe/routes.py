"""Whom alerts are told to: any address by POST, and Alertmanager."""

from __future__ import annotations

import datetime as dt
import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from http.client import HTTPException
from typing import Any, Final

from holdfast.errors import Invalid, Unavailable
from holdfast.observe.alerting import CLEARED, Alert, AlertEvent
from holdfast.observe.rules import BY_RULE

TIMEOUT_S: Final = 5.0
# Alertmanager takes an alert for over that nobody has repeated for as long as `endsAt` says.
REPEAT_MS: Final = 60_000
_ENDS_AFTER_MS: Final = 4 * REPEAT_MS
# Answers after which another try may do better.
_AGAIN: Final = frozenset({408, 425, 429})


def post_event(address: str, event: AlertEvent) -> None:
    """Tell an address that an alert began or is over.

    What is sent is the event's JSON: `event`, `at_ms` and `alert`.

    Raises:
        Unavailable: Nobody took it now; another try may do better.
        Invalid: It was refused, and would be again.
    """
    _post(address, event.as_dict())


def post_to_alertmanager(
    address: str, firing: Iterable[Alert], over: Iterable[AlertEvent], now_ms: int
) -> None:
    """Tell an Alertmanager what is wrong, and what is over.

    Has to be repeated every `REPEAT_MS` while something is wrong: what is not repeated is over, also where
    this process has died.

    Raises:
        Unavailable: Nobody took it now; another try may do better.
        Invalid: It was refused, and would be again.
    """
    alerts = [_alertmanager(each, now_ms + _ENDS_AFTER_MS) for each in firing]
    alerts += [_alertmanager(each.alert, each.at_ms) for each in over if each.kind == CLEARED]
    if alerts:
        _post(f"{address}/api/v2/alerts", alerts)


def _alertmanager(alert: Alert, ends_ms: int) -> dict[str, Any]:
    """An alert with the labels that Prometheus's own would have, so that the two are one."""
    rule = BY_RULE[alert.rule]
    return {
        "labels": {"alertname": rule.alert, "severity": rule.severity, **alert.named},
        "annotations": {"summary": alert.text, "description": rule.advice},
        "startsAt": _moment(alert.since_ms),
        "endsAt": _moment(ends_ms),
    }


def _moment(ms: int) -> str:
    return dt.datetime.fromtimestamp(ms / 1000, dt.timezone.utc).isoformat(timespec="milliseconds")


def _post(address: str, body: dict[str, Any] | Sequence[Any]) -> None:
    request = urllib.request.Request(  # noqa: S310 - settings take nothing but http and https
        address,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "holdfast"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S):  # noqa: S310 - as above
            return
    except urllib.error.HTTPError as error:
        error.close()
        kind = Unavailable if error.code >= 500 or error.code in _AGAIN else Invalid
        raise kind("an alert was not taken", where=address, found=f"HTTP {error.code}") from error
    except (OSError, HTTPException) as error:
        raise Unavailable("an alert reached nobody", where=address, found=str(error)) from error
