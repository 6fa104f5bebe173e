"""State in Cassandra: which settings it becomes, and that nothing shows a password."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from holdfast.config.backend import ExternalStore
from holdfast.config.database_stores import CASSANDRA_PASSWORD_VARIABLE, Cassandra
from holdfast.engine.session.jars import external_settings

SS = "spark.sql.streaming.stateStore"
OURS = f"{SS}.holdfast"


def test_the_spark_settings_of_the_default() -> None:
    assert Cassandra().spark_conf() == {
        f"{SS}.providerClass": "holdfast.state.CassandraStateStoreProvider",
        f"{SS}.checkpointFormatVersion": "1",
        f"{SS}.rowChecksum.enabled": "false",
        f"{OURS}.cassandra.contactPoints": "127.0.0.1:9042",
        f"{OURS}.cassandra.keyspace": "holdfast",
        f"{OURS}.cassandra.tls": "false",
        f"{OURS}.cassandra.consistency": "LOCAL_QUORUM",
        f"{OURS}.prefix": "holdfast",
        f"{OURS}.retain": "10",
        f"{OURS}.cacheBytes": str(256 << 20),
        f"{OURS}.patienceMillis": "60000",
    }


def test_every_field_has_its_setting() -> None:
    told = Cassandra(
        "one.example:7000, two.example,[::1]:9042",
        local_datacenter="east",
        keyspace="shop_state",
        user="shop",
        tls=True,
        trust_store="/etc/ca.p12",
        replication=3,
        consistency="QUORUM",
        prefix="shop.eu",
    ).spark_conf()
    assert told[f"{OURS}.cassandra.contactPoints"] == "one.example:7000, two.example,[::1]:9042"
    assert told[f"{OURS}.cassandra.localDatacenter"] == "east"
    assert told[f"{OURS}.cassandra.keyspace"] == "shop_state"
    assert told[f"{OURS}.cassandra.user"] == "shop"
    assert told[f"{OURS}.cassandra.tls"] == "true"
    assert told[f"{OURS}.cassandra.trustStore"] == "/etc/ca.p12"
    assert told[f"{OURS}.cassandra.replication"] == "3"
    assert told[f"{OURS}.cassandra.consistency"] == "QUORUM"
    assert told[f"{OURS}.prefix"] == "shop.eu"


def test_a_password_is_in_nothing_that_is_printed_or_given_to_a_command_line() -> None:
    store = Cassandra(password="sesame", trust_store="/ca.p12", trust_store_password="mellon")
    for text in (repr(store), str(store.spark_conf()), str(store.knobs())):
        assert "sesame" not in text
        assert "mellon" not in text
    assert store.secrets({}) == {
        f"{OURS}.cassandra.password": "sesame",
        f"{OURS}.cassandra.trustStorePassword": "mellon",
    }


def test_the_environment_gives_the_password_where_the_job_has_none() -> None:
    environ = {CASSANDRA_PASSWORD_VARIABLE: "from-the-environment"}
    assert Cassandra().secrets(environ) == {f"{OURS}.cassandra.password": "from-the-environment"}
    assert Cassandra(password="own").secrets(environ) == {f"{OURS}.cassandra.password": "own"}
    assert Cassandra().secrets({}) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"contact_points": ""},
        {"contact_points": "one.example,"},
        {"contact_points": "one.example:9042,two.example:0"},
        {"contact_points": ["one.example"]},
        {"local_datacenter": ""},
        {"keyspace": "Shop"},
        {"keyspace": "shop-state"},
        {"keyspace": "s" * 49},
        {"user": ""},
        {"password": 5},
        {"tls": "yes"},
        {"replication": 0},
        {"consistency": "ONE"},
        {"prefix": "a:b"},
        {"retain": 0},
    ],
)
def test_a_value_that_does_not_fit_is_refused(wrong: dict[str, Any]) -> None:
    [name] = wrong
    with pytest.raises(hf.Invalid, match=name):
        Cassandra(**wrong)


def test_a_contact_point_with_a_password_in_it_is_refused_and_not_repeated() -> None:
    with pytest.raises(hf.Invalid) as refused:
        Cassandra("cassandra://shop:sesame@one.example:9042,two.example")
    assert "sesame" not in f"{refused.value} {refused.value.facts()}"


def test_a_session_brings_the_jar_and_the_client_and_sets_the_secrets_later() -> None:
    conf = Cassandra().spark_conf()
    assert external_settings(conf)["spark.jars"] == str(hf.state_jar())
    package = external_settings(conf)["spark.jars.packages"]
    assert package == "org.apache.cassandra:java-driver-core-shaded:4.19.3"
    own_client = {**conf, "spark.jars": "/opt/jars/java-driver-core-shaded-4.19.3.jar"}
    assert "spark.jars.packages" not in external_settings(own_client)
    assert isinstance(Cassandra(), ExternalStore)


def test_every_setting_has_an_explanation() -> None:
    store = Cassandra()
    assert [knob.name for knob in store.knobs()] == list(Cassandra.__dataclass_fields__)
