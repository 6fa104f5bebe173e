"""Login with a browser: the token opens a session that lasts until logout."""

from __future__ import annotations

from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from holdfast.server.access.guard import (
    KEPT_S,
    GuessLimit,
    Sessions,
    cookie_name,
    guesser,
    local_user,
    session_of,
    too_often,
)
from holdfast.server.answers import form_fields, refusal
from holdfast.server.server_settings import ServerSettings

_MOST_FIELDS = 20


def routes(settings: ServerSettings, sessions: Sessions, limit: GuessLimit | None) -> list[Route]:
    """Return the routes `POST /login` with a token, `POST /logout`, and `GET /login/once` with a code.

    All redirect to the page in `next`, which must be a page of this server.
    """

    async def log_in(request: Request) -> Response:
        fields = await _form(request)
        if limit is None:
            return refusal("/login", 401, "unauthorized", "this server has no token")
        verdict = limit.judge(guesser(request.scope), fields.get("token", ""))
        if verdict.right:
            return _logged_in(request, fields)
        if "text/html" in request.headers.get("accept", ""):
            wrong = {"wait": str(int(verdict.wait_s) + 1)} if verdict.wait_s else {"wrong": ""}
            return RedirectResponse(f"/login?{urlencode({**wrong, 'next': fields.get('next', '/')})}", 303)
        if verdict.wait_s:
            return too_often("/login", verdict.wait_s)
        return refusal("/login", 401, "unauthorized", "wrong token")

    async def log_in_once(request: Request) -> Response:
        if request.method == "GET" and sessions.redeem(request.query_params.get("code", "")):
            return _logged_in(request, {})
        return RedirectResponse("/login?used", 303)

    async def log_out(request: Request) -> Response:
        fields = await _form(request)
        sessions.end(session_of(request.scope))
        answer = _back(fields)
        answer.delete_cookie(cookie_name(request.scope), httponly=True, samesite="strict")
        return answer

    def _logged_in(request: Request, fields: dict[str, str]) -> Response:
        answer = _back(fields)
        answer.set_cookie(
            cookie_name(request.scope),
            sessions.open(local_user(request.scope)),
            max_age=KEPT_S,
            httponly=True,
            samesite="strict",
            secure=settings.tls_cert is not None,
        )
        return answer

    return [
        Route("/login", log_in, methods=["POST"]),
        Route("/login/once", log_in_once, methods=["GET"]),
        Route("/logout", log_out, methods=["POST"]),
    ]


async def _form(request: Request) -> dict[str, str]:
    return {name: values[-1] for name, values in form_fields(await request.body(), _MOST_FIELDS).items()}


def _back(fields: dict[str, str]) -> Response:
    """Redirect to a page of this server; refuse addresses such as `//elsewhere`, which name a host."""
    wanted = fields.get("next", "/")
    return RedirectResponse(wanted if _is_local(wanted) else "/", 303)


def _is_local(address: str) -> bool:
    if not address.startswith("/") or address.startswith(("//", "/\\")) or not address.isprintable():
        return False
    try:
        return not urlsplit(address).netloc
    except ValueError:
        return False
