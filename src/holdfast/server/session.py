"""Logging in with a browser: the token once, and from then on a cookie."""

from __future__ import annotations

import hmac
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from holdfast.server.answers import refusal
from holdfast.server.guard import COOKIE
from holdfast.server.settings import ServerSettings, session_value

_KEPT_S = 12 * 3600


def routes(settings: ServerSettings) -> list[Route]:
    """`POST /login` with the form field `token`, and `POST /logout`.

    Both lead back to the page that `next` names, which has to be one of this server's.
    """

    async def log_in(request: Request) -> Response:
        fields = await _form(request)
        given = fields.get("token", "")
        if settings.token is None or not hmac.compare_digest(given.encode(), settings.token.encode()):
            if "text/html" in request.headers.get("accept", ""):
                return RedirectResponse(
                    f"/login?{urlencode({'wrong': '', 'next': fields.get('next', '/')})}", 303
                )
            return refusal("/login", 401, "unauthorized", "this is not the token")
        answer = _back(fields)
        answer.set_cookie(
            COOKIE,
            session_value(settings.token),
            max_age=_KEPT_S,
            httponly=True,
            samesite="strict",
            secure=settings.tls_cert is not None,
        )
        return answer

    async def log_out(request: Request) -> Response:
        answer = _back(await _form(request))
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    return [Route("/login", log_in, methods=["POST"]), Route("/logout", log_out, methods=["POST"])]


async def _form(request: Request) -> dict[str, str]:
    text = (await request.body()).decode("utf-8", "replace")
    return {name: values[-1] for name, values in parse_qs(text, max_num_fields=20).items()}


def _back(fields: dict[str, str]) -> Response:
    """To a page of this server, and nowhere else: `//elsewhere` names a host."""
    wanted = fields.get("next", "/")
    parts = urlsplit(wanted)
    local = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and not parts.netloc
    return RedirectResponse(wanted if local and wanted.isprintable() else "/", 303)
