"""A server on loopback whose clients send too little, too slowly or too much, and do not take its answers."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from holdfast.jobs.state_home import StateHome
from holdfast.server.process.connections import Bounds
from holdfast.server.process.listening import listen
from holdfast.server.process.serving import Serving
from holdfast.server.server_settings import ServerSettings

PATIENCE_S = 30.0
FEW = 8
LONG_S = 3600.0


@contextmanager
def served(folder: Path, within: Bounds) -> Iterator[Serving]:
    """A control plane that has no job."""
    home = StateHome(folder / "home")
    home.path.mkdir()
    settings = ServerSettings(port=0)
    serving = Serving(home.path, settings, listen(settings), within)
    serving.start()
    try:
        yield serving
    finally:
        serving.close()


def connect(serving: Serving) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", serving.port), timeout=PATIENCE_S)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return made


def health(serving: Serving) -> int:
    with urllib.request.urlopen(f"{serving.url}/health", timeout=PATIENCE_S) as answer:
        return int(answer.status)


def ended(connection: socket.socket) -> bool:
    """Wait until the server has closed it; what it says before that is thrown away."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
        b"POST /api/v1/jobs/shop/stop HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{",
    ],
    ids=["bare", "half a head", "half a body"],
)
def test_who_asks_is_answered_when_all_places_are_taken(tmp_path: Path, said: bytes) -> None:
    within = Bounds(connections=FEW, head_s=LONG_S, answer_s=LONG_S)
    with served(tmp_path, within) as serving, ExitStack() as held:
        clients = [held.enter_context(closing(connect(serving))) for _ in range(3 * FEW)]
        for client in clients:
            with suppress(OSError):  # it has made room already
                client.sendall(said)
        assert health(serving) == 200
        assert all(ended(client) for client in clients[: 2 * FEW])


def test_a_client_that_never_sends_is_closed(tmp_path: Path) -> None:
    with served(tmp_path, Bounds(head_s=0.2)) as serving, closing(connect(serving)) as client:
        assert ended(client)


def test_a_head_that_comes_byte_by_byte_is_closed(tmp_path: Path) -> None:
    with served(tmp_path, Bounds(head_s=0.5)) as serving, closing(connect(serving)) as client:
        assert sends_until_closed(client, lambda: b"x", pause_s=0.05)


def test_a_kept_connection_has_the_same_time_for_its_next_head(tmp_path: Path) -> None:
    with served(tmp_path, Bounds(head_s=0.5)) as serving, closing(connect(serving)) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        assert sends_until_closed(client, lambda: b"x", pause_s=0.05)


def test_a_body_that_nobody_reads_any_more_is_not_taken_for_ever(tmp_path: Path) -> None:
    with served(tmp_path, Bounds(head_s=0.5)) as serving, closing(connect(serving)) as client:
        client.sendall(b"POST /nothing HTTP/1.1\r\nHost: elsewhere\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 403")
        assert sends_until_closed(client, lambda: b"1\r\nx\r\n", pause_s=0.05)


def test_headers_are_bounded_in_size(tmp_path: Path) -> None:
    with served(tmp_path, Bounds()) as serving, closing(connect(serving)) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        line = b"X-Large: " + b"y" * 65536 + b"\r\n"
        assert sends_until_closed(client, lambda: line, most=100 << 20)
        assert health(serving) == 200


def test_an_answer_that_is_not_taken_is_given_up(tmp_path: Path) -> None:
    with served(tmp_path, Bounds(answer_s=0.5)) as serving, closing(connect(serving)) as client:
        request = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        sender = threading.Thread(target=sends_until_closed, args=(client, lambda: request), daemon=True)
        sender.start()  # thousands of requests, of whose answers nothing is read
        sender.join(PATIENCE_S)
        assert not sender.is_alive()
        assert health(serving) == 200


def test_a_client_that_takes_its_time_within_the_bounds_gets_all_of_it(tmp_path: Path) -> None:
    with served(tmp_path, Bounds(connections=FEW)) as serving, closing(connect(serving)) as client:
        client.sendall(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        with ExitStack() as held:
            for _ in range(FEW // 2):
                held.enter_context(closing(connect(serving)))
            parts = []
            while part := client.recv(4096):
                parts.append(part)
        head, _, body = b"".join(parts).partition(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        assert len(body) == int(length.partition(b":")[2])


def sends_until_closed(
    client: socket.socket, part: Callable[[], bytes], *, pause_s: float = 0.0, most: int = 1 << 40
) -> bool:
    """Send on and on; whether the server has put an end to it."""
    deadline, sent = time.monotonic() + PATIENCE_S, 0
    try:
        while time.monotonic() < deadline and sent < most:
            sent += client.send(part())
            time.sleep(pause_s)
    except TimeoutError:
        return False
    except OSError:
        return True
    return False
