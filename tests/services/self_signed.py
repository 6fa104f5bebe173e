"""A certificate for this machine, signed by itself, for the tests of TLS."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from absent_service import absent_service


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Make `certificate.pem` and `key.pem` in a folder; returns both."""
    openssl = shutil.which("openssl")
    if openssl is None:
        absent_service("openssl makes the certificate of this test, and is not there")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *words], check=True, capture_output=True)
    return certificate, key
