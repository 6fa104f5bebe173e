"""The address of a Redis server and the connection to it, for commands and workers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.config.database_stores import REDIS_PASSWORD_VARIABLE as PASSWORD
from holdfast.errors import Corrupt, HoldfastError, Invalid, Unavailable, Unsupported
from holdfast.external.named_addresses import sole_address

ADDRESS: Final = "HOLDFAST_REDIS_ADDRESS"
USER: Final = "HOLDFAST_REDIS_USER"
CERTIFICATES: Final = "HOLDFAST_REDIS_CA"
_PORT: Final = 6379
# The timeout of commands for an answer, and the number of times that a request is repeated.
_ANSWER_S: Final = 10
_ASKED_AGAIN: Final = 3


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """A database of a Redis server, with credentials.

    Attributes:
        host: The host of the server.
        port: The port of the server.
        database: The number of the database.
        user: The name of the user, if the server requires one.
        password: The password, if the server requires one.
        tls: Whether the connection is encrypted.
        authorities: A PEM file with the trusted certificates; by default those of the system.
    """

    host: str
    port: int
    database: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    authorities: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.tls else 'redis'}://{host}:{self.port}/{self.database}"

    @property
    def endpoints(self) -> frozenset[tuple[str, int, bool]]:
        """Return the host, port and TLS of each server to which a password is sent."""
        return frozenset({(self.host, self.port, self.tls)})


class RedisConnection:
    """A connection to a Redis server, opened by the first request; threads may share it.

    Args:
        address: The address of the database.
        answer_s: The timeout for an answer, in seconds.
        asked_again: The number of times that a request without an answer is repeated.
        name: The name of the connection in the server's list of clients.

    Raises:
        Unsupported: The client library of Redis is not installed.
    """

    def __init__(
        self, address: RedisAddress, *, answer_s: float, asked_again: int = 0, name: str | None = None
    ) -> None:
        redis = client_library()
        self.address = address
        self.errors: Any = redis.exceptions
        certificates = {"ssl_ca_certs": address.authorities} if address.authorities else {}
        self._options: dict[str, Any] = {
            "username": address.user,
            "password": address.password,
            "socket_timeout": answer_s,
            "socket_connect_timeout": answer_s,
            "socket_keepalive": True,
            "protocol": 2,
            "client_name": name,
            "ssl": address.tls,
            **(certificates if address.tls else {}),
        }
        self._retry = redis.retry.Retry(redis.backoff.ExponentialBackoff(cap=1, base=0.1), asked_again)
        self.client: Any = redis.Redis(
            host=address.host, port=address.port, db=address.database, retry=self._retry, **self._options
        )
        self._routed: Any = None

    def routed(self) -> Any:
        """Return a client for commands with one key each: of the server, its cluster, or its primary.

        If the address is that of a node of a Redis Cluster, the client sends each command to the node with
        the key. If it is that of a Sentinel, the client sends all commands to the primary, also after a
        failover. Such clients cannot run commands with several keys.

        Raises:
            Invalid: The Sentinel does not watch exactly one primary.
        """
        if self._routed is None:
            self._routed = self._of_mode()
        return self._routed

    def _of_mode(self) -> Any:
        try:
            mode = self.client.info("server").get("redis_mode", "standalone")
        except self.errors.NoPermissionError:
            return self.client
        if mode == "cluster":
            return self._of_cluster()
        return self._of_sentinel() if mode == "sentinel" else self.client

    def _of_cluster(self) -> Any:
        from redis.cluster import RedisCluster

        address = self.address
        return RedisCluster(host=address.host, port=address.port, **self._options)

    def _of_sentinel(self) -> Any:
        import redis.sentinel

        make: Any = redis.sentinel.Sentinel  # it carries no types
        address = self.address
        names = sorted(self.client.sentinel_masters())
        if len(names) != 1:
            raise Invalid(
                "the Sentinel does not watch exactly one primary",
                code="HF-E2544",
                where=str(address),
                found=", ".join(names) or "no primary",
                expected="one primary",
                hint="give the address of a Sentinel that watches only the primary with the rows",
            )
        others = [(one["ip"], one["port"]) for one in self.client.sentinel_sentinels(names[0])]
        # A Sentinel has a user of its own; these options are for the primary.
        plain = {name: self._options[name] for name in ("socket_timeout", "socket_connect_timeout", "ssl")}
        sentinel = make([(address.host, address.port), *others], sentinel_kwargs=plain, **self._options)
        return sentinel.master_for(names[0], db=address.database, retry=self._retry)

    def refusal(self, error: Exception) -> HoldfastError | None:
        """Return the error for a failure that a retry cannot fix, or None for any other failure.

        The message of an answer never contains a secret.
        """
        text = str(error)
        answered = isinstance(error, self.errors.ResponseError)
        if isinstance(error, (self.errors.AuthenticationError, self.errors.NoPermissionError)) or (
            answered and (text.startswith("NOAUTH") or "Authentication required" in text)
        ):
            return Invalid(
                "Redis rejected the user or the password, or the user lacks a permission",
                code="HF-E2202",
                where=str(self.address),
                found=text,
                hint=(
                    f"set the password in {PASSWORD}; set the user in {USER} for commands and in"
                    " hf.Redis(user=…) for jobs; the user needs permission for scripts, hashes, sets,"
                    " sorted sets and MEMORY USAGE"
                ),
            )
        if answered and "SELECT is not allowed in cluster mode" in text:
            return Invalid(
                "Redis Cluster has only database 0",
                code="HF-E2545",
                where=str(self.address),
                found=f"database {self.address.database}",
                hint="use database 0, and separate queries by prefix=",
            )
        # A script that runs out of memory fails with a separate error, whose message contains this word.
        if isinstance(error, self.errors.OutOfMemoryError) or (answered and "OOM" in text):
            return Unavailable(
                "Redis is out of memory, so nothing was written",
                code="HF-E5019",
                where=str(self.address),
                found=text,
                hint="raise maxmemory, or shorten the TTL of the state",
            )
        return None

    def silence(self, error: Exception) -> Unavailable:
        """Return the error for a failure that a retry may fix."""
        return Unavailable(
            "Redis does not answer",
            code="HF-E5020",
            where=str(self.address),
            found=f"{type(error).__name__}: {error}",
            hint="check that Redis is up and reachable from here and, for a job, from every executor;"
            f" for commands, set a different address in {ADDRESS}",
        )

    @contextmanager
    def asked(self, store: str) -> Iterator[None]:
        """Raise Holdfast errors with hints in place of the client's errors in this block.

        Raises:
            Unavailable: The server does not answer, or does not accept writes.
            Invalid: The server rejected the user or the password, or the user lacks a permission.
            Corrupt: A Redis key of the store has unexpected data.
        """
        errors = self.errors
        try:
            yield
        except (errors.ConnectionError, errors.TimeoutError, errors.ResponseError) as error:
            raise self._store_error(error, store) from error

    def _store_error(self, error: Exception, store: str) -> HoldfastError:
        refused = self.refusal(error)
        if refused is not None:
            return refused
        if not isinstance(error, self.errors.ResponseError):
            return self.silence(error)
        text = str(error)
        if isinstance(error, self.errors.ReadOnlyError) or "READONLY" in text or "MISCONF" in text:
            return Unavailable(
                "Redis does not accept writes",
                code="HF-E5021",
                where=str(self.address),
                found=text,
                hint="connect to the primary; if Redis cannot save its snapshot, free disk space there",
            )
        return Corrupt(
            "a Redis key of the store has unexpected data",
            code="HF-E6020",
            where=f"{self.address}, store {store}",
            found=text,
            hint="check that no other program writes to this Redis database, and restore a savepoint",
        )


def client_library() -> Any:
    """Return the client library for Redis, imported at the first call.

    Raises:
        Unsupported: The library is not installed.
    """
    try:
        import redis
        import redis.backoff
        import redis.retry
    except ImportError as error:
        raise Unsupported(
            "the Python client for Redis is not installed",
            code="HF-E7057",
            found=str(error),
            hint="run `pip install 'holdfast[redis]'`; a job needs it on every executor as well",
        ) from error
    return redis


def open_redis(address: RedisAddress, environ: Mapping[str, str] | None = None) -> RedisConnection:
    """Return a connection with the credentials from the environment; no request is sent.

    Raises:
        Unsupported: The client library of Redis is not installed.
    """
    return RedisConnection(
        with_credentials(address, environ), answer_s=_ANSWER_S, asked_again=_ASKED_AGAIN, name="holdfast"
    )


def with_credentials(address: RedisAddress, environ: Mapping[str, str] | None = None) -> RedisAddress:
    """Return an address with the credentials from the environment."""
    environ = os.environ if environ is None else environ
    return replace(
        address,
        user=environ.get(USER) or None,
        password=environ.get(PASSWORD) or None,
        authorities=environ.get(CERTIFICATES) or None,
    )


def redis_address(address: str, environ: Mapping[str, str] | None = None) -> RedisAddress:
    """Return the database at an address such as `redis://redis.example:6379/0`.

    If HOLDFAST_REDIS_ADDRESS in the environment has exactly one address, that address is used instead.

    Raises:
        Invalid: The address is malformed, or contains a password.
    """
    environ = os.environ if environ is None else environ
    given = sole_address(environ, ADDRESS)
    where, text = (ADDRESS, given) if given else ("the address of Redis", address)
    if "://" not in text:
        text = f"{address.partition('://')[0] if given else 'redis'}://{text}"
        if given:
            text += f"/{urlsplit(address).path.strip('/') or 0}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port or _PORT
        database = parts.path.strip("/") or "0"
    except ValueError:
        host, port, database, parts = None, _PORT, "", urlsplit("")
    if (
        host is None
        or parts.scheme not in ("redis", "rediss")
        or "@" in parts.netloc
        or parts.query
        or not (database.isascii() and database.isdigit())
    ):
        raise Invalid(
            "invalid Redis address",
            code="HF-E2203",
            where=where,
            found="an address with a user or password" if "@" in text else text,
            expected="redis://HOST:PORT/DATABASE, or rediss:// for TLS",
            hint=f"remove user and password from the address; set them in {USER} and {PASSWORD}"
            if "@" in text
            else "write an address such as redis://localhost:6379/0",
        )
    return RedisAddress(host, port, int(database), tls=parts.scheme == "rediss")
