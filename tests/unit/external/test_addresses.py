"""Addresses of databases: what a checkpoint says, what the environment says over it, what is refused."""

from __future__ import annotations

import pytest
from loopback import free_ports

from holdfast.errors import Invalid, Unavailable
from holdfast.external.cassandra_address import cassandra_address
from holdfast.external.cassandra_connection import open_cassandra
from holdfast.external.databases import database_at
from holdfast.external.redis_connection import redis_address

CASSANDRA = "HOLDFAST_CASSANDRA_ADDRESS"
REDIS = "HOLDFAST_REDIS_ADDRESS"


@pytest.mark.parametrize(
    ("address", "given", "expected"),
    [
        ("redis://db:7000/2", {}, "redis://db:7000/2"),
        ("redis://[::1]:6379/0", {}, "redis://[::1]:6379/0"),
        ("redis://db:7000/2", {REDIS: "other:7001"}, "redis://other:7001/2"),
        ("rediss://db:7000/2", {REDIS: "other"}, "rediss://other:6379/2"),
        ("redis://db:7000/2", {REDIS: "rediss://other:1/4"}, "rediss://other:1/4"),
    ],
)
def test_another_way_to_the_same_redis(address: str, given: dict[str, str], expected: str) -> None:
    """The checkpoint says where the executors found it, and the environment how it is reached from here."""
    assert str(redis_address(address, given)) == expected


@pytest.mark.parametrize(
    ("address", "given", "expected"),
    [
        ("cassandra://db:9043/shop", {}, "cassandra://db:9043/shop"),
        ("cassandra://a:9042,b:9043/shop", {}, "cassandra://a:9042,b:9043/shop"),
        # As the job's setting had it.
        ("cassandra://a, b:9043,[::1]/shop", {}, "cassandra://a:9042,b:9043,[::1]:9042/shop"),
        ("a,b", {}, "cassandra://a:9042,b:9042/holdfast"),
        ("a:1/shop", {}, "cassandra://a:1/shop"),
        ("cassandra://db:9043/shop", {CASSANDRA: "other:1"}, "cassandra://other:1/shop"),
        ("cassandra://db:9043/shop", {CASSANDRA: "cassandra://other:1/k"}, "cassandra://other:1/k"),
    ],
)
def test_another_way_to_the_same_cassandra(address: str, given: dict[str, str], expected: str) -> None:
    assert str(cassandra_address(address, given)) == expected


@pytest.mark.parametrize(
    "address",
    [
        "redis://db:6379/0",
        "cassandra://",
        "cassandra://a:0/k",
        "cassandra://a:70000/k",
        "cassandra://a,,b/k",
        "cassandra://a/Shop",
        "cassandra://a/k; DROP KEYSPACE k",
        "cassandra://user:sesame@a:9042/k",
    ],
)
def test_what_is_no_address_of_cassandra(address: str) -> None:
    with pytest.raises(Invalid, match="invalid Cassandra address") as refused:
        cassandra_address(address, {})
    assert "sesame" not in str(refused.value)


def test_the_scheme_says_which_database_it_is() -> None:
    with pytest.raises(Invalid, match="invalid database address") as refused:
        database_at("http://127.0.0.1:1")
    assert "redis://HOST" in str(refused.value)
    assert "cassandra://HOST" in str(refused.value)
    with pytest.raises(Invalid, match="found none"):
        database_at("")


def test_a_consistency_that_loses_writes_is_refused() -> None:
    address = cassandra_address("a", {})
    with pytest.raises(Invalid, match=r"(?s)unsupported consistency .* LOCAL_QUORUM or QUORUM"):
        open_cassandra(address, {"HOLDFAST_CASSANDRA_CONSISTENCY": "ONE"})


def test_one_connection_for_all_who_come_in_alike() -> None:
    address = cassandra_address("a", {})
    secret = {"HOLDFAST_CASSANDRA_USER": "shop", "HOLDFAST_CASSANDRA_PASSWORD": "sesame"}
    one, other = open_cassandra(address, {}), open_cassandra(address, secret)
    assert open_cassandra(address, {}) is one
    assert open_cassandra(address, secret) is other is not one
    assert "sesame" not in f"{other!r} {vars(other)}"


@pytest.mark.parametrize("kind", ["cassandra", "redis"])
@pytest.mark.slow
def test_nobody_is_there(kind: str) -> None:
    """Nothing is asked before something is needed."""
    (nobody,) = free_ports(1)
    database = database_at(f"{kind}://127.0.0.1:{nobody}/{'k' if kind == 'cassandra' else 0}")
    store = database.store("a store")
    for ask in (database.ping, store.look, store.clear):
        with pytest.raises(Unavailable, match=f"{kind.title()} does not answer"):
            ask()


def test_names_that_lead_nowhere() -> None:
    with pytest.raises(Unavailable, match="the host names do not resolve"):
        database_at("cassandra://nowhere.invalid:9042/k").ping()


def test_a_certificate_authority_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("HOLDFAST_CASSANDRA_CA", str(tmp_path_factory.getbasetemp() / "not-there.pem"))
    with pytest.raises(Invalid, match="CA certificate file for Cassandra cannot be read"):
        database_at("cassandra://127.0.0.1:1/k").ping()
