"""Access control of every request: identity, origin, rate, and sessions."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import math
import os
import secrets
import tempfile
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import Invalid
from holdfast.server.access.local_peer import PEER, LocalPeer, can_tell
from holdfast.server.answers import Json, refusal, wants_page
from holdfast.server.server_settings import ServerSettings, ip_address, is_loopback, token_from
from holdfast.storage.port import until

FREE_GUESSES: Final = 5
LONGEST_WAIT_S: Final = 60.0
# After this number of wrong guesses from all addresses within this time, no address has free guesses.
MOST_GUESSES: Final = 100
WINDOW_S: Final = 60.0
# An address without wrong guesses for this time starts from zero.
_FORGET_S: Final = 900.0
_MOST_PEERS: Final = 4096
_REPEATS_KNOWN: Final = 8


@dataclass(frozen=True, slots=True)
class GuessVerdict:
    """The verdict on a token that a client sent.

    Attributes:
        right: Whether the token is correct.
        wait_s: The time during which tokens from this address are rejected unchecked, in seconds; 0 if the
            token was checked.
    """

    right: bool
    wait_s: float = 0.0


@dataclass(slots=True)
class _Peer:
    wrong: int = 0
    last: float = 0.0
    until: float = 0.0
    recent: deque[bytes] = field(default_factory=lambda: deque(maxlen=_REPEATS_KNOWN))


class GuessLimit:
    """A checker of clients' tokens that limits the rate of wrong ones.

    An address with too many wrong tokens is rejected for a while, even with the right one; other addresses
    are not affected. Repetitions of the same wrong token do not count, so that a script with an old token
    does not lock out other clients of its network. Not thread-safe: use it only from the event loop.

    Args:
        token: The correct token.
        clock: The function that returns seconds on a monotonic clock.
    """

    def __init__(self, token: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._token = self._digest(token)
        self._peers: OrderedDict[str, _Peer] = OrderedDict()
        self._wrong: deque[float] = deque(maxlen=MOST_GUESSES)

    def judge(self, address: str, guess: str) -> GuessVerdict:
        """Check a token that a client at an address sent."""
        now = self._clock()
        name = _network(address)
        peer = self._peers.get(name)
        if peer is not None and now - peer.last > _FORGET_S:
            del self._peers[name]
            peer = None
        digest = self._digest(guess)
        if peer is not None:
            if any(hmac.compare_digest(digest, known) for known in peer.recent):
                return GuessVerdict(right=False)
            if now < peer.until:
                return GuessVerdict(right=False, wait_s=peer.until - now)
        if hmac.compare_digest(digest, self._token):
            return GuessVerdict(right=True)
        self._note(name, digest, now)
        return GuessVerdict(right=False)

    def _note(self, name: str, digest: bytes, now: float) -> None:
        many = len(self._wrong) == MOST_GUESSES and now - self._wrong[0] < WINDOW_S
        self._wrong.append(now)
        peer = self._peers.setdefault(name, _Peer())
        self._peers.move_to_end(name)
        while len(self._peers) > _MOST_PEERS:
            self._peers.popitem(last=False)
        peer.wrong += 1
        peer.last = now
        peer.recent.append(digest)
        counted = peer.wrong if many else peer.wrong - FREE_GUESSES
        if counted > 0:
            peer.until = now + min(LONGEST_WAIT_S, 2.0 ** min(counted - 1, 10))

    def _digest(self, text: str) -> bytes:
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()


def _network(address: str) -> str:
    """Return the network by which wrong tokens are counted, because an IPv6 client has 2⁶⁴ addresses."""
    known = ip_address(address.partition("%")[0])
    if isinstance(known, ipaddress.IPv6Address):
        return str(known.ipv4_mapped or ipaddress.ip_network((known, 64), strict=False))
    return address if known is None else str(known)


FILE: Final = "server-token"


def secured(settings: ServerSettings, home: Path) -> ServerSettings:
    """Return the settings, with the state home's token added if nothing else excludes other users.

    Raises:
        Invalid: The token's file belongs to a different user.
    """
    if settings.token is not None or can_tell():
        return settings
    return replace(settings, token=home_token(home), login_code=secrets.token_urlsafe(32))


def home_token(home: Path) -> str:
    """Return the token that a state home keeps in a file; created on first use.

    Raises:
        Invalid: The file belongs to a different user, or has no token.
        NotFound: The file cannot be read.
    """
    path = home / FILE
    if not path.exists():
        # Accessible only to the owner, regardless of the umask.
        with tempfile.NamedTemporaryFile("w", dir=home, prefix=f".{FILE}-", encoding="ascii") as fresh:
            fresh.write(f"{secrets.token_urlsafe(32)}\n")
            fresh.flush()
            os.fsync(fresh.fileno())
            # A link and not a rename: of two concurrent processes, one creates the file, and both read it.
            with suppress(FileExistsError):
                path.hardlink_to(fresh.name)
    if path.stat().st_uid != os.geteuid():
        raise Invalid(
            "the token file in the state home belongs to a different user",
            code="HF-E2260",
            where=str(path),
            expected="a file owned by this user",
            hint="remove the file, or start the server with --token-file",
        )
    path.chmod(0o600)
    token = token_from(None, path, None)
    assert token is not None  # noqa: S101 - a file returns a token or raises an error
    return token


KEPT_S: Final = 12 * 3600
MOST: Final = 1000


class Sessions:
    """The browser sessions of one server, which end with the server.

    A session is bound to its user: a browser sends its cookie to every port of a host, so a page of a
    different user on this machine receives it too. The server keeps only digests, so its memory contains no
    usable secret. Not thread-safe: use it only from the event loop.

    Args:
        login_code: The code that opens a session and is valid once; None for no code.
        clock: The function that returns seconds on a monotonic clock.
    """

    def __init__(self, login_code: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._login_code = None if login_code is None else _digest(login_code)
        self._open: OrderedDict[bytes, _Session] = OrderedDict()

    def open(self, user: int | None = None) -> str:
        """Open a session and return its secret value. If there are too many sessions, the oldest one ends.

        Args:
            user: The local user who opens the session; None for a remote client, or if the kernel does not
                report the user.
        """
        value = secrets.token_urlsafe(32)
        self._open[_digest(value)] = _Session(user, self._clock() + KEPT_S)
        while len(self._open) > MOST:
            self._open.popitem(last=False)
        return value

    def knows(self, value: str, user: int | None = None) -> bool:
        """Return whether a value belongs to an open session of this user."""
        digest = _digest(value)
        session = self._open.get(digest)
        if session is not None and session.until <= self._clock():
            del self._open[digest]
            return False
        return session is not None and session.user == user

    def end(self, value: str) -> None:
        """End a session."""
        self._open.pop(_digest(value), None)

    def redeem(self, code: str) -> bool:
        """Return whether a code is the login code, and invalidate the login code if it is."""
        if self._login_code is None or not secrets.compare_digest(_digest(code), self._login_code):
            return False
        self._login_code = None
        return True


@dataclass(frozen=True, slots=True)
class _Session:
    user: int | None
    until: float


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()


COOKIE: Final = "holdfast_session"
LARGEST_BODY: Final = 1 << 20
_LONGEST_LENGTH: Final = len(str(LARGEST_BODY))
BODY_S: Final = 20.0
ANSWER_S: Final = 60.0
# The default headers of every answer.
_DEFAULTS: Final = (
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
)
_READS: Final = ("GET", "HEAD", "OPTIONS")
# The public paths: those needed to log in, and the probe of a load balancer.
_OPEN_PATHS: Final = ("/login", "/login/once", "/health")
_OPEN_FOLDERS: Final = ("/static/",)


@dataclass(frozen=True, slots=True)
class AccessGuard:
    """ASGI middleware that forwards allowed requests and refuses others with a structured answer.

    Any web page can make a browser send requests to a server. Without a token, the server therefore accepts
    only names of this machine as host, which a foreign page cannot have, and refuses changes if the browser
    reports a different site as their origin. Without a token, the server also answers only its own user and
    root. A request without a connection comes from this process.

    Attributes:
        app: The protected application.
        settings: The access settings.
        sessions: The open sessions.
        limit: The limit for wrong tokens; None without a token.
        body_s: The time limit for receiving a body, in seconds.
        answer_s: The time limit for beginning an answer, in seconds.
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
            fact = "unknown host name"
            return refusal(path, 403, "forbidden", fact, "use 127.0.0.1 in the address")
        if method not in _READS and self._other_site(headers):
            return refusal(path, 403, "forbidden", "cross-site requests may not change anything")
        if not self._open(path, method):
            refused = self._not_allowed(scope, headers)
            if refused is not None:
                return refused
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            return refusal(path, 400, "invalid", "the Content-Length header is not a number")
        # Checked by the number of digits first, because Python refuses to parse a number with thousands of
        # digits.
        if len(length.lstrip("0")) > _LONGEST_LENGTH or int(length) > LARGEST_BODY:
            return _too_large(path)
        return None

    def _not_allowed(self, scope: Scope, headers: dict[str, str]) -> Response | None:
        """Return the refusal of a request without access; None if access is allowed."""
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
        """Return whether a host name is accepted; with a token, every name is."""
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
        except ValueError:  # not an address, so not of this machine
            return True

    @staticmethod
    def _open(path: str, method: str) -> bool:
        reads = method in _READS
        return path in _OPEN_PATHS or (reads and path.startswith(_OPEN_FOLDERS))

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request within the limits of size and time; do not interrupt an answer that has begun."""
        path = str(scope["path"])
        try:
            body = await asyncio.wait_for(_body(receive), self.body_s)
        except (asyncio.TimeoutError, TimeoutError):
            await refusal(path, 408, "invalid", "the request body was not received in time")(
                scope, receive, send
            )
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

        # A thread cannot be ended from outside, so long reads check this flag periodically.
        given_up = threading.Event()
        answering = asyncio.ensure_future(_run(self.app, scope, take, give, given_up))
        try:
            await _begins(answering, begun, self.answer_s)
            if begun.is_set() or answering.done():
                await answering
            else:
                slow = refusal(path, 503, "unavailable", "the request timed out", "try again")
                await slow(scope, receive, send)
        finally:
            given_up.set()
            answering.cancel()


def cookie_name(scope: Scope) -> str:
    """Return the name of the session cookie, which contains the port."""
    server = scope.get("server") or (None, None)
    return COOKIE if server[1] is None else f"{COOKIE}_{server[1]}"


def session_of(scope: Scope) -> str:
    """Return the session value in a request's cookie; empty without one."""
    return HTTPConnection(scope).cookies.get(cookie_name(scope), "")


def peer_address(scope: Scope) -> str:
    """Return the address of a request's client."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def guesser(scope: Scope) -> str:
    """Return the identity by which wrong tokens are counted: the address, or for a local client the user."""
    address = peer_address(scope)
    peer = _peer(scope)
    return address if peer is None or not is_loopback(address) else f"user {peer.uid} of {address}"


def local_user(scope: Scope) -> int | None:
    """Return the local user who sent a request; None for a remote client or if unknown."""
    peer = _peer(scope)
    return peer.uid if peer is not None and is_loopback(peer_address(scope)) else None


def too_often(path: str, wait_s: float) -> Json:
    """Return the answer to a client with too many wrong tokens."""
    wait = math.ceil(wait_s)
    fact = "too many wrong tokens from this address"
    return refusal(path, 429, "unauthorized", fact, f"try again in {wait} s", {"retry-after": str(wait)})


def _peer(scope: Scope) -> LocalPeer | None:
    return (scope.get("state") or {}).get(PEER)


def _same_user(scope: Scope) -> bool:
    peer = _peer(scope)
    if peer is not None:
        return peer.trusted
    # A network connection whose peer was not looked up may be of any user.
    return ip_address(peer_address(scope).partition("%")[0]) is None


def _another_user(path: str) -> Json:
    fact = "this server has no token and answers only the user who started it"
    hint = "use that user's account, or start the server with --token-file"
    return refusal(path, 403, "forbidden", fact, hint, {"connection": "close"})


async def _run(app: ASGIApp, scope: Scope, receive: Receive, send: Send, given_up: threading.Event) -> None:
    with until(given_up):
        await app(scope, receive, send)


async def _body(receive: Receive) -> bytes | None:
    """Return the whole body, or None if it is too large."""
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
    """Redirect a browser to the login page, and answer other clients with 401."""
    path, query = str(scope["path"]), scope["query_string"].decode("latin-1")
    if wants_page(path, headers):
        following = quote(f"{path}?{query}" if query else path, safe="/")
        return RedirectResponse(f"/login?next={following}", 303)
    return _unknown(path)


def _unknown(path: str) -> Json:
    hint = "send `Authorization: Bearer TOKEN`, or log in at /login"
    headers = {"www-authenticate": 'Bearer realm="holdfast"'}
    return refusal(path, 401, "unauthorized", "a token is required", hint, headers)


def _too_large(path: str) -> Json:
    return refusal(path, 413, "invalid", f"the request body is larger than {LARGEST_BODY} bytes")


def _host_name(host: str) -> str:
    """Return the name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
