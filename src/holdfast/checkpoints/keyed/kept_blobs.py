"""Blobs of keyed state that are in Redis: where a checkpoint says they are, and how they are read from there.

The note of an operator names the server, without any password. The environment says otherwise where the
database has moved, and has the password.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final

from holdfast import layout
from holdfast.checkpoints.problems import SEE_DAMAGE
from holdfast.config.job.external_store import REDIS_PASSWORD_VARIABLE
from holdfast.errors import Corrupt, Invalid, NotFound
from holdfast.external.redis_place import ADDRESS, CERTIFICATES, USER, redis_place
from holdfast.layout import OwnFile
from holdfast.storage.port import Storage, full
from holdfast.worker.state.external.blob_server import BlobServer, Connection, connection_to
from holdfast.worker.state.external.blob_store import resolved
from holdfast.worker.state.store import Stored

# What the note of an operator has to say of its blobs.
BLOBS: Final = "blobs"
# Who reads is a person, who would rather know than wait.
_PATIENCE_MS: Final = 5_000


def described(server: BlobServer) -> dict[str, Any]:
    """What a note says of a server."""
    named = {
        "host": server.host,
        "port": server.port,
        "database": server.database,
        "user": server.user,
        "tls": server.tls,
        "authorities": server.authorities,
    }
    return {name: value for name, value in named.items() if value is not None}


class KeptBlobs:
    """The blobs of a checkpoint that are in Redis; its notes are read once, at the first of them.

    Args:
        storage: The checkpoint.
    """

    def __init__(self, storage: Storage) -> None:
        self._where = storage.uri
        self._connection = cache(partial(_connection, storage))

    def of_group(self, group: int, stored: Stored) -> Stored:
        """A key group as it is stored, with its blobs in place of the names of those that are in Redis.

        Raises:
            Invalid: Nobody says which Redis it is, or it refuses the password.
            Corrupt: A blob is gone or damaged.
            Unavailable: Redis does not answer.
            Unsupported: The client for Redis is not installed.
        """
        return resolved(stored, group, self._where, self._connection)


def operators_elsewhere(storage: Storage) -> list[str]:
    """The operators whose blobs are in Redis, some or all."""
    return [name for name, _ in _noted(storage)]


def _connection(storage: Storage) -> Connection:
    address = os.environ.get(ADDRESS)
    if address:
        server = _server_at(address)
    else:
        noted = {_server_in(note, full(storage.uri, name)) for name, note in _noted(storage)}
        if len(noted) != 1:
            raise Invalid(
                "keyed state of this checkpoint is in Redis, and nothing says which it is",
                where=storage.uri,
                found=f"{len(noted)} servers in the notes of its operators",
                hint=f"set {ADDRESS}=redis://HOST:PORT/DATABASE, and {REDIS_PASSWORD_VARIABLE}",
            )
        (server,) = noted
    password = os.environ.get(REDIS_PASSWORD_VARIABLE)
    return connection_to(replace(server, password=password, patience_ms=_PATIENCE_MS))


def _server_at(address: str) -> BlobServer:
    place = redis_place(address)
    user, authorities = os.environ.get(USER), os.environ.get(CERTIFICATES)
    return BlobServer(place.host, place.port, place.database, user, tls=place.tls, authorities=authorities)


def _server_in(note: Mapping[str, Any], where: str) -> BlobServer:
    try:
        return BlobServer(**note)
    except TypeError as error:
        raise Corrupt(
            "the note of an operator cannot be read", where=where, found=str(error), hint=SEE_DAMAGE
        ) from error


def _noted(storage: Storage) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The operators whose blobs are in Redis, with what their notes say of the server."""
    for name in storage.list(layout.OWN).names:
        operator = layout.noted_operator(name)
        if operator is None:
            continue
        try:
            note = json.loads(storage.read(OwnFile(name).render()))
        except (ValueError, RecursionError, NotFound):
            continue  # who reads the operator itself says that its note is damaged
        if isinstance(note, dict) and isinstance(note.get(BLOBS), dict):
            yield operator, note[BLOBS]
