"""A certificate for this machine, signed by itself, for the tests of TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path

from required import require


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Make `certificate.pem` and `key.pem` in a folder; returns both."""
    openssl = str(require("openssl"))
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *words], check=True, capture_output=True)
    return certificate, key
