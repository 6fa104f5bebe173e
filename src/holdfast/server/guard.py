"""Who may ask, from where, how much, and for how long: the first thing that every request meets."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.server.answers import Json, refusal, wants_page
from holdfast.server.settings import ServerSettings, is_loopback, session_value

COOKIE: Final = "holdfast_session"
LARGEST_BODY: Final = 1 << 20
BODY_S: Final = 20.0
ANSWER_S: Final = 60.0
_DEFAULTS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
)
_READS: Final = ("GET", "HEAD", "OPTIONS")
# What a person needs in order to log in, and what a probe of a load balancer asks for.
_OPEN_PATHS: Final = ("/login", "/health")
_OPEN_FOLDERS: Final = ("/static/",)


class Guard:
    """Lets a request through, or refuses it with a structured answer.

    A browser is made to ask a server by any page that it shows. So without a token only names of this machine
    are answered to, which a page elsewhere cannot have, however its name is resolved; and what changes
    something is refused where the browser says that another site asks.

    Args:
        app: What answers.
        settings: Who may ask.
        body_s: How long a body may take to come.
        answer_s: How long an answer may take to begin.
    """

    def __init__(
        self, app: ASGIApp, settings: ServerSettings, *, body_s: float = BODY_S, answer_s: float = ANSWER_S
    ) -> None:
        self._app = app
        self._settings = settings
        self._body_s = body_s
        self._answer_s = answer_s
        self._token = None if settings.token is None else settings.token.encode()
        self._session = None if settings.token is None else session_value(settings.token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        refused = self._refused(scope, headers)
        if refused is not None:
            await refused(scope, receive, send)
            return
        await self._bounded(scope, receive, send)

    def _refused(self, scope: Scope, headers: dict[str, str]) -> Response | None:
        path, method = str(scope["path"]), str(scope["method"])
        if not self._known_host(headers):
            return refusal(
                path, 403, "forbidden", "this server is not known by that name", "ask it as 127.0.0.1"
            )
        if method not in _READS and self._other_site(headers):
            return refusal(path, 403, "forbidden", "another site may not change anything here")
        if not self._open(path, method) and not self._knows_token(headers):
            return _unknown(path) if method not in _READS else _who_are_you(scope, headers)
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            return refusal(path, 400, "invalid", "the length of the body is no number")
        if int(length) > LARGEST_BODY:
            return _too_large(path)
        return None

    def _known_host(self, headers: dict[str, str]) -> bool:
        """With a token any name will do: a page elsewhere does not have it."""
        if self._token is not None:
            return True
        name = _host_name(headers.get("host", ""))
        return name == self._settings.host or is_loopback(name)

    @staticmethod
    def _other_site(headers: dict[str, str]) -> bool:
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return True
        origin = headers.get("origin")
        return origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()

    @staticmethod
    def _open(path: str, method: str) -> bool:
        reads = method in _READS
        return path in _OPEN_PATHS or (reads and path.startswith(_OPEN_FOLDERS))

    def _knows_token(self, headers: dict[str, str]) -> bool:
        if self._token is None or self._session is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return hmac.compare_digest(given.strip().encode(), self._token)
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return morsel is not None and hmac.compare_digest(morsel.value.encode(), self._session.encode())

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer within the bounds of size and time; what has begun to be sent is not interrupted."""
        path = str(scope["path"])
        try:
            body = await asyncio.wait_for(_body(receive), self._body_s)
        except (asyncio.TimeoutError, TimeoutError):
            await refusal(path, 408, "invalid", "the body did not come in time")(scope, receive, send)
            return
        if body is None:
            await _too_large(path)(scope, receive, send)
            return
        begun = asyncio.Event()
        given = False

        async def take() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def give(message: Message) -> None:
            begun.set()
            if message["type"] == "http.response.start":
                message = {**message, "headers": _with_defaults(message.get("headers", ()))}
            await send(message)

        answering = asyncio.ensure_future(_run(self._app, scope, take, give))
        try:
            await _begins(answering, begun, self._answer_s)
            if begun.is_set() or answering.done():
                await answering
            else:
                slow = refusal(path, 503, "unavailable", "the answer took too long", "try again")
                await slow(scope, receive, send)
        finally:
            answering.cancel()


async def _run(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


async def _body(receive: Receive) -> bytes | None:
    """The whole body, or None if it is too large; a caller who has gone has sent what he has sent."""
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > LARGEST_BODY:
            return None
        parts.append(part)
        more = message["type"] == "http.request" and message.get("more_body", False)
    return b"".join(parts)


async def _begins(answering: asyncio.Task[None], begun: asyncio.Event, seconds: float) -> None:
    waiting = asyncio.ensure_future(begun.wait())
    try:
        await asyncio.wait({answering, waiting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


def _with_defaults(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """What every answer says of itself, unless it says otherwise."""
    given = list(headers)
    names = {name.lower() for name, _ in given}
    return [*given, *((name, value) for name, value in _DEFAULTS if name not in names)]


def _who_are_you(scope: Scope, headers: dict[str, str]) -> Response:
    """A person is led to where he can log in; everybody else is told what is missing."""
    path, query = str(scope["path"]), scope["query_string"].decode("latin-1")
    if wants_page(path, headers):
        following = quote(f"{path}?{query}" if query else path, safe="/")
        return RedirectResponse(f"/login?next={following}", 303)
    return _unknown(path)


def _unknown(path: str) -> Json:
    answer = refusal(
        path,
        401,
        "unauthorized",
        "a token is needed",
        "send it as `Authorization: Bearer TOKEN`, or log in at /login",
    )
    answer.headers["www-authenticate"] = 'Bearer realm="holdfast"'
    return answer


def _too_large(path: str) -> Json:
    return refusal(path, 413, "invalid", f"the body is larger than {LARGEST_BODY} bytes")


def _host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
