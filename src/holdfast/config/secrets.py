"""What Holdfast is told in confidence: which variables hold it, and how an address is shown without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

TOKEN_VARIABLE: Final = "HOLDFAST_TOKEN"  # noqa: S105 - the name of a variable
# What no process that Holdfast starts is handed.
SECRET_VARIABLES: Final = frozenset({TOKEN_VARIABLE})
_HIDDEN: Final = "…"


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without Holdfast's own secrets, for a process that Holdfast starts."""
    return {name: value for name, value in environ.items() if name not in SECRET_VARIABLES}


def redacted_address(address: str) -> str:
    """An address of which only scheme, host and port are shown.

    Webhooks carry their secret in the path, the query or before the host, so none of these is shown.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return _HIDDEN
    if not parts.scheme or not host:
        return _HIDDEN
    name = f"[{host}]" if ":" in host else host
    shown = f"{parts.scheme}://{name}" + ("" if port is None else f":{port}")
    return shown if address.rstrip("/") == shown else f"{shown}/{_HIDDEN}"
