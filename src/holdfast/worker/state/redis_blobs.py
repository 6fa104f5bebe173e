"""Blobs of keyed state in Redis: one round trip writes a task's blobs, and one more deletes old ones.

The index of a key group is a sorted set under the name of the group, whose scores are batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from holdfast.errors import HoldfastError, Invalid, Unavailable, Unsupported
from holdfast.worker.state.blob_store import BlobName, BlobWrites, ReplacedBlobs, RetryPatience, blob_key

# An answer that has stopped for so long does not come any more.
_SILENCE_S: Final = 5.0
# A fold deletes so many blobs at most: one command holds up all others.
_DELETED: Final = 10_000

Command = Sequence[Any]


@dataclass(frozen=True, slots=True)
class RedisBlobServer:
    """The address of a Redis, and its settings.

    Attributes:
        host: Its host.
        port: Its port.
        database: The number of the database.
        user: The user's name, where it asks for one.
        password: The password.
        tls: Whether the connection is encrypted.
        authorities: A file with the certificates that are trusted, as PEM; those of the system by default.
        prefix: What all keys begin with.
        patience_ms: How long it is asked again where it does not answer.
    """

    host: str
    port: int
    database: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    authorities: str | None = None
    prefix: str = "holdfast"
    patience_ms: int = 60_000

    product: ClassVar[str] = "Redis"

    @property
    def address(self) -> str:
        """For messages."""
        return f"Redis at {self.host}:{self.port}, database {self.database}"

    def connect(self) -> RedisBlobs:
        """A connection of its own, which is made when it is first asked.

        Raises:
            Unsupported: The client is not installed.
        """
        return RedisBlobs(RedisConnection(self))

    def described(self) -> dict[str, Any]:
        """Return the description for an operator's note, without the password."""
        described = {
            "host": self.host,
            "port": self.port,
            "database": self.database,
            "user": self.user,
            "tls": self.tls,
            "authorities": self.authorities,
        }
        return {name: value for name, value in described.items() if value is not None}


class RedisBlobs:
    """Blobs in a Redis; what is asked of it is said by `BlobDatabase`.

    Args:
        connection: The way to it.
    """

    product: ClassVar[str] = RedisBlobServer.product

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    def write(self, home: str, writes: BlobWrites) -> list[ReplacedBlobs]:
        """Note names, then write the blobs, and say what was replaced long ago: one round trip."""
        commands: list[Command] = []
        for group, names in writes.noted.items():
            scored = [part for name in names for part in (writes.batch_id, name)]
            commands.append(("ZADD", _index(home, group), "GT", *scored))
        if writes.blobs:
            # Behind the indexes: no blob is there that none has.
            commands.append(("MSET", *(part for pair in writes.blobs.items() for part in pair)))
        limits = ("-inf", f"({writes.before}", "LIMIT", 0, _DELETED)
        commands += [("ZRANGEBYSCORE", _index(home, group), *limits) for group in writes.folded]
        answers = self._connection.ask(commands)[len(commands) - len(writes.folded) :]
        return [
            ReplacedBlobs(group, tuple(bytes(name).decode() for name in names), writes.before)
            for group, names in zip(writes.folded, answers, strict=True)
            if names
        ]

    def fetch(self, names: Sequence[BlobName]) -> Sequence[bytes | None]:
        """The blobs of these names, None for one that is missing: one round trip."""
        if not names:
            return []
        (blobs,) = self._connection.ask([("MGET", *(name.key for name in names))])
        return list(blobs)

    def delete(self, home: str, replaced: Sequence[ReplacedBlobs]) -> None:
        """Delete blobs, then their names in the indexes: one round trip."""
        commands: list[Command] = []
        for gone in replaced:
            # The index last: a blob that exists stays in it.
            commands.append(("UNLINK", *(blob_key(home, gone.group, name) for name in gone.names)))
            commands.append(("ZREM", _index(home, gone.group), *gone.names))
        self._connection.ask(commands)


def _index(home: str, group: int) -> str:
    return f"{home}:{group}"


class RedisConnection:
    """A connection that outlives batches, and is recreated where it has broken.

    Every command that is sent may be sent twice.

    Args:
        server: Where to.
        clock: Seconds that pass, for the server's patience.
        pause: Waits for a number of seconds.

    Raises:
        Unsupported: The client is not installed.
    """

    def __init__(
        self,
        server: RedisBlobServer,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        redis = client_library()
        self._errors: Any = redis.exceptions
        self._server = server
        self._patience = RetryPatience(server.patience_ms, clock, pause)
        self._checked = False
        secured = {"ssl": True, "ssl_ca_certs": server.authorities} if server.tls else {}
        self._client: Any = redis.Redis(
            host=server.host,
            port=server.port,
            db=server.database,
            username=server.user,
            password=server.password,
            socket_timeout=_SILENCE_S,
            socket_connect_timeout=_SILENCE_S,
            socket_keepalive=True,
            protocol=2,
            retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
            **secured,
        )

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one go, and give their answers.

        Raises:
            Unavailable: It does not answer for as long as it may, or its memory is full.
            Invalid: It refuses the user, the password or a command.
        """
        if not commands:
            return []
        return self._patience.ask(
            lambda: self._once(commands),
            (self._errors.RedisError, OSError),
            refusal=self._refusal,
            silent=self._silent,
        )

    def _once(self, commands: Sequence[Command]) -> list[Any]:
        if not self._checked:
            self._require_all_kept()
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        answers: list[Any] = pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _require_all_kept(self) -> None:
        """Refuse a server that deletes keys of its own accord, where it tells."""
        try:
            policy = self._client.info("memory").get("maxmemory_policy", "")
        except self._errors.NoPermissionError:
            policy = ""
        if str(policy).startswith("allkeys"):
            raise Invalid(
                "this Redis deletes keys when its memory is full, and state would be lost",
                where=self._server.address,
                found=f"maxmemory-policy {policy}",
                expected="maxmemory-policy noeviction",
                hint="set it there: CONFIG SET maxmemory-policy noeviction, and in its configuration file",
            )
        self._checked = True

    def _refusal(self, error: Exception) -> HoldfastError | None:
        """Return the error if a retry cannot help; the text of a reply has no secret in it."""
        errors = self._errors
        where, found = self._server.address, str(error)
        if isinstance(error, errors.OutOfMemoryError):
            return Unavailable(
                "the memory of Redis is full, so the batch was not committed",
                where=where,
                found=found,
                hint="raise maxmemory there, or let state expire sooner: see TTL",
            )
        if isinstance(error, (errors.AuthenticationError, errors.NoPermissionError)):
            return Invalid(
                "Redis refuses the user or the password",
                where=where,
                found=found,
                hint="give hf.Redis(user=…, password=…), or set HOLDFAST_REDIS_PASSWORD before the start",
            )
        passing = (errors.ConnectionError, errors.TimeoutError, errors.ReadOnlyError, errors.TryAgainError)
        if isinstance(error, errors.ResponseError) and not isinstance(error, passing):
            return Invalid(
                "Redis refuses a command",
                where=where,
                found=found,
                hint="see that it is version 6.2 or later, is no cluster, and lets this user read and write",
            )
        return None

    def _silent(self, error: Exception) -> Unavailable:
        return Unavailable(
            "Redis does not answer",
            where=self._server.address,
            found=f"{type(error).__name__}: {error}",
            hint="see that it runs, and that every executor reaches it; a batch that failed can run again",
        )


def client_library() -> Any:
    """The client for Redis, loaded when it is first needed.

    Raises:
        Unsupported: It is not installed.
    """
    try:
        import redis
        import redis.backoff
        import redis.retry
    except ImportError as error:
        raise Unsupported(
            "the Python client for Redis is not installed",
            found=str(error),
            hint="pip install 'holdfast[redis]' for the driver and the workers of every executor",
        ) from error
    return redis
