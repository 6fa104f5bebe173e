"""A proxy for HTTP on loopback that does to requests what a network may do to them, by chance with a seed.

It stands in front of a real server. A request may be carried out and not answered, carried out twice, not be
carried out, or be answered in part; the answer to a listing may come later than that to a later request.
"""

from __future__ import annotations

import random
import socket
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

LOSE, REPEAT, REFUSE, CUT, DELAY = "lose", "repeat", "refuse", "cut", "delay"
# The longest that the answer to a listing waits for another request.
_DELAY_S: Final = 0.2
_HOP: Final = ("connection", "keep-alive", "transfer-encoding")


class LossyProxy:
    """Takes requests at `url` and leads them to a server of this machine.

    Args:
        target: The server's port.
        seed: Of the chance.
        often: How often, of one, each thing happens; nothing at first.
    """

    def __init__(self, target: int, seed: int, often: Mapping[str, float] | None = None) -> None:
        self.target = target
        self.often = dict(often or {})
        self.happened: Counter[str] = Counter()
        # What happens to the next request whose method and path this names, once.
        self._next: tuple[str, str, str] | None = None
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._passed = threading.Condition()
        self._count = 0
        proxy = self

        class Handler(_Handler):
            lossy = proxy

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def once(self, what: str, method: str, part: str) -> None:
        """Let one thing happen to the next request of this method whose path holds a part."""
        with self._lock:
            self._next = (what, method, part)

    def fate(self, method: str, path: str) -> str | None:
        """What happens to a request."""
        with self._lock:
            if self._next is not None and method == self._next[1] and self._next[2] in path:
                what, self._next = self._next[0], None
                self.happened[what] += 1
                return what
            for what, share in self.often.items():
                if self._chance.random() < share:
                    if what == DELAY and "list-type" not in path:
                        continue
                    self.happened[what] += 1
                    return what
        return None

    def passed(self) -> None:
        """Note that a request has been answered."""
        with self._passed:
            self._count += 1
            self._passed.notify_all()

    def wait_for_another(self) -> None:
        """Wait until another request has been answered, for a moment at most."""
        with self._passed:
            before = self._count
            self._passed.wait_for(lambda: self._count > before, _DELAY_S)

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    lossy: LossyProxy
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""

    def handle(self) -> None:
        with suppress(ConnectionError, HTTPException):
            super().handle()

    def _pass_on(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        fate = self.lossy.fate(self.command, self.path)
        if fate == REFUSE:
            self._hang_up()
            return
        answer, data = self._ask(body)
        if fate == REPEAT:
            answer, data = self._ask(body)
        if fate == LOSE:
            self._hang_up()
            return
        if fate == DELAY:
            self.lossy.wait_for_another()
        self.send_response(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP and name.lower() not in ("date", "server", "content-length"):
                self.send_header(name, value)
        told = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        if told is not None and answer.status != 204:
            self.send_header("Content-Length", told)
        self.end_headers()
        if fate == CUT and data:
            self.wfile.write(data[: len(data) // 2])
            self._hang_up()
            return
        self.wfile.write(data)
        self.lossy.passed()

    def _ask(self, body: bytes) -> tuple[HTTPResponse, bytes]:
        far = HTTPConnection("127.0.0.1", self.lossy.target)
        try:
            far.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in (*_HOP, "expect"):
                    far.putheader(name, value)
            far.endheaders(body or None)
            answer = far.getresponse()
            return answer, answer.read()
        finally:
            far.close()

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815 - the names are the library's
