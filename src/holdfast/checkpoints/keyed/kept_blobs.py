"""Blobs of keyed state that are in a database: where a checkpoint says they are, and how they are read.

The note of an operator names the server, without any password. It is data: Holdfast connects to that server
only if the operator has named it too. Passwords and certificate authorities come from the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from holdfast import layout
from holdfast.checkpoints.problems import SEE_DAMAGE
from holdfast.config.job.cassandra_store import CASSANDRA_PASSWORD_VARIABLE
from holdfast.config.job.external_store import REDIS_PASSWORD_VARIABLE
from holdfast.errors import Corrupt, Invalid, NotFound
from holdfast.external import cassandra_place
from holdfast.external.databases import require_named
from holdfast.external.named_addresses import sole_address
from holdfast.external.redis_place import ADDRESS, CERTIFICATES, USER, RedisPlace, redis_place
from holdfast.formats.text import foreign_json
from holdfast.layout import OwnFile
from holdfast.storage.port import Storage, full
from holdfast.worker.state.external.blob_database import database_at
from holdfast.worker.state.external.blob_store import operator_of, resolved
from holdfast.worker.state.external.cassandra_blobs import CassandraBlobServer
from holdfast.worker.state.external.redis_blobs import RedisBlobServer
from holdfast.worker.state.store import Stored

if TYPE_CHECKING:
    from holdfast.worker.state.external.blob_database import BlobDatabase, BlobServer
    from holdfast.worker.state.external.blob_name import BlobName

# What the note of an operator has to say of its blobs.
BLOBS: Final = "blobs"
_PRODUCT: Final = "product"
_REDIS, _CASSANDRA = RedisBlobServer.product, CassandraBlobServer.product
# Who reads is a person, who would rather know than wait.
_PATIENCE_MS: Final = 5_000


def described(server: BlobServer) -> dict[str, Any]:
    """What a note says of a server."""
    return {_PRODUCT: server.product, **server.described()}


def product_in(note: Mapping[str, Any] | None) -> str | None:
    """The kind of database that a note is of, which was Redis before it was said."""
    return None if note is None else str(note.get(_PRODUCT, _REDIS))


class KeptBlobs:
    """The blobs of a checkpoint that are in databases; its notes are read once, at the first of them.

    Args:
        storage: The checkpoint.
    """

    def __init__(self, storage: Storage) -> None:
        self._where = storage.uri
        self._notes = cache(lambda: dict(_noted(storage)))

    def of_group(self, group: int, stored: Stored) -> Stored:
        """A key group as it is stored, with its blobs in place of the names of those that are in a database.

        Raises:
            Invalid: Nobody says which database it is, or it refuses the password.
            Corrupt: A blob is gone or damaged.
            Unavailable: The database does not answer.
            Unsupported: The client for it is not installed.
        """
        return resolved(stored, group, self._where, self._database)

    def _database(self, name: BlobName) -> BlobDatabase:
        operator = operator_of(name)
        return database_at(_server(self._notes().get(operator), operator, self._where))


def operators_elsewhere(storage: Storage) -> dict[str, str]:
    """The operators whose blobs are in a database, some or all, each with the database's name."""
    return {operator: product_in(note) or "" for operator, note in _noted(storage)}


def _server(note: Mapping[str, Any] | None, operator: str, where: str) -> BlobServer:
    product = product_in(note)
    if product in (None, _REDIS) and (address := sole_address(os.environ, ADDRESS)):
        return _with_password(_redis_at(address))
    if product in (None, _CASSANDRA) and sole_address(os.environ, cassandra_place.ADDRESS):
        return _with_password(_cassandra_at(note))
    if note is None:
        raise Invalid(
            "keyed state of this checkpoint is in a database, and nothing says which it is",
            where=f"{where}, operator {operator}",
            hint=f"set {ADDRESS}=redis://HOST:PORT/DATABASE and {REDIS_PASSWORD_VARIABLE}, or "
            f"{cassandra_place.ADDRESS}=cassandra://HOST:PORT/KEYSPACE and {CASSANDRA_PASSWORD_VARIABLE}",
        )
    note_path = full(where, OwnFile(layout.operator_note(operator)).render())
    server = _server_in(note, note_path)
    require_named(_address(server), note_path)
    return _with_password(server)


def _address(server: RedisBlobServer | CassandraBlobServer) -> str:
    if isinstance(server, CassandraBlobServer):
        return f"cassandra://{server.contact_points}/{server.keyspace}"
    return str(RedisPlace(str(server.host), server.port, server.database, server.tls))


def _with_password(server: RedisBlobServer | CassandraBlobServer) -> BlobServer:
    variable = REDIS_PASSWORD_VARIABLE if server.product == _REDIS else CASSANDRA_PASSWORD_VARIABLE
    return replace(server, password=os.environ.get(variable), patience_ms=_PATIENCE_MS)


def _redis_at(address: str) -> RedisBlobServer:
    place = redis_place(address)
    user, authorities = os.environ.get(USER), os.environ.get(CERTIFICATES)
    return RedisBlobServer(
        place.host, place.port, place.database, user, tls=place.tls, authorities=authorities
    )


def _cassandra_at(note: Mapping[str, Any] | None) -> CassandraBlobServer:
    """As the environment says, with what that leaves as it is noted."""
    noted = note or {}
    place = cassandra_place.cassandra_place(f"127.0.0.1/{noted.get('keyspace', 'holdfast')}")
    authorities = os.environ.get(cassandra_place.CERTIFICATES)
    return CassandraBlobServer(
        place.contact_points,
        place.keyspace,
        user=os.environ.get(cassandra_place.USER) or noted.get("user"),
        tls=authorities is not None or noted.get("tls", False),
        authorities=authorities,
        consistency=noted.get("consistency", "LOCAL_QUORUM"),
    )


def _server_in(note: Mapping[str, Any], where: str) -> RedisBlobServer | CassandraBlobServer:
    product = product_in(note)
    facts = {name: value for name, value in note.items() if name not in (_PRODUCT, "authorities")}
    redis = product == _REDIS
    # Whoever writes the checkpoint does not choose which certificates are trusted.
    authorities = os.environ.get(CERTIFICATES if redis else cassandra_place.CERTIFICATES)
    try:
        if product not in (_REDIS, _CASSANDRA):
            raise TypeError(f"an unknown database, {product}")
        server = RedisBlobServer(**facts) if redis else CassandraBlobServer(**facts)
        return replace(server, authorities=authorities)
    except TypeError as error:
        raise Corrupt(
            "the note of an operator cannot be read", where=where, found=str(error), hint=SEE_DAMAGE
        ) from error


def _noted(storage: Storage) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The operators whose blobs are in a database, with what their notes say of the server."""
    for name in storage.list(layout.OWN).names:
        operator = layout.noted_operator(name)
        if operator is None:
            continue
        try:
            note = foreign_json(storage.read(OwnFile(name).render()))
        except (ValueError, NotFound):
            continue  # who reads the operator itself says that its note is damaged
        if isinstance(note, dict) and isinstance(note.get(BLOBS), dict):
            yield operator, note[BLOBS]
