"""The address of a Cassandra cluster, with credentials from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.config.database_stores import CASSANDRA_PASSWORD_VARIABLE as PASSWORD
from holdfast.errors import Invalid
from holdfast.external.named_addresses import sole_address

ADDRESS: Final = "HOLDFAST_CASSANDRA_ADDRESS"
USER: Final = "HOLDFAST_CASSANDRA_USER"
CERTIFICATES: Final = "HOLDFAST_CASSANDRA_CA"
CONSISTENCY: Final = "HOLDFAST_CASSANDRA_CONSISTENCY"

_SCHEME: Final = "cassandra://"
_PORT: Final = 9042
_POINT: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\],]+)(?::(\d{1,5}))?")
_KEYSPACE: Final = re.compile(r"[a-z][a-z0-9_]{0,47}")
_DEFAULT_KEYSPACE: Final = "holdfast"


@dataclass(frozen=True, slots=True)
class CassandraAddress:
    """A keyspace of a Cassandra cluster, with credentials.

    Attributes:
        contact_points: The host and port of one or more nodes, separated by commas; the client discovers the
            other nodes.
        keyspace: The keyspace with the tables.
        local_datacenter: The data center whose nodes are queried; by default that of the contact points.
        user: The name of the user, if the server requires one.
        password: The password, if the server requires one.
        tls: Whether connections are encrypted.
        authorities: A PEM file with the trusted certificates; by default those of the system.
        consistency: The consistency level: LOCAL_QUORUM or QUORUM.
    """

    contact_points: str
    keyspace: str = _DEFAULT_KEYSPACE
    local_datacenter: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    authorities: str | None = None
    consistency: str = "LOCAL_QUORUM"

    def __str__(self) -> str:
        return f"{_SCHEME}{self.contact_points}/{self.keyspace}"

    @property
    def endpoints(self) -> frozenset[tuple[str, int]]:
        """Return the host and port of each contact point; the client sends the password to these first."""
        return frozenset(self.nodes)

    @property
    def nodes(self) -> tuple[tuple[str, int], ...]:
        """Return the host and port of each contact point."""
        points = (_POINT.fullmatch(point.strip()) for point in self.contact_points.split(","))
        return tuple((point[1].strip("[]"), int(point[2] or _PORT)) for point in points if point is not None)


def cassandra_address(address: str, environ: Mapping[str, str] | None = None) -> CassandraAddress:
    """Return the keyspace at an address such as `cassandra://one.example:9042,two.example:9042/holdfast`.

    If HOLDFAST_CASSANDRA_ADDRESS in the environment has exactly one address, that address is used instead; if
    it has no keyspace, the keyspace of `address` is used.

    Raises:
        Invalid: The address is malformed, or contains a password.
    """
    environ = os.environ if environ is None else environ
    given = sole_address(environ, ADDRESS)
    where, text = (ADDRESS, given) if given else ("the address of Cassandra", address)
    points, keyspace = _parts(text)
    if given and keyspace is None:
        _, keyspace = _parts(address)
    hosts = [_POINT.fullmatch(point.strip()) for point in points.split(",")]
    found = [(host[1].strip("[]"), int(host[2] or _PORT)) for host in hosts if host is not None]
    keyspace = _DEFAULT_KEYSPACE if keyspace is None else keyspace
    if (
        len(found) < len(hosts)
        or not all(0 < port < 1 << 16 for _, port in found)
        or not _KEYSPACE.fullmatch(keyspace)
    ):
        raise Invalid(
            "invalid Cassandra address",
            code="HF-E2193",
            where=where,
            found="an address with a user or password" if "@" in text else text,
            expected="cassandra://HOST:PORT,HOST:PORT/KEYSPACE",
            hint=f"remove user and password from the address; set them in {USER} and {PASSWORD}"
            if "@" in text
            else "write an address such as cassandra://localhost:9042/holdfast",
        )
    return CassandraAddress(
        ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in found), keyspace
    )


def _parts(text: str) -> tuple[str, str | None]:
    """Return the contact points and the keyspace, which may be None."""
    points, _, keyspace = text.removeprefix(_SCHEME).partition("/")
    return points, keyspace.strip("/") or None
