"""Connect to a Redis by its address; passwords come from the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from holdfast.config.database_stores import REDIS_PASSWORD_VARIABLE as PASSWORD
from holdfast.errors import Corrupt, Invalid, Unavailable, Unsupported
from holdfast.external.named_addresses import sole_address

if TYPE_CHECKING:
    from redis import Redis

ADDRESS: Final = "HOLDFAST_REDIS_ADDRESS"
USER: Final = "HOLDFAST_REDIS_USER"
CERTIFICATES: Final = "HOLDFAST_REDIS_CA"
_PORT: Final = 6379
_ANSWER_S: Final = 10
_ASKED_AGAIN: Final = 3


@dataclass(frozen=True, slots=True)
class RedisPlace:
    """One database of a server.

    Attributes:
        host: The server.
        port: Its port.
        database: Which of its databases.
        tls: Whether it is spoken to by TLS.
    """

    host: str
    port: int
    database: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.tls else 'redis'}://{host}:{self.port}/{self.database}"

    @property
    def endpoints(self) -> frozenset[tuple[str, int, bool]]:
        """Host, port and TLS of each server that a password is sent to."""
        return frozenset({(self.host, self.port, self.tls)})

    def connect(self, environ: Mapping[str, str] | None = None) -> Redis:
        """A client; nothing is sent before it is asked for something. It may be used by several threads.

        Raises:
            Unsupported: The library is not installed.
        """
        environ = os.environ if environ is None else environ
        try:
            import redis
            from redis.backoff import ExponentialBackoff
            from redis.retry import Retry
        except ImportError as error:
            raise Unsupported(
                "the library that reads Redis is not installed",
                where=str(self),
                hint="pip install 'holdfast[redis]'",
            ) from error
        certificates: dict[str, Any] = (
            {"ssl_ca_certs": environ[CERTIFICATES]} if environ.get(CERTIFICATES) else {}
        )
        return redis.Redis(
            host=self.host,
            port=self.port,
            db=self.database,
            username=environ.get(USER) or None,
            password=environ.get(PASSWORD) or None,
            socket_timeout=_ANSWER_S,
            socket_connect_timeout=_ANSWER_S,
            client_name="holdfast",
            retry=Retry(ExponentialBackoff(cap=1, base=0.1), _ASKED_AGAIN),
            ssl=self.tls,
            **(certificates if self.tls else {}),
        )

    @contextmanager
    def asked(self, store: str) -> Iterator[None]:
        """Turn the library's errors in this block into those that a person can act on.

        Raises:
            Unavailable: The server does not answer, or takes no more.
            Invalid: It does not let us in, or not do this.
            Corrupt: It has something else under the names of the store.
        """
        from redis import exceptions

        try:
            yield
        except (exceptions.AuthenticationError, exceptions.NoPermissionError) as error:
            raise Invalid(
                "Redis does not let us in",
                where=str(self),
                found=str(error),
                hint=f"set {PASSWORD}, and {USER} where it has access lists; they have to allow scripts,"
                " hashes, sets and MEMORY USAGE",
            ) from error
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            raise Unavailable(
                "Redis does not answer",
                where=str(self),
                found=str(error),
                hint=f"see that it runs and can be reached from here; {ADDRESS} names another address of it",
            ) from error
        except exceptions.ResponseError as error:
            text = str(error)
            if text.startswith("NOAUTH") or "Authentication required" in text:
                raise Invalid("Redis asks for a password", where=str(self), hint=f"set {PASSWORD}") from error
            if "OOM" in text or "READONLY" in text or "MISCONF" in text:
                raise Unavailable(
                    "Redis takes no more", where=str(self), found=text, hint="make room there"
                ) from error
            raise Corrupt(
                "Redis has something else under the name of a store",
                where=f"{self}, store {store}",
                found=text,
                hint="restore a savepoint",
            ) from error


def redis_place(address: str, environ: Mapping[str, str] | None = None) -> RedisPlace:
    """Return the database at an address such as `redis://redis.example:6379/0`.

    If HOLDFAST_REDIS_ADDRESS in the environment has one address, that address replaces this one.

    Raises:
        Invalid: The address is not valid, or has a password in it.
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
            "this is no address of Redis",
            where=where,
            found="one with a user or password in it" if "@" in text else text,
            expected="redis://HOST:PORT/DATABASE, or rediss:// for TLS",
            hint=f"a password is in {PASSWORD}, a user in {USER}",
        )
    return RedisPlace(host, port, int(database), parts.scheme == "rediss")
