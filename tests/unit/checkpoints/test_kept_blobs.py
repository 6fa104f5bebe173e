"""Where a checkpoint says that blobs of keyed state are, and what the environment may say instead."""

from __future__ import annotations

import json

import pytest

from holdfast.checkpoints.keyed import KeptBlobs, described, operators_elsewhere, product_in
from holdfast.errors import Corrupt, Invalid
from holdfast.layout import OwnFile, operator_note
from holdfast.storage.memory import MemoryStorage
from holdfast.worker.state.blob_store import BlobName
from holdfast.worker.state.cassandra_blobs import CassandraBlobServer
from holdfast.worker.state.redis_blobs import RedisBlobServer
from holdfast.worker.state.store import GroupBlobs

CASSANDRA = CassandraBlobServer("one:9042,two:9042", user="reader", password="open sesame", tls=True)
REDIS = RedisBlobServer("one", 6379, password="open sesame")
NAME = BlobName.of("holdfast:keyed:query:visits:3:7-abc-0", b"blob").encode()


def checkpoint(**notes: object) -> MemoryStorage:
    """A checkpoint with notes of what operators say of their blobs."""
    files = {
        OwnFile(operator_note(operator)).render(): json.dumps({"blobs": blobs}).encode()
        for operator, blobs in notes.items()
    }
    return MemoryStorage(files)


def read(storage: MemoryStorage) -> None:
    """Read a group that has a name."""
    KeptBlobs(storage).of_group(3, GroupBlobs(b"{}", (NAME,), ()))


def test_a_note_says_which_database_it_is_and_no_password() -> None:
    for server in (CASSANDRA, REDIS):
        note = described(server)
        assert product_in(note) == server.product
        assert "sesame" not in json.dumps(note)
        assert "sesame" not in repr(server)
    assert product_in({"host": "one", "port": 6379}) == "Redis"
    assert product_in(None) is None


def test_operators_are_named_with_the_databases_that_have_their_blobs() -> None:
    storage = checkpoint(visits=described(CASSANDRA), orders=described(REDIS), other=None)
    assert operators_elsewhere(storage) == {"visits": "Cassandra", "orders": "Redis"}
    assert operators_elsewhere(checkpoint(other=None)) == {}


def test_a_group_without_names_needs_no_database() -> None:
    stored = GroupBlobs(b"{}", (b"base",), (b"log",))
    assert KeptBlobs(checkpoint()).of_group(3, stored) == stored


def test_a_name_is_looked_for_where_its_operator_says() -> None:
    with pytest.raises(Invalid, match="no address is set for the database") as nowhere:
        read(checkpoint(orders=described(REDIS)))
    assert str(nowhere.value.where).endswith("operator visits")
    with pytest.raises(Corrupt, match="the description of an operator cannot be read") as unknown:
        read(checkpoint(visits={"product": "Cassandra", "host": "one"}))
    assert "host" in str(unknown.value.found)
    with pytest.raises(Corrupt, match="the description of an operator cannot be read"):
        read(checkpoint(visits={"product": "TiKV"}))


@pytest.mark.parametrize("server", [REDIS, CASSANDRA], ids=["redis", "cassandra"])
def test_nothing_is_sent_to_a_server_that_only_a_note_names(
    monkeypatch: pytest.MonkeyPatch, server: RedisBlobServer | CassandraBlobServer
) -> None:
    """The note names a host; the operator has a password in the environment, and has named others."""
    product = server.product.upper()
    monkeypatch.setenv(f"HOLDFAST_{product}_PASSWORD", "sesame")
    monkeypatch.setenv(f"HOLDFAST_{product}_ADDRESS", "mine:1 mine:2")
    with pytest.raises(Invalid, match=f"refused to connect to a {server.product} server") as refused:
        read(checkpoint(visits=described(server)))
    assert str(refused.value.where).endswith("_holdfast/operator-visits.json")
    assert f"HOLDFAST_{product}_ADDRESS='mine:1 mine:2 {product.lower()}://one:" in str(refused.value.hint)


@pytest.mark.parametrize(
    "address",
    [
        "redis://one:6379/0",
        "cassandra://reader:sesame@one:9042/holdfast",
        "cassandra://one:99999/holdfast",
        "cassandra:///holdfast",
        "cassandra://one:9042/Holdfast",
        "cassandra://[::1/holdfast",
    ],
)
def test_another_address_has_to_be_one_and_an_error_shows_no_password(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HOLDFAST_CASSANDRA_ADDRESS", address)
    with pytest.raises(Invalid, match="invalid Cassandra address") as refused:
        read(checkpoint(visits=described(CASSANDRA)))
    assert "sesame" not in str(refused.value)
