from __future__ import annotations

from pathlib import Path

import pytest
from served import Served

from holdfast.errors import Invalid, NotFound
from holdfast.server.guard import COOKIE, LARGEST_BODY
from holdfast.server.settings import ServerSettings, session_value, token_from

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


@pytest.mark.parametrize("path", ["/jobs/overview", "/v1/jobs", "/api/v1/jobs", "/api/v1/openapi.json"])
def test_without_the_token_nothing_is_told(tmp_path: Path, path: str) -> None:
    client = served(tmp_path, token=TOKEN).client()
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": TOKEN},
        {"authorization": f"Basic {TOKEN}"},
        {"cookie": f"{COOKIE}={TOKEN}"},
        {"cookie": f"{COOKIE}="},
    ):
        answer = client.get(path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        body = answer.json()
        assert ("errors" in body) != path.startswith("/api")
        assert TOKEN not in answer.text
    assert client.get(path, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


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


def test_the_cookie_does_not_tell_the_token() -> None:
    assert session_value(TOKEN) != session_value(TOKEN + "x")
    assert TOKEN not in session_value(TOKEN)


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
