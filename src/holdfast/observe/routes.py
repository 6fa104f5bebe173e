"""Sends alerts to any address by POST, and to Alertmanager."""

from __future__ import annotations

import base64
import datetime as dt
import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import unquote, urljoin, urlsplit

from holdfast.config.checks import redacted_address
from holdfast.errors import HoldfastError, Invalid, Unavailable
from holdfast.observe.alerting import CLEARED, Alert, AlertEvent
from holdfast.observe.rules import BY_RULE

TIMEOUT_S: Final = 5.0
# Alertmanager takes an alert for over that nobody has repeated for as long as `endsAt` says.
REPEAT_MS: Final = 60_000
_ENDS_AFTER_MS: Final = 4 * REPEAT_MS
# Answers after which another try may do better.
_AGAIN: Final = frozenset({408, 425, 429})
# Redirects that do not turn a POST into a GET.
_KEEPS_METHOD: Final = (307, 308)


def post_event(address: str, event: AlertEvent) -> None:
    """Send an address the news that an alert began or is over.

    What is sent is the event's JSON: `event`, `at_ms` and `alert`.

    Raises:
        Unavailable: It was not taken now; another try may do better.
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
        Unavailable: It was not taken now; another try may do better.
        Invalid: It was refused, and would be again.
    """
    alerts = [_alertmanager(alert, now_ms + _ENDS_AFTER_MS) for alert in firing]
    alerts += [_alertmanager(event.alert, event.at_ms) for event in over if event.kind == CLEARED]
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


class _SameOrigin(urllib.request.HTTPRedirectHandler):
    """Follows a redirect where the same POST reaches the same server, and no other.

    The standard library turns a redirected POST into a GET without a body, and whoever answers that does not
    get the alert. To another server neither the alert nor the secret of an address is carried.
    """

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        del fp, msg, headers
        if code not in _KEEPS_METHOD or _origin(newurl) != _origin(req.full_url):
            return None
        return urllib.request.Request(  # noqa: S310 - the same scheme as that of the address
            newurl, data=req.data, headers=dict(req.header_items()), method="POST"
        )

    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302  # not in Python 3.10


_OPENER: Final = urllib.request.build_opener(_SameOrigin)


def _origin(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or default


def _post(address: str, body: dict[str, Any] | Sequence[Any]) -> None:
    plain, credentials = _without_credentials(address)
    request = urllib.request.Request(  # noqa: S310 - settings take nothing but http and https
        plain,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "holdfast", **credentials},
        method="POST",
    )
    try:
        with _OPENER.open(request, timeout=TIMEOUT_S):
            return
    except urllib.error.HTTPError as error:
        error.close()
        raise _not_taken(address, error.code, error.headers.get("Location")) from None
    except (OSError, HTTPException, ValueError) as error:
        # Without the cause, and by its kind where it is no system's error: its text may repeat the address.
        reason = getattr(error, "reason", error)
        found = str(reason) if isinstance(reason, OSError) else type(error).__name__
        raise Unavailable(
            "an alert reached nobody",
            code="HF-E5032",
            where=redacted_address(address),
            found=found,
            hint="it is tried again; check that this machine reaches the address",
        ) from None


def _without_credentials(address: str) -> tuple[str, dict[str, str]]:
    """An address without `user:password@`, and the header for these: urllib takes all of it for the host."""
    parts = urlsplit(address)
    given, at, host = parts.netloc.rpartition("@")
    if not at:
        return address, {}
    user, _, password = given.partition(":")
    both = f"{unquote(user)}:{unquote(password)}".encode()
    header = {"Authorization": f"Basic {base64.b64encode(both).decode('ascii')}"}
    return parts._replace(netloc=host).geturl(), header


def _not_taken(address: str, code: int, location: str | None) -> HoldfastError:
    where = redacted_address(address)
    if not 300 <= code < 400:
        if code >= 500 or code in _AGAIN:
            hint = "it is tried again; the log of whoever answers there says why"
            return Unavailable(
                "an alert was not taken", code="HF-E5033", where=where, found=f"HTTP {code}", hint=hint
            )
        hint = "check path and secret of the address: it takes JSON by POST"
        return Invalid(
            "an alert was not taken", code="HF-E2242", where=where, found=f"HTTP {code}", hint=hint
        )
    to = "nowhere" if location is None else redacted_address(urljoin(address, location))
    return Invalid(
        "an alert was not taken: its address leads elsewhere",
        code="HF-E2243",
        where=where,
        found=f"HTTP {code} to {to}",
        expected="an answer of 200 to 299, or HTTP 307 or 308 to the same server",
        hint="name the address that it leads to",
    )
