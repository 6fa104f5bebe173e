"""Errors for people: whoever refuses a request, a browser gets a page and a terminal words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast._version import __version__
from holdfast.server.answers import OWN, Form, form_of, is_page
from holdfast.server.dashboard.pages import POLICY
from holdfast.server.dashboard.rendering import render
from holdfast.server.dashboard.words import error_words


class ErrorPages:
    """Lies around everything, access control too, and puts errors in JSON into the form that was wanted.

    What programs ask for stays as it is: what is below `/api`, what was asked for as JSON, and of Flink's
    resources and of what is sent all that no browser has asked for.

    Args:
        app: What answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = str(scope.get("path", ""))
        form = Form.JSON if scope["type"] != "http" else form_of(path, Headers(scope=scope))
        if form is Form.JSON or path.startswith(OWN) or not (form is Form.PAGE or _read(scope, path)):
            await self._app(scope, receive, send)
            return
        begun: Message | None = None
        body = b""

        async def held(message: Message) -> None:
            nonlocal begun, body
            if message["type"] == "http.response.start" and _is_error(message):
                begun = message
            elif begun is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    await _tell(scope, send, begun, body, form)

        await self._app(scope, receive, held)


def _read(scope: Scope, path: str) -> bool:
    return is_page(path) and scope["method"] in ("GET", "HEAD")


def _is_error(message: Message) -> bool:
    kind = Headers(raw=message.get("headers", [])).get("content-type", "")
    return int(message["status"]) >= 400 and kind.startswith("application/json")


async def _tell(scope: Scope, send: Send, begun: Message, body: bytes, form: Form) -> None:
    error = _error(json.loads(body or b"{}"), str(scope["path"]))
    if form is Form.PAGE:
        # Who was refused is told nothing of the server but its version.
        text = render("error.html", error=error, version=__version__, path="", has_token=False, home="")
    else:
        text = error_words(error)
    made = text.encode("utf-8", "replace")
    headers = MutableHeaders(raw=list(begun.get("headers", [])))
    headers["content-type"] = f"text/{'html' if form is Form.PAGE else 'plain'}; charset=utf-8"
    headers["content-length"] = str(len(made))
    headers.setdefault("content-security-policy", POLICY)
    await send({**begun, "headers": headers.raw})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else made})


def _error(told: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """An error of ours; what Flink would say, as one."""
    nothing = dict.fromkeys(("where", "found", "expected", "hint"))
    if "errors" not in told:
        return {"error": "something went wrong", **nothing, **told}
    text = str(told["errors"][-1])
    if text.startswith("Unable to load requested file"):
        return {**nothing, "error": "there is no such page", "where": path, "hint": "all jobs are at `/`"}
    first, _, hint = text.partition("\nhint: ")
    return {**nothing, "error": first.rpartition("Exception: ")[2], "hint": hint or None}
