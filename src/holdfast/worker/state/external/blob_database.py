"""What keyed state asks of a database that keeps its blobs.

Each key group has an index there: the names of its blobs, each with the batch in which any task noted it
last. Whatever is asked may be asked twice, where an answer was lost.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from holdfast.worker.state.external.blob_name import BlobName


@dataclass(slots=True)
class BlobWrites:
    """What a task writes together.

    Attributes:
        batch_id: The task's batch.
        before: What was noted last in a batch before this one is asked for; see `folded`.
        noted: Names that are noted with the task's batch, by key group.
        blobs: Blobs by their keys; all their names are among those noted.
        folded: The key groups that are asked for names noted last before `before`.
    """

    batch_id: int
    before: int
    noted: dict[int, list[str]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    folded: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Replaced:
    """Blobs of a key group that no batch needs any more.

    Attributes:
        group: The key group.
        names: Their names.
        before: All of them were noted last before this batch.
        noted_until: When the newest of the notes that were read was written, as the database counts it; 0 if
            it need not know.
    """

    group: int
    names: tuple[str, ...]
    before: int
    noted_until: int = 0


class BlobDatabase(Protocol):
    """The connection of this process to a database; threads may share it, and processes may not.

    All methods raise `Unavailable` where it does not answer for as long as it may, and `Invalid` where it
    refuses the user, the password or a request.
    """

    @property
    def product(self) -> str:
        """What the database is called, for messages."""

    def write(self, home: str, writes: BlobWrites) -> list[Replaced]:
        """Note names, then write the blobs, and say what was replaced long ago.

        A note never makes a name's batch lower. No blob is there before its name is noted. The names that
        are given have none of the notes of this call.

        Args:
            home: What the keys of this operator of this query begin with.
            writes: What is written and asked for.
        """

    def fetch(self, names: Sequence[BlobName]) -> Sequence[bytes | None]:
        """The blobs of these names in their order, None for one that is not there; nothing is checked.

        All of them are in memory at once.
        """

    def delete(self, home: str, replaced: Sequence[Replaced]) -> None:
        """Delete blobs, then their names in the indexes, though a note that has come since may stay."""


class BlobServer(Hashable, Protocol):
    """Where a database is and how it is asked: a frozen value that is sent to the workers."""

    @property
    def product(self) -> str:
        """What the database is called, for messages."""

    @property
    def prefix(self) -> str:
        """What all keys begin with."""

    def connect(self) -> BlobDatabase:
        """A connection of its own, which is made when it is first asked.

        Raises:
            Unsupported: The client is not installed.
        """

    def described(self) -> Mapping[str, Any]:
        """What the note of an operator says of it, without the password."""


def blob_key(home: str, group: int, name: str) -> str:
    """The key of a blob, which has the name of its group's index before its own."""
    return f"{home}:{group}:{name}"


def database_at(server: BlobServer) -> BlobDatabase:
    """The connection of this process, which outlives batches; one that was forked has its own.

    Raises:
        Unsupported: The client is not installed.
    """
    return _database(server, os.getpid())


@cache
def _database(server: BlobServer, _: int) -> BlobDatabase:
    return server.connect()
