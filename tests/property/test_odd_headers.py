"""Whatever headers somebody sends, he is answered or refused, and never by an accident."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from grid import WHOLE
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from served import Served

from holdfast.server.app import app
from holdfast.server.server_settings import ServerSettings

TOKEN: Final = "a-token-that-is-long-enough"
EXAMPLES: Final = 5000 if WHOLE else 100
PATHS: Final = (
    ("GET", "/jobs/overview"),
    ("GET", "/ui/jobs"),
    ("GET", "/api/v1/jobs/shop"),
    ("GET", "/login/once"),
    ("POST", "/api/v1/jobs/nobody/stop"),
    ("POST", "/ui/jobs/nobody/ask"),
    ("POST", "/jobs/nobody/savepoints"),
    ("POST", "/login"),
    ("POST", "/logout"),
)
NAMES: Final = (
    b"host", b"origin", b"content-length", b"content-type", b"cookie", b"authorization", b"accept", b"range",
    b"sec-fetch-site", b"if-none-match", b"referer", b"transfer-encoding", b"x-forwarded-for",
)  # fmt: skip
# What parsers of addresses, numbers and cookies stumble over.
ODD: Final = (
    b"", b"[", b"http://[", b"http://[::1", b"//]:x", b"http://h:99999999", b"9" * 5000, b"-1", b"1_0",
    b"0x1", b"\xb2", b"\xff\xfe", b'holdfast_session_8081="\\777', b"holdfast_session_8081=\xe9; =;;,",
    b"Bearer",
    b"Bearer \xff", b"Bearer " + b"x" * 5000, b"text/html", b"a=b; a=b", b"http://127.0.0.1:8081",
    b"127.0.0.1:8081", b"application/x-www-form-urlencoded", b"application/json; charset=\xff",
    b"same-origin",
)  # fmt: skip
# As h11 lets them through: no control characters but the tab.
VALUES = st.one_of(
    st.sampled_from(ODD),
    st.text(st.characters(min_codepoint=32, max_codepoint=255, blacklist_characters="\x7f"), max_size=40).map(
        lambda text: text.encode("latin-1")
    ),
)
HEADERS = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=5)
BODIES = st.sampled_from(
    [b"", b"{", b"[]", b'{"a":1}', b"token=%ff%00&next=//[", b"&" * 50, b"\xff\xfe", b"a=1" * 99]
)


async def status_of(
    made: Any, method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> int:
    """Ask as a server does that has taken a request apart."""
    status = 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers,
        "client": ("127.0.0.1", 50000), "server": ("127.0.0.1", 8081), "state": {},
    }  # fmt: skip
    await made(scope, receive, send)
    return status


@pytest.fixture(scope="module")
def applications(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """One without a token, and one with."""
    served = Served(tmp_path_factory.mktemp("odd"))
    served.job()
    return [app(served.home.path, ServerSettings(token=token)) for token in (None, TOKEN)]


@pytest.fixture(scope="module")
def thread() -> Iterator[ThreadPoolExecutor]:
    """For a loop of its own: the thread of a browser's tests has one already."""
    with ThreadPoolExecutor(1) as one:
        yield one


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(asked=st.sampled_from(PATHS), headers=HEADERS, body=BODIES, plain_host=st.booleans())
@example(asked=PATHS[4], headers=[(b"origin", b"http://[")], body=b"", plain_host=True)
@example(asked=PATHS[4], headers=[(b"content-length", b"9" * 5000)], body=b"", plain_host=True)
@example(asked=PATHS[7], headers=[], body=b"&a" * 50, plain_host=True)
def test_odd_headers_are_no_accident(
    applications: list[Any],
    thread: ThreadPoolExecutor,
    asked: tuple[str, str],
    headers: list[tuple[bytes, bytes]],
    body: bytes,
    plain_host: bool,
) -> None:
    known = [(b"host", b"127.0.0.1:8081")] if plain_host else []
    allowed = [(b"authorization", f"Bearer {TOKEN}".encode())]
    for made, shown in zip([applications[0], *applications[1:] * 2], ([], [], allowed), strict=True):
        answer = status_of(made, *asked, [*known, *shown, *headers], body)
        status = thread.submit(asyncio.run, answer).result()
        assert 200 <= status < 500
