"""Access control, which every request meets first: who asks, from where, how much, and for how long."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.server.access.guess_limit import GuessLimit
from holdfast.server.access.local_peer import PEER, LocalPeer
from holdfast.server.access.login_sessions import Sessions
from holdfast.server.answers import Json, refusal, wants_page
from holdfast.server.server_settings import ServerSettings, ip_address, is_loopback
from holdfast.storage.giving_up import until

COOKIE: Final = "holdfast_session"
LARGEST_BODY: Final = 1 << 20
_LONGEST_LENGTH: Final = len(str(LARGEST_BODY))
BODY_S: Final = 20.0
ANSWER_S: Final = 60.0
# What every answer says of itself, unless it says otherwise.
_DEFAULTS: Final = (
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
)
_READS: Final = ("GET", "HEAD", "OPTIONS")
# What a person needs in order to log in, and what a probe of a load balancer asks for.
_OPEN_PATHS: Final = ("/login", "/login/once", "/health")
_OPEN_FOLDERS: Final = ("/static/",)


@dataclass(frozen=True, slots=True)
class Guard:
    """Lets a request through, or refuses it with a structured answer.

    A browser is made to ask a server by any page that it shows. So without a token only names of this machine
    are answered to, which a page elsewhere cannot have, however its name is resolved; and what changes
    something is refused where the browser says that another site asks. Without a token the server also
    answers nobody but its own user and root. A request that came over no connection is one of this process.

    Attributes:
        app: What answers.
        settings: Who may ask.
        sessions: Who has logged in.
        limit: Who may guess at the token, and how often; None where there is no token.
        body_s: How long a body may take to come.
        answer_s: How long an answer may take to begin.
    """

    app: ASGIApp
    settings: ServerSettings
    sessions: Sessions
    limit: GuessLimit | None
    body_s: float = BODY_S
    answer_s: float = ANSWER_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
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
            fact = "this server is not known by that name"
            return refusal(path, 403, "forbidden", fact, "ask it as 127.0.0.1")
        if method not in _READS and self._other_site(headers):
            return refusal(path, 403, "forbidden", "another site may not change anything here")
        if not self._open(path, method):
            refused = self._not_allowed(scope, headers)
            if refused is not None:
                return refused
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            return refusal(path, 400, "invalid", "the length of the body is no number")
        # By its digits first: Python refuses to read a number that has thousands of them.
        if len(length.lstrip("0")) > _LONGEST_LENGTH or int(length) > LARGEST_BODY:
            return _too_large(path)
        return None

    def _not_allowed(self, scope: Scope, headers: dict[str, str]) -> Response | None:
        """A refusal for who may not ask; None for who may."""
        path, method = str(scope["path"]), str(scope["method"])
        if self.limit is None:
            return None if _same_user(scope) else _another_user(path)
        if self.sessions.knows(session_of(scope), local_user(scope)):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            verdict = self.limit.judge(guesser(scope), given.strip())
            if verdict.right:
                return None
            if verdict.wait_s:
                return too_often(path, verdict.wait_s)
        return _unknown(path) if method not in _READS else _who_are_you(scope, headers)

    def _known_host(self, headers: dict[str, str]) -> bool:
        """With a token any name will do: a page elsewhere does not have it."""
        if self.limit is not None:
            return True
        name = _host_name(headers.get("host", ""))
        return name == self.settings.host or is_loopback(name)

    @staticmethod
    def _other_site(headers: dict[str, str]) -> bool:
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return True
        origin = headers.get("origin")
        if origin is None:
            return False
        try:
            return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
        except ValueError:  # it is no address, so it is not ours
            return True

    @staticmethod
    def _open(path: str, method: str) -> bool:
        reads = method in _READS
        return path in _OPEN_PATHS or (reads and path.startswith(_OPEN_FOLDERS))

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer within the bounds of size and time; what has begun to be sent is not interrupted."""
        path = str(scope["path"])
        try:
            body = await asyncio.wait_for(_body(receive), self.body_s)
        except (asyncio.TimeoutError, TimeoutError):
            await refusal(path, 408, "invalid", "the body did not come in time")(scope, receive, send)
            return
        if body is None:
            await _too_large(path)(scope, receive, send)
            return
        begun = asyncio.Event()
        whole: Iterator[Message] = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def take() -> Message:
            return next(whole, None) or await receive()

        async def give(message: Message) -> None:
            begun.set()
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=list(message.get("headers", ())))
                for name, value in _DEFAULTS:
                    headers.setdefault(name, value)
                message = {**message, "headers": headers.raw}
            await send(message)

        # A thread cannot be ended from outside: what reads for long looks at this now and then.
        given_up = threading.Event()
        answering = asyncio.ensure_future(_run(self.app, scope, take, give, given_up))
        try:
            await _begins(answering, begun, self.answer_s)
            if begun.is_set() or answering.done():
                await answering
            else:
                slow = refusal(path, 503, "unavailable", "the answer took too long", "try again")
                await slow(scope, receive, send)
        finally:
            given_up.set()
            answering.cancel()


def cookie_name(scope: Scope) -> str:
    """The cookie of a session. A browser sends it to every port of a machine, so it is named for this one."""
    server = scope.get("server") or (None, None)
    return COOKIE if server[1] is None else f"{COOKIE}_{server[1]}"


def session_of(scope: Scope) -> str:
    """What a browser shows as its session; empty where it shows none."""
    return HTTPConnection(scope).cookies.get(cookie_name(scope), "")


def peer_address(scope: Scope) -> str:
    """Where a request comes from."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def guesser(scope: Scope) -> str:
    """Who guesses at the token: an address, and on this machine, where all have the same one, a user."""
    address = peer_address(scope)
    peer = _peer(scope)
    return address if peer is None or not is_loopback(address) else f"user {peer.uid} of {address}"


def local_user(scope: Scope) -> int | None:
    """The user of this machine who asks; None for one who comes from elsewhere, or where it is not told."""
    peer = _peer(scope)
    return peer.uid if peer is not None and is_loopback(peer_address(scope)) else None


def too_often(path: str, wait_s: float) -> Json:
    """The answer to who has guessed wrong too often."""
    wait = math.ceil(wait_s)
    fact = "too many wrong tokens came from this address"
    return refusal(path, 429, "unauthorized", fact, f"try again in {wait} s", {"retry-after": str(wait)})


def _peer(scope: Scope) -> LocalPeer | None:
    return (scope.get("state") or {}).get(PEER)


def _same_user(scope: Scope) -> bool:
    peer = _peer(scope)
    if peer is not None:
        return peer.trusted
    # Over a connection whose other end nobody has looked up, anybody may be asking.
    return ip_address(peer_address(scope).partition("%")[0]) is None


def _another_user(path: str) -> Json:
    fact = "this server has no token and answers its own user alone"
    hint = "ask as that user, or start it with --token-file to let others in"
    return refusal(path, 403, "forbidden", fact, hint, {"connection": "close"})


async def _run(app: ASGIApp, scope: Scope, receive: Receive, send: Send, given_up: threading.Event) -> None:
    with until(given_up):
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


def _who_are_you(scope: Scope, headers: dict[str, str]) -> Response:
    """A person is led to where he can log in; everybody else is told what is missing."""
    path, query = str(scope["path"]), scope["query_string"].decode("latin-1")
    if wants_page(path, headers):
        following = quote(f"{path}?{query}" if query else path, safe="/")
        return RedirectResponse(f"/login?next={following}", 303)
    return _unknown(path)


def _unknown(path: str) -> Json:
    hint = "send it as `Authorization: Bearer TOKEN`, or log in at /login"
    headers = {"www-authenticate": 'Bearer realm="holdfast"'}
    return refusal(path, 401, "unauthorized", "a token is needed", hint, headers)


def _too_large(path: str) -> Json:
    return refusal(path, 413, "invalid", f"the body is larger than {LARGEST_BODY} bytes")


def _host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
