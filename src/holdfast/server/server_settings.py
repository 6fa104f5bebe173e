"""The settings of a server's address and access."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.config.checks import TOKEN_VARIABLE
from holdfast.errors import Invalid, NotFound

PORT: Final = 8081
HOST: Final = "127.0.0.1"
SHORTEST_TOKEN: Final = 16
# The maximum length of a token's file; an endless file, such as a device, is not read further.
_LONGEST_TOKEN: Final = 1 << 16
_HOW_TO_MAKE_ONE: Final = "create one with `python -c 'import secrets; print(secrets.token_urlsafe())'`"
_LOOPBACK_NAMES: Final = ("localhost",)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of a server.

    Attributes:
        host: The address on which the server listens.
        port: The port; 0 for any free port.
        token: The token that clients must send; None to admit every client.
        tls_cert: The certificate chain; None disables TLS.
        tls_key: The private key of the certificate.
        savepoints: The default directory for savepoints; None for the directory that the job already uses.
        login_code: The code that opens a browser session and is valid once; None for no code.
        roots: Directories and URIs below which requests may use savepoints and checkpoints, in addition to
            those of jobs.
        checkpoints: The addresses of checkpoints whose queries are served: checkpoints, directories and
            patterns.
    """

    host: str = HOST
    port: int = PORT
    token: str | None = field(default=None, repr=False)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    savepoints: str | None = None
    roots: tuple[str, ...] = ()
    login_code: str | None = field(default=None, repr=False)
    checkpoints: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise Invalid(
                "invalid port",
                code="HF-E2279",
                hint="give a port in this range; 0 picks a free port",
                where="--port",
                found=str(self.port),
                expected="0 to 65535",
            )
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise Invalid(
                "the token is too short",
                code="HF-E2280",
                found=f"{len(self.token)} characters",
                expected=f"at least {SHORTEST_TOKEN} characters",
                hint=_HOW_TO_MAKE_ONE,
            )
        if self.token is not None and (not self.token.isascii() or not self.token.isprintable()):
            raise Invalid(
                "the token cannot be sent in an HTTP header",
                code="HF-E2281",
                expected="printable ASCII characters",
                hint=_HOW_TO_MAKE_ONE,
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            raise Invalid(
                "TLS needs both a certificate and a key",
                code="HF-E2282",
                expected="--tls-cert and --tls-key",
                hint="give both options, or neither",
            )
        for path in (self.tls_cert, self.tls_key):
            if path is not None and not path.is_file():
                raise NotFound(
                    "the TLS file does not exist",
                    code="HF-E3059",
                    where=str(path),
                    hint="give the certificate chain with --tls-cert and its key with --tls-key",
                )
        if self.token is None and not is_loopback(self.host):
            raise Invalid(
                "an address other than loopback needs a token",
                code="HF-E2283",
                where=f"--host {self.host}",
                expected=f"--token-file FILE, or {TOKEN_VARIABLE} in the environment",
                hint="set a token, or listen on 127.0.0.1",
            )

    @property
    def scheme(self) -> str:
        """The URL scheme: `http` or `https`."""
        return "http" if self.tls_cert is None else "https"

    @property
    def warning(self) -> str | None:
        """The warning about the server's address, printed at its start."""
        if self.token is None or self.tls_cert is not None or is_loopback(self.host):
            return None
        return (
            f"{self.host} is served without TLS: the token and all state are sent unencrypted,"
            " and anyone who reads the token there can stop jobs;"
            " give --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy with TLS"
        )

    def url(self, port: int) -> str:
        """Return the URL of the server on a port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable only from this machine."""
    address = ip_address(host)
    return host in _LOOPBACK_NAMES if address is None else address.is_loopback


def ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse a host as an IP address; None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def token_from(text: str | None, file: Path | None, environment: str | None) -> str | None:
    """Return the token from the given text, a file or the environment, in this order.

    Raises:
        NotFound: The file cannot be read.
        Invalid: The file is empty, or has no valid token.
    """
    if text is not None:
        return text
    if file is None:
        return environment or None
    try:
        with file.open("rb") as opened:
            read = opened.read(_LONGEST_TOKEN + 1).decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise Invalid(
            "the token file is not a text file", code="HF-E2284", where=str(file), hint=_HOW_TO_MAKE_ONE
        ) from error
    except OSError as error:
        raise NotFound(
            "the token file cannot be read",
            code="HF-E3060",
            where=str(file),
            found=error.strerror or str(error),
            hint="give a file that this user can read with --token-file",
        ) from error
    if not read:
        raise Invalid("the token file is empty", code="HF-E2285", where=str(file), hint=_HOW_TO_MAKE_ONE)
    if len(read) > _LONGEST_TOKEN:
        raise Invalid("the token file is too large", code="HF-E2286", where=str(file), hint=_HOW_TO_MAKE_ONE)
    return read
