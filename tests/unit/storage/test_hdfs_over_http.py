"""HDFS over HTTP on a bad day: a host that never answers, connections that break before the answer."""

from __future__ import annotations

import socket
from collections.abc import Callable
from threading import Thread

import pytest

from holdfast.errors import Unavailable
from holdfast.storage import open_storage, remote

pytest.importorskip("requests")

EMPTY = b'{"FileStatuses": {"FileStatus": []}}'


def test_a_namenode_that_never_answers_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        storage = open_storage(f"webhdfs://127.0.0.1:{silent.getsockname()[1]}/checkpoints/orders")
        with pytest.raises(Unavailable, match="a file or directory cannot be read or written") as caught:
            storage.list("")
    assert "timed out" in (caught.value.found or "").lower() or "Timeout" in (caught.value.found or "")


def asked(call: Callable[[str], object], broken: int) -> list[bytes]:
    """The request lines that a NameNode gets for a call when it breaks its first connections."""
    lines: list[bytes] = []

    def serve() -> None:
        while True:
            connection, _ = server.accept()
            with connection:
                line = connection.recv(65536).partition(b"\r\n")[0]
                if not line:
                    return
                lines.append(line)
                if len(lines) > broken:
                    head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(EMPTY)}\r\n\r\n"
                    connection.sendall(head.encode() + EMPTY)

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        thread = Thread(target=serve)
        thread.start()
        try:
            call(f"webhdfs://127.0.0.1:{address[1]}/checkpoints/orders")
        finally:
            socket.create_connection(address).close()
            thread.join()
    return lines


def test_a_read_is_sent_again_when_its_connection_breaks() -> None:
    lines = asked(lambda uri: open_storage(uri).list(""), broken=2)
    assert len(lines) == 3
    assert all(b"op=LISTSTATUS" in line for line in lines)


def test_a_read_is_not_sent_for_ever() -> None:
    lines: list[bytes] = []
    with pytest.raises(Unavailable, match="a file or directory cannot be read or written"):
        lines += asked(lambda uri: open_storage(uri).list(""), broken=3)


def test_a_change_is_sent_once() -> None:
    """It may have been carried out, and a second one would then be refused or undo what followed."""

    def remove(uri: str) -> None:
        with pytest.raises(Unavailable):
            open_storage(uri).delete("offsets/0")

    lines = asked(remove, broken=1)
    assert [line.partition(b" ")[0] for line in lines].count(b"DELETE") == 1
