"""The storage of blobs of keyed state in Redis: one round trip writes a task's blobs, one deletes old ones.

The index of a key group is a sorted set under the name of the group, with batches as scores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from holdfast.errors import HoldfastError, Invalid
from holdfast.external.redis_connection import RedisAddress, RedisConnection
from holdfast.worker.state.blob_store import BlobName, BlobWrites, ReplacedBlobs, RetryPatience, blob_key

# The maximum wait for more data of an answer.
_SILENCE_S: Final = 5.0
# The maximum number of blobs that a fold deletes: one command delays all others.
_DELETED: Final = 10_000

Command = Sequence[Any]


@dataclass(frozen=True, slots=True)
class RedisBlobServer(RedisAddress):
    """The address of a Redis server for blobs, with options.

    Attributes:
        prefix: The prefix of all keys.
        patience_ms: The maximum time in milliseconds for retrying a request.
    """

    prefix: str = "holdfast"
    patience_ms: int = 60_000

    product: ClassVar[str] = "Redis"

    def connect(self) -> RedisBlobs:
        """Return a new connection, which is opened at its first request.

        Raises:
            Unsupported: The client library of Redis is not installed.
        """
        return RedisBlobs(RedisRequests(self))

    def described(self) -> dict[str, Any]:
        """Return the fields of the address for an operator's note, without the password."""
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
    """The blobs in a Redis server; see `BlobDatabase`.

    Args:
        requests: The connection that sends the requests.
    """

    product: ClassVar[str] = RedisBlobServer.product

    def __init__(self, requests: RedisRequests) -> None:
        self._requests = requests

    def write(self, home: str, writes: BlobWrites) -> list[ReplacedBlobs]:
        """Record names, write the blobs, and return the blobs that can be deleted, in one round trip."""
        commands: list[Command] = []
        for group, names in writes.noted.items():
            scored = [part for name in names for part in (writes.batch_id, name)]
            commands.append(("ZADD", _index(home, group), "GT", *scored))
        if writes.blobs:
            # After the indexes, so that every existing blob is in an index.
            commands.append(("MSET", *(part for pair in writes.blobs.items() for part in pair)))
        limits = ("-inf", f"({writes.before}", "LIMIT", 0, _DELETED)
        commands += [("ZRANGEBYSCORE", _index(home, group), *limits) for group in writes.folded]
        answers = self._requests.ask(commands)[len(commands) - len(writes.folded) :]
        return [
            ReplacedBlobs(group, tuple(bytes(name).decode() for name in names), writes.before)
            for group, names in zip(writes.folded, answers, strict=True)
            if names
        ]

    def fetch(self, names: Sequence[BlobName]) -> Sequence[bytes | None]:
        """Return the blobs with these names in order, None for a missing one, in one round trip."""
        if not names:
            return []
        (blobs,) = self._requests.ask([("MGET", *(name.key for name in names))])
        return list(blobs)

    def delete(self, home: str, replaced: Sequence[ReplacedBlobs]) -> None:
        """Delete blobs, then their names in the indexes, in one round trip."""
        commands: list[Command] = []
        for gone in replaced:
            # The index is deleted last, so that every existing blob is in it.
            commands.append(("UNLINK", *(blob_key(home, gone.group, name) for name in gone.names)))
            commands.append(("ZREM", _index(home, gone.group), *gone.names))
        self._requests.ask(commands)


def _index(home: str, group: int) -> str:
    return f"{home}:{group}"


class RedisRequests:
    """The sender of requests over one connection, with retries.

    Every command may be sent more than once.

    Args:
        server: The address of the server.
        clock: Returns a time in seconds that only increases.
        pause: Waits for a number of seconds.
        one_key: Whether each command has one key, so that the server may be a cluster or a Sentinel.

    Raises:
        Unsupported: The client library of Redis is not installed.
    """

    def __init__(
        self,
        server: RedisBlobServer,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        one_key: bool = False,
    ) -> None:
        self._connection = RedisConnection(server, answer_s=_SILENCE_S)
        self._one_key = one_key
        self._patience = RetryPatience(server.patience_ms, clock, pause)
        self._checked = False

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one round trip and return their answers.

        Raises:
            Unavailable: The server does not answer within the time for retries, or its memory is full.
            Invalid: The server rejects the user, the password or a command.
        """
        if not commands:
            return []
        return self._patience.ask(
            lambda: self._once(commands),
            (self._connection.errors.RedisError, OSError),
            refusal=self._refusal,
            silent=self._connection.silence,
        )

    def _once(self, commands: Sequence[Command]) -> list[Any]:
        if not self._checked:
            self._require_all_kept()
        client = self._connection.routed() if self._one_key else self._connection.client
        pipeline = client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        answers: list[Any] = pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _require_all_kept(self) -> None:
        """Raise an error if the server reports a policy that evicts keys."""
        try:
            policy = self._connection.client.info("memory").get("maxmemory_policy", "")
        except self._connection.errors.NoPermissionError:
            policy = ""
        if str(policy).startswith("allkeys"):
            raise Invalid(
                "Redis would delete state when its memory is full",
                code="HF-E2521",
                where=str(self._connection.address),
                found=f"maxmemory-policy {policy}",
                expected="maxmemory-policy noeviction",
                hint="run CONFIG SET maxmemory-policy noeviction, and set it in the configuration file",
            )
        self._checked = True

    def _refusal(self, error: Exception) -> HoldfastError | None:
        """Return the error for a permanent failure, or None if a retry may succeed."""
        refused = self._connection.refusal(error)
        errors = self._connection.errors
        if refused is not None or not isinstance(error, errors.ResponseError):
            return refused
        if isinstance(error, (errors.ReadOnlyError, errors.TryAgainError)):
            return None
        return Invalid(
            "Redis rejected a command",
            code="HF-E2522",
            where=str(self._connection.address),
            found=str(error),
            hint="check that Redis is 6.2 or later, is not a cluster, and lets this user read and write",
        )
