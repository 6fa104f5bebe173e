"""State in Redis: which settings it becomes, and that nothing shows a password."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from holdfast.config.database_stores import REDIS_PASSWORD_VARIABLE, Redis
from holdfast.config.spark_defaults import DEFAULTS
from holdfast.engine.session.jars import external_settings

SS = "spark.sql.streaming.stateStore"
OURS = f"{SS}.holdfast"


def test_the_spark_settings_of_the_default() -> None:
    assert Redis().spark_conf() == {
        f"{SS}.providerClass": "holdfast.state.RedisStateStoreProvider",
        f"{SS}.checkpointFormatVersion": "1",
        f"{SS}.rowChecksum.enabled": "false",
        f"{OURS}.redis.address": "127.0.0.1:6379",
        f"{OURS}.redis.database": "0",
        f"{OURS}.redis.tls": "false",
        f"{OURS}.prefix": "holdfast",
        f"{OURS}.retain": "10",
        f"{OURS}.cacheBytes": str(256 << 20),
        f"{OURS}.patienceMillis": "60000",
    }


def test_every_field_has_its_setting() -> None:
    told = Redis(
        "redis.example:7000", database=3, user="shop", tls=True, trust_store="/etc/ca.p12", prefix="shop.eu"
    ).spark_conf()
    assert told[f"{OURS}.redis.address"] == "redis.example:7000"
    assert told[f"{OURS}.redis.database"] == "3"
    assert told[f"{OURS}.redis.user"] == "shop"
    assert told[f"{OURS}.redis.tls"] == "true"
    assert told[f"{OURS}.redis.trustStore"] == "/etc/ca.p12"
    assert told[f"{OURS}.prefix"] == "shop.eu"


def test_a_password_is_in_nothing_that_is_printed_or_given_to_a_command_line() -> None:
    store = Redis(password="sesame", trust_store="/ca.p12", trust_store_password="mellon")
    for text in (repr(store), str(store.spark_conf()), str(store.knobs())):
        assert "sesame" not in text
        assert "mellon" not in text
    assert store.secrets({}) == {
        f"{OURS}.redis.password": "sesame",
        f"{OURS}.redis.trustStorePassword": "mellon",
    }


def test_the_environment_gives_the_password_where_the_job_has_none() -> None:
    environ = {REDIS_PASSWORD_VARIABLE: "from-the-environment"}
    assert Redis().secrets(environ) == {f"{OURS}.redis.password": "from-the-environment"}
    assert Redis(password="own").secrets(environ) == {f"{OURS}.redis.password": "own"}
    assert Redis().secrets({}) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": ""},
        {"address": "redis.example:0"},
        {"address": "redis.example:70000"},
        {"address": "two words"},
        {"address": 6379},
        {"database": -1},
        {"database": "0"},
        {"user": ""},
        {"password": ""},
        {"password": 5},
        {"tls": "yes"},
        {"prefix": "a b"},
        {"prefix": "{a}"},
        {"prefix": "a:b"},
        {"retain": 0},
        {"cache": "much"},
        {"patience": "later"},
    ],
)
def test_a_value_that_does_not_fit_is_refused(wrong: dict[str, Any]) -> None:
    [name] = wrong
    with pytest.raises(hf.Invalid, match=name):
        Redis(**wrong)


def test_an_address_with_a_password_in_it_is_refused_and_not_repeated() -> None:
    with pytest.raises(hf.Invalid) as refused:
        Redis("redis://shop:sesame@redis.example:6379")
    assert "sesame" not in f"{refused.value} {refused.value.facts()}"


def test_a_session_brings_the_jar_and_the_client_only_where_state_is_kept_outside() -> None:
    assert external_settings({}) == {}
    assert external_settings(hf.RocksDB().spark_conf()) == {}
    conf = Redis().spark_conf()
    assert external_settings(conf) == {
        "spark.jars": str(hf.state_jar()),
        "spark.jars.packages": "redis.clients:jedis:8.0.2",
        "spark.sql.streaming.streamingQueryListeners": "holdfast.state.CommittedBatches",
        f"{SS}.checkpointFormatVersion": "1",
        f"{SS}.rowChecksum.enabled": "false",
    }
    own_client = {**conf, "spark.jars": "/opt/jars/jedis-8.0.2.jar"}
    assert "spark.jars.packages" not in external_settings(own_client)


def test_the_settings_undo_what_the_defaults_of_rocksdb_would_add() -> None:
    """Else Spark would look for checksums and file names that only RocksDB writes."""
    defaults = {default.key: default.value for default in DEFAULTS}
    for key in (f"{SS}.checkpointFormatVersion", f"{SS}.rowChecksum.enabled"):
        assert Redis().spark_conf()[key] != defaults[key]
