"""`holdfast serve` as a process of its own: what it says, whom it answers, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from command import Holdfast
from process_table import processes
from running_job import until
from scripted_job import serving
from self_signed import self_signed
from served import Served

from holdfast.server.access.local_peer import can_tell

pytestmark = pytest.mark.fault

TOKEN = "a-token-that-is-long-enough"


def fetch(url: str, token: str | None = None, context: ssl.SSLContext | None = None) -> int:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_it_serves_until_it_is_told_to_end(home: Path) -> None:
    with serving(home) as (process, url):
        assert fetch(f"{url}/jobs/overview") == 200
        assert fetch(f"{url}/nothing") == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_query_over_state_ends_with_a_server_that_was_killed(tmp_path: Path) -> None:
    shop = Served(tmp_path)
    shop.job(checkpoint=shop.checkpoint())
    endless = "with recursive r as (select 1 as n union all select n + 1 from r) select max(n) from r"
    with serving(shop.home.path) as (process, url):
        client = http.client.HTTPConnection(url.rpartition("/")[2], timeout=60)
        headers = {"content-type": "application/json"}
        client.request("POST", "/api/v1/jobs/shop/sql", json.dumps({"sql": endless}), headers)
        until(lambda: bool(children(process.pid)), "the query runs")
        (query,) = children(process.pid)
        process.kill()
        until(lambda: query not in {each.pid for each in processes()}, "the query has ended")
        client.close()


def children(parent: int) -> list[int]:
    tasks = Path("/proc") / str(parent) / "task"
    return [int(pid) for each in tasks.glob("*/children") for pid in each.read_text().split()]


def test_it_asks_for_the_token_over_tls(home: Path, tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    options = ["--tls-cert", str(cert), "--tls-key", str(key), "--token-file", str(token)]
    with serving(home, *options) as (_, place):
        assert place.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=str(cert))
        assert fetch(f"{place}/jobs", context=context) == 401
        assert fetch(f"{place}/jobs", "wrong" * 5, context) == 401
        assert fetch(f"{place}/jobs", TOKEN, context) == 200


AS_NOBODY = """
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
host, port, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
# A socket of IPv6 shows 127.0.0.1 in another table, as those of Java do.
family = socket.AF_INET6 if how == "mapped" or ":" in host else socket.AF_INET
with socket.socket(family) as client:
    client.connect(("::ffff:" + host if how == "mapped" else host, port))
    head = ["POST /api/v1/jobs/shop/cancel HTTP/1.1", "Host: localhost", "Connection: close"]
    request = "\\r\\n".join([*head, "Content-Length: 0", "", ""]).encode()
    if how == "gone":
        # What has been sent is there when the kernel no longer says who has sent it.
        client.sendall(request)
        sys.exit()
    client.sendall(request)
    if how == "half":
        client.shutdown(socket.SHUT_WR)
    print(b"".join(iter(lambda: client.recv(4096), b"")).decode())
"""


def as_nobody(url: str, how: str) -> str:
    parts = urlsplit(url)
    command = [sys.executable, "-c", AS_NOBODY, str(parts.hostname), str(parts.port), how]
    # Not from a directory that is closed to nobody, and with nothing but the standard library.
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/", timeout=60)
    return done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user this test has to be root")
@pytest.mark.skipif(not can_tell(), reason="this machine does not tell whose a connection is")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_without_a_token_another_user_may_not_even_look(tmp_path: Path, host: str) -> None:
    if host == "::1" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    served = Served(tmp_path)
    served.job()
    with served.supervised(), serving(served.home.path, "--host", host) as (_, url):
        assert fetch(f"{url}/jobs/overview") == 200
        for how in ("plain", "half", *(("mapped",) if host == "127.0.0.1" else ())):
            answer = as_nobody(url, how)
            assert answer.startswith("HTTP/1.1 403"), how
            assert "answers only the user who started it" in answer
        for _ in range(20):
            as_nobody(url, "gone")
        assert fetch(f"{url}/jobs/overview") == 200
        assert served.registry.take_requests("shop", 0) == []
        # The same user may, and is not asked for anything.
        ask = urllib.request.Request(f"{url}/api/v1/jobs/shop/cancel", method="POST")
        with urllib.request.urlopen(ask) as taken:
            assert taken.status == 202
        assert served.registry.take_requests("shop", 0) == ["cancel"]


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user this test has to be root")
def test_with_a_token_another_user_may(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.job()
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    with serving(served.home.path, "--token-file", str(token)) as (_, url):
        assert as_nobody(url, "plain").startswith("HTTP/1.1 401")
        assert fetch(f"{url}/jobs/overview", TOKEN) == 200


def test_what_cannot_be_served_is_refused(holdfast: Holdfast) -> None:
    said = holdfast("serve", "--host", "0.0.0.0")
    assert (said.returncode, "needs a token" in said.stderr) == (2, True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = holdfast("serve", "--port", port)
        assert (said.returncode, "the server's port is in use" in said.stderr) == (4, True)
    said = holdfast("serve", "--host", "203.0.113.7", "--token", TOKEN)
    assert (said.returncode, "cannot listen on this address" in said.stderr) == (2, True)
