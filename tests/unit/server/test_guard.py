from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest
from served import Served, TestClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from golden import golden
from holdfast.at_rest.state_reader import StateReader
from holdfast.checkpoints.state import rows
from holdfast.checkpoints.state.states import operator_states
from holdfast.cli.serve import notes, say_notes
from holdfast.errors import Invalid, NotFound, Unavailable
from holdfast.layout import StoreId
from holdfast.server import app as application
from holdfast.server.access.guard import (
    COOKIE,
    FREE_GUESSES,
    KEPT_S,
    LARGEST_BODY,
    LONGEST_WAIT_S,
    MOST,
    MOST_GUESSES,
    AccessGuard,
    GuessLimit,
    Sessions,
)
from holdfast.server.access.local_peer import PEER
from holdfast.server.server_settings import ServerSettings, token_from
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import until

TOKEN = "a-token-that-is-long-enough"


def served(folder: Path, *, token: str | None = None, host: str = "127.0.0.1") -> Served:
    made = Served(folder, ServerSettings(token=token, host=host))
    made.job()
    return made


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_an_address_that_others_reach_needs_a_token(host: str) -> None:
    with pytest.raises(Invalid, match="needs a token"):
        ServerSettings(host=host)
    assert ServerSettings(host=host, token=TOKEN).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_this_machine_needs_none(host: str) -> None:
    assert ServerSettings(host=host).token is None


def test_a_token_has_to_be_one(tmp_path: Path) -> None:
    for bad in ("short", "x" * 20 + "\n", "ünicode-ünicode-ünicode"):
        with pytest.raises(Invalid):
            ServerSettings(token=bad)
    file = tmp_path / "token"
    with pytest.raises(NotFound):
        token_from(None, file, None)
    file.write_text(f"{TOKEN}\n")
    assert token_from(None, file, "from-the-environment") == TOKEN
    assert token_from("given", file, None) == "given"
    assert token_from(None, None, "from-the-environment") == "from-the-environment"
    file.write_text("\n")
    with pytest.raises(Invalid, match="empty"):
        token_from(None, file, None)


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").touch()
    with pytest.raises(Invalid, match="key"):
        ServerSettings(tls_cert=tmp_path / "cert.pem")
    with pytest.raises(NotFound):
        ServerSettings(tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "key.pem")


def test_whoever_asks_whether_the_server_lives_waits_for_no_busy_thread(tmp_path: Path) -> None:
    made = application.app(tmp_path, ServerSettings())

    async def ask() -> int:
        threads = anyio.to_thread.current_default_thread_limiter()
        threads.total_tokens = 1
        async with threads:  # others keep all of them busy
            transport = httpx.ASGITransport(made, client=("testclient", 4242))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081") as client:
                with anyio.fail_after(20):
                    return (await client.get("/health")).status_code

    assert anyio.run(ask) == 200


@pytest.mark.parametrize("path", ["/jobs/overview", "/v1/jobs", "/api/v1/jobs", "/api/v1/openapi.json"])
@pytest.mark.slow
def test_without_the_token_nothing_is_told(tmp_path: Path, path: str) -> None:
    client = served(tmp_path, token=TOKEN).client()
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": TOKEN},
        {"authorization": f"Basic {TOKEN}"},
        {"cookie": f"{COOKIE}_8081={TOKEN}"},
        {"cookie": f"{COOKIE}_8081="},
    ):
        answer = client.get(path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        body = answer.json()
        assert ("errors" in body) != path.startswith("/api")
        assert TOKEN not in answer.text
    assert client.get(path, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


@pytest.mark.slow
def test_a_browser_logs_in_once(tmp_path: Path) -> None:
    client = served(tmp_path, token=TOKEN).client()
    wrong = client.post("/login", content=b"token=wrong", follow_redirects=False)
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
    right = client.post("/login", content=f"token={TOKEN}&next=/ui/jobs".encode(), follow_redirects=False)
    assert (right.status_code, right.headers["location"]) == (303, "/ui/jobs")
    cookie = right.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    assert client.get("/api/v1/jobs").status_code == 200
    client.post("/logout", follow_redirects=False)
    assert client.get("/api/v1/jobs").status_code == 401


@pytest.mark.parametrize("elsewhere", ["//evil.example", "https://evil.example", "/\\evil.example", "ui"])
def test_a_login_leads_back_to_this_server_only(tmp_path: Path, elsewhere: str) -> None:
    client = served(tmp_path, token=TOKEN).client()
    answer = client.post("/login", content=f"token={TOKEN}&next={elsewhere}".encode(), follow_redirects=False)
    assert answer.headers["location"] == "/"


def log_in(client: Any, token: str = TOKEN) -> str:
    """Log in, and give what the browser keeps."""
    answer = client.post("/login", content=f"token={token}".encode(), follow_redirects=False)
    assert answer.status_code == 303
    value: str
    [value] = [value for name, value in answer.cookies.items() if name.startswith(COOKIE)]
    return value


def test_a_logout_ends_the_session_for_whoever_has_copied_it(tmp_path: Path) -> None:
    made = served(tmp_path, token=TOKEN).client()
    first, second = log_in(made), log_in(made)
    made.cookies.clear()
    assert first != second

    def status(session: str) -> int:
        return int(made.get("/api/v1/jobs", headers={"cookie": f"{COOKIE}_8081={session}"}).status_code)

    assert (status(first), status(second)) == (200, 200)
    cookie = {"cookie": f"{COOKIE}_8081={first}"}
    left = made.post("/logout", headers=cookie, follow_redirects=False)
    assert f'{COOKIE}_8081=""' in left.headers["set-cookie"]
    assert (status(first), status(second)) == (401, 200)
    assert TOKEN not in first + second


def test_sessions_end_by_themselves_and_are_bounded() -> None:
    now = [0.0]
    sessions = Sessions(clock=lambda: now[0])
    values = [sessions.open() for _ in range(MOST + 1)]
    assert [sessions.knows(value) for value in (*values[:2], values[-1])] == [False, True, True]
    now[0] = KEPT_S
    assert not sessions.knows(values[-1])
    assert not sessions.knows("")


def test_a_session_is_for_the_user_who_has_begun_it(tmp_path: Path) -> None:
    """A browser sends its cookie to every port of 127.0.0.1, and so to a server of another user."""
    made = application.app(tmp_path, ServerSettings(token=TOKEN))

    user = User(1000)

    async def of_user(scope: Any, receive: Any, send: Any) -> None:
        await made({**scope, "state": {PEER: user}}, receive, send)

    client = TestClient(of_user, base_url="http://127.0.0.1:8081", client=("127.0.0.1", 4242))
    cookie = {"cookie": f"{COOKIE}_8081={log_in(client)}"}
    client.cookies.clear()

    def status() -> int:
        return int(client.get("/api/v1/jobs", headers=cookie).status_code)

    assert status() == 200
    user.uid = 65534
    assert status() == 401
    user.uid = 1000
    assert status() == 200
    # Nor is a session from elsewhere good for users of this machine.
    away = TestClient(of_user, base_url="http://127.0.0.1:8081", client=("192.0.2.7", 4242))
    cookie = {"cookie": f"{COOKIE}_8081={log_in(away)}"}
    assert status() == 401
    user.uid = 65534
    assert int(away.get("/api/v1/jobs", headers=cookie).status_code) == 200


def test_a_login_link_works_once(tmp_path: Path) -> None:
    made = Served(tmp_path, ServerSettings(token=TOKEN, login_code="the-code-of-the-link"))
    made.job()
    client, other = made.clients("192.0.2.1", "192.0.2.2")
    for code in ("", "wrong", "the-code-of-the-lin"):
        assert (
            client.get(f"/login/once?code={code}", follow_redirects=False).headers["location"]
            == "/login?used"
        )
    assert client.head("/login/once?code=the-code-of-the-link", follow_redirects=False).status_code == 303
    assert client.get("/api/v1/jobs").status_code == 401
    answer = client.get("/login/once?code=the-code-of-the-link", follow_redirects=False)
    assert answer.headers["location"] == "/"
    assert client.get("/api/v1/jobs").status_code == 200
    answer = other.get("/login/once?code=the-code-of-the-link", follow_redirects=False)
    assert answer.headers["location"] == "/login?used"
    assert other.get("/api/v1/jobs").status_code == 401
    assert "has already been used" in other.get("/login?used", headers={"accept": "text/html"}).text


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no time pass between guesses, however slow this machine is."""
    monkeypatch.setattr(application, "GuessLimit", partial(GuessLimit, clock=lambda: 0.0))


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize("how", ["login", "bearer"])
@pytest.mark.slow
def test_guesses_at_the_token_are_slowed_down(tmp_path: Path, how: str) -> None:
    guessing, another = served(tmp_path, token=TOKEN).clients("192.0.2.1", "192.0.2.2")

    def guess(client: Any, token: str) -> int:
        if how == "login":
            body = f"token={token}".encode()
            return int(client.post("/login", content=body, follow_redirects=False).status_code)
        return int(client.get("/jobs", headers={"authorization": f"Bearer {token}"}).status_code)

    answers = [guess(guessing, f"wrong-{number}") for number in range(FREE_GUESSES + 20)]
    # The first one too many is looked at, and costs the wait.
    assert answers == [401] * (FREE_GUESSES + 1) + [429] * 19
    # Right or wrong: else the answer would tell which.
    assert guess(guessing, TOKEN) == 429
    assert guess(another, TOKEN) == (303 if how == "login" else 200)


class User:
    """A user of this machine at the other end of a connection, as `LocalPeer` tells it."""

    trusted = False

    def __init__(self, uid: int) -> None:
        self.uid = uid


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize("how", ["login", "bearer"])
def test_guesses_of_one_user_of_this_machine_do_not_shut_out_another(tmp_path: Path, how: str) -> None:
    made = application.app(tmp_path, ServerSettings(token=TOKEN))
    user = User(65534)

    async def asked_by(scope: Any, receive: Any, send: Any) -> None:
        await made({**scope, "state": {PEER: user}}, receive, send)

    client = TestClient(asked_by, base_url="http://127.0.0.1:8081", client=("127.0.0.1", 4242))

    def guess(token: str) -> int:
        if how == "login":
            answer = client.post("/login", content=f"token={token}".encode(), follow_redirects=False)
        else:
            answer = client.get("/jobs", headers={"authorization": f"Bearer {token}"})
        client.cookies.clear()
        return int(answer.status_code)

    answers = [guess(f"wrong-{number}") for number in range(FREE_GUESSES + 2)]
    assert answers == [401] * (FREE_GUESSES + 1) + [429]
    assert guess(TOKEN) == 429
    user.uid = 1000
    assert guess(TOKEN) == (303 if how == "login" else 200)


@pytest.mark.usefixtures("still")
def test_a_page_says_how_long_to_wait(tmp_path: Path) -> None:
    [client] = served(tmp_path, token=TOKEN).clients("192.0.2.1")
    for number in range(FREE_GUESSES + 2):
        answer = client.get("/jobs", headers={"authorization": f"Bearer wrong-{number}"})
    assert 0 < int(answer.headers["retry-after"]) <= LONGEST_WAIT_S
    page = client.post("/login", content=b"token=another", headers={"accept": "text/html"})
    assert (page.status_code, "Try again in" in page.text) == (429, True)


class Limited:
    """A limit with a clock that moves when told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.limit = GuessLimit(TOKEN, lambda: self.now)

    def wrong(self, number: int, address: str = "192.0.2.1") -> float:
        verdict = self.limit.judge(address, f"wrong-{address}-{number}")
        assert not verdict.right
        return verdict.wait_s

    def right(self, address: str = "192.0.2.1") -> bool:
        return self.limit.judge(address, TOKEN).right


def test_waits_double_to_a_bound_and_are_forgotten() -> None:
    made = Limited()
    waits = []
    for number in range(FREE_GUESSES + 10):
        assert made.wrong(number) == 0
        wait = made.limit.judge("192.0.2.1", TOKEN).wait_s
        waits.append(wait)
        made.now += wait
    assert waits == [0] * FREE_GUESSES + [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert made.right()
    made.wrong(1000)
    assert not made.right()
    made.now += 1000
    assert made.right()
    assert [made.wrong(2000 + number) for number in range(FREE_GUESSES)] == [0] * FREE_GUESSES
    assert made.right()


def test_an_old_token_that_a_script_sends_for_ever_shuts_nobody_out() -> None:
    made = Limited()
    assert [made.wrong(1) for _ in range(1000)] == [0] * 1000
    assert made.right()


@pytest.mark.slow
def test_many_addresses_together_have_few_guesses_and_shut_nobody_out() -> None:
    made = Limited()
    for number in range(MOST_GUESSES):
        made.wrong(number, f"198.51.100.{number}")
    # Everybody may try once, and waits from then on.
    assert made.right("203.0.113.7")
    made.wrong(1, "203.0.113.8")
    assert not made.right("203.0.113.8")
    for number in range(10_000):
        made.wrong(number, f"2001:db8:{number:x}::1")
    assert len(made.limit._peers) <= 4096
    assert made.right("203.0.113.9")


def test_an_address_of_ipv6_is_a_whole_network() -> None:
    made = Limited()
    for number in range(FREE_GUESSES + 1):
        made.wrong(number, f"2001:db8::{number:x}")
    assert not made.right("2001:db8::ffff")
    assert made.right("2001:db8:0:1::1")
    for number in range(FREE_GUESSES + 1):
        made.wrong(number, f"{'::ffff:' if number % 2 else ''}192.0.2.9")
    assert not made.right("192.0.2.9")


@pytest.mark.slow
def test_a_page_elsewhere_cannot_ask_under_another_name(tmp_path: Path) -> None:
    client = served(tmp_path).client()
    for host in ("evil.example", "evil.example:8081", "127.0.0.1.evil.example", ""):
        assert client.get("/jobs", headers={"host": host}).status_code == 403
    for host in ("127.0.0.1:8081", "localhost", "[::1]:8081"):
        assert client.get("/jobs", headers={"host": host}).status_code == 200
    # With a token the name does not matter: a page elsewhere does not have it.
    behind = served(tmp_path / "more", token=TOKEN).client()
    headers = {"host": "jobs.example.org", "authorization": f"Bearer {TOKEN}"}
    assert behind.get("/jobs", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.slow
def test_another_site_changes_nothing(tmp_path: Path, headers: dict[str, str]) -> None:
    made = served(tmp_path)
    with made.supervised():
        for path in ("/api/v1/jobs/shop/cancel", "/api/v1/jobs/shop/stop"):
            assert made.client().post(path, headers=headers).status_code == 403
    assert made.registry.take_requests("shop", 0) == []


def test_this_site_may(tmp_path: Path) -> None:
    made = served(tmp_path)
    own = {"origin": "http://127.0.0.1:8081", "sec-fetch-site": "same-origin"}
    with made.supervised():
        assert made.client().post("/api/v1/jobs/shop/stop", headers=own).status_code == 202
    assert made.registry.take_requests("shop", 0) == ["stop"]


def test_bodies_are_bounded(tmp_path: Path) -> None:
    client = served(tmp_path).client()
    large = b"x" * (LARGEST_BODY + 1)
    assert client.post("/api/v1/jobs/shop/stop", content=large).status_code == 413

    def parts() -> object:
        for _ in range(9):
            yield b"x" * (LARGEST_BODY // 8)

    assert client.post("/api/v1/jobs/shop/stop", content=parts()).status_code == 413
    assert client.post("/api/v1/jobs/shop/stop", headers={"content-length": "-1"}).status_code == 400
    for length in ("9" * 5000, "1_0", "²", "0x10", " 1", "+1", ""):
        answer = client.post("/api/v1/jobs/shop/stop", headers={"content-length": length.encode("utf-8")})
        assert answer.status_code in (400, 413), length


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://]", "[", "http://127.0.0.1:x"])
def test_an_origin_that_is_no_address_is_another_site(tmp_path: Path, origin: str) -> None:
    answer = served(tmp_path).client().post("/api/v1/jobs/shop/stop", headers={"origin": origin})
    assert answer.status_code == 403


@pytest.mark.parametrize("following", ["/[", "//[", "http://[", "/\n", "&a" * 30])
@pytest.mark.slow
def test_a_login_that_leads_nowhere_is_no_accident(tmp_path: Path, following: str) -> None:
    client = served(tmp_path, token=TOKEN).client()
    for path in ("/login", "/logout"):
        body = f"token={TOKEN}&next={following}".encode()
        headers = {"authorization": f"Bearer {TOKEN}"}
        assert client.post(path, content=body, headers=headers, follow_redirects=False).status_code in (
            303,
            400,
        )


def test_a_token_in_clear_is_warned_of() -> None:
    assert "without TLS" in (ServerSettings(host="0.0.0.0", token=TOKEN).warning or "")
    assert ServerSettings(token=TOKEN).warning is None


def test_the_warning_is_said_to_people_and_programs(capsys: pytest.CaptureFixture[str]) -> None:
    loud = ServerSettings(host="0.0.0.0", token=TOKEN)
    say_notes(loud, "http://0.0.0.0:8081")
    assert "WARNING: 0.0.0.0 is served without TLS" in " ".join(capsys.readouterr().err.split())
    assert notes(loud, "http://0.0.0.0:8081") == {"warning": loud.warning}
    assert notes(ServerSettings(token=TOKEN), "http://127.0.0.1:8081") == {}


def test_what_took_too_long_is_given_up_by_the_thread_that_does_it(tmp_path: Path) -> None:
    """The thread reads a real checkpoint again and again, as a scan of a large one does, until it is told."""
    checkpoint = LocalStorage(Served(tmp_path).checkpoint())
    ended = threading.Event()
    problems: list[Exception] = []

    def slow(_: Request) -> Response:
        try:
            while True:
                list(StateReader(checkpoint).scan("aggregate"))
        except Exception as error:
            problems.append(error)
            raise
        finally:
            ended.set()

    made = Starlette(routes=[Route("/slow", slow), Route("/quick", lambda _: Response("well"))])
    guarded = AccessGuard(made, ServerSettings(), sessions=Sessions(), limit=None, answer_s=0.2)
    with TestClient(guarded, base_url="http://127.0.0.1:8081", raise_server_exceptions=False) as client:
        answer = client.get("/slow")
        assert (answer.status_code, "the request timed out" in answer.text) == (503, True)
        assert ended.wait(60)
        assert client.get("/quick").text == "well"
    [problem] = problems
    assert isinstance(problem, Unavailable)


def test_a_scan_ends_where_nobody_waits_for_it(tmp_path: Path) -> None:
    reader = StateReader(LocalStorage(Served(tmp_path).checkpoint()))
    whole = len(list(reader.scan("aggregate")))
    given_up = threading.Event()
    read = 0
    with until(given_up), pytest.raises(Unavailable, match="was stopped"):  # noqa: PT012 - it ends on its way
        for _ in reader.scan("aggregate"):
            given_up.set()
            read += 1
    assert 0 < read < whole
    assert len(list(reader.scan("aggregate"))) == whole


def test_a_scan_within_one_store_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files have been read by then: the rows that come of them are looked at a chunk at a time."""
    monkeypatch.setattr(rows, "CHUNK", 2)
    (operator,) = operator_states(golden("4.2/aggregate-memory"))
    store = StoreId(operator.operator_id, 0, operator.store_names[0])
    chunks = rows.store_chunks(golden("4.2/aggregate-memory"), operator, store)
    given_up = threading.Event()
    with until(given_up):
        next(chunks)
        given_up.set()
        with pytest.raises(Unavailable, match="was stopped"):
            next(chunks)


def test_a_connection_that_nobody_has_looked_at_is_not_trusted(tmp_path: Path) -> None:
    """Without a token it takes the kernel's word; a server that forgets to ask for it lets nobody in."""
    (client,) = served(tmp_path).clients("127.0.0.1")
    answer = client.get("/api/v1/jobs")
    assert (answer.status_code, "answers only the user who started it" in answer.text) == (403, True)
