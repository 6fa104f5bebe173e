"""`holdfast serve` as a process of its own: what it says, whom it answers, and how it ends."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from command import Holdfast
from scripted_job import serving

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


def test_it_asks_for_the_token_over_tls(home: Path, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate of this test, and is not there")
    cert, key, token = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "token"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-out",
        str(cert),
        "-keyout",
        str(key),
    ]
    subprocess.run([openssl, *made, *name], check=True, capture_output=True)
    token.write_text(f"{TOKEN}\n")
    options = ["--tls-cert", str(cert), "--tls-key", str(key), "--token-file", str(token)]
    with serving(home, *options) as (_, place):
        assert place.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=str(cert))
        assert fetch(f"{place}/jobs", context=context) == 401
        assert fetch(f"{place}/jobs", "wrong" * 5, context) == 401
        assert fetch(f"{place}/jobs", TOKEN, context) == 200


def test_what_cannot_be_served_is_refused(holdfast: Holdfast) -> None:
    said = holdfast("serve", "--host", "0.0.0.0")
    assert (said.returncode, "needs a token" in said.stderr) == (2, True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = holdfast("serve", "--port", port)
        assert (said.returncode, "the port of the server is taken" in said.stderr) == (4, True)
    said = holdfast("serve", "--host", "203.0.113.7", "--token", TOKEN)
    assert (said.returncode, "cannot listen there" in said.stderr) == (2, True)
