"""The delivery of alerts by POST to a webhook and to Alertmanager."""

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
# Alertmanager ends an alert that is not repeated until its `endsAt`.
REPEAT_MS: Final = 60_000
_ENDS_AFTER_MS: Final = 4 * REPEAT_MS
# HTTP codes after which a retry may succeed.
_AGAIN: Final = frozenset({408, 425, 429})
# Redirects that do not turn a POST into a GET.
_KEEPS_METHOD: Final = (307, 308)


def post_event(address: str, event: AlertEvent) -> None:
    """Send the start or end of an alert to a webhook.

    The body is the event's JSON: `event`, `at_ms` and `alert`.

    Raises:
        Unavailable: The request failed; a retry may succeed.
        Invalid: The request was refused; a retry would be refused too.
    """
    _post(address, event.as_dict())


def post_to_alertmanager(
    address: str, firing: Iterable[Alert], over: Iterable[AlertEvent], now_ms: int
) -> None:
    """Send the firing and the ended alerts to an Alertmanager.

    Repeat the call every `REPEAT_MS` while an alert is firing, because Alertmanager ends an alert that is not
    repeated, for example after the death of this process.

    Raises:
        Unavailable: The request failed; a retry may succeed.
        Invalid: The request was refused; a retry would be refused too.
    """
    alerts = [_alertmanager(alert, now_ms + _ENDS_AFTER_MS) for alert in firing]
    alerts += [_alertmanager(event.alert, event.at_ms) for event in over if event.kind == CLEARED]
    if alerts:
        _post(f"{address}/api/v2/alerts", alerts)


def _alertmanager(alert: Alert, ends_ms: int) -> dict[str, Any]:
    """Return an alert for Alertmanager, with the labels that Prometheus uses, so that both are merged."""
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
    """A redirect handler that repeats the POST, and follows redirects only to the same server.

    The standard library turns a redirected POST into a GET without a body, which loses the alert. Neither the
    alert nor
    the secret of an address is sent to a different server.
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
    request = urllib.request.Request(  # noqa: S310 - settings accept only http and https
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
        # Without the cause, and only the class of an error that is not an OSError, because its text may
        # contain the address.
        reason = getattr(error, "reason", error)
        found = str(reason) if isinstance(reason, OSError) else type(error).__name__
        raise Unavailable(
            "cannot deliver an alert",
            code="HF-E5032",
            where=redacted_address(address),
            found=found,
            hint="check that this machine can reach the address; delivery is retried",
        ) from None


def _without_credentials(address: str) -> tuple[str, dict[str, str]]:
    """Split an address into one without `user:password@` and the authorization header for urllib."""
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
            hint = "see the log of the receiving server; delivery is retried"
            return Unavailable(
                "the receiver did not accept an alert",
                code="HF-E5033",
                where=where,
                found=f"HTTP {code}",
                hint=hint,
            )
        hint = "check the path and the secret of the address; the receiver must accept JSON by POST"
        return Invalid(
            "the receiver refused an alert", code="HF-E2242", where=where, found=f"HTTP {code}", hint=hint
        )
    target = None if location is None else redacted_address(urljoin(address, location))
    return Invalid(
        "an alert was not delivered, because the receiver answered with a redirect",
        code="HF-E2243",
        where=where,
        found=f"HTTP {code}" if target is None else f"HTTP {code} to {target}",
        expected="HTTP 200 to 299, or a redirect with HTTP 307 or 308 to the same server",
        hint="check the alert address: the redirect has no target"
        if target is None
        else "set the alert address to the target of the redirect",
    )
