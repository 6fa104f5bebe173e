"""State in TiKV: which settings it becomes, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from holdfast.config.database_stores import TiKV
from holdfast.config.setting_report import SettingOutcome
from holdfast.engine.session.jars import external_settings

SS = "spark.sql.streaming.stateStore"
OURS = f"{SS}.holdfast"
FILES: dict[str, Any] = {
    "authority": "/tls/ca.pem",
    "certificate": "/tls/client.pem",
    "key": "/tls/client-key.pem",
}


def test_the_spark_settings_of_the_default() -> None:
    assert TiKV().spark_conf() == {
        f"{SS}.providerClass": "holdfast.state.TiKvStateStoreProvider",
        f"{SS}.checkpointFormatVersion": "1",
        f"{SS}.rowChecksum.enabled": "false",
        f"{OURS}.tikv.pd": "127.0.0.1:2379",
        f"{OURS}.prefix": "holdfast",
        f"{OURS}.retain": "10",
        f"{OURS}.cacheBytes": str(256 << 20),
        f"{OURS}.patienceMillis": "60000",
    }


def test_every_field_has_its_setting() -> None:
    told = TiKV("pd1.example:2379, pd2.example:2379", prefix="shop.eu", **FILES).spark_conf()
    assert told[f"{OURS}.tikv.pd"] == "pd1.example:2379,pd2.example:2379"
    assert told[f"{OURS}.prefix"] == "shop.eu"
    for name, file in FILES.items():
        assert told[f"{OURS}.tikv.{name}"] == file
    assert TiKV(**FILES).secrets() == {}


def test_every_field_is_told_in_its_order() -> None:
    knobs = TiKV().knobs()
    assert [knob.name for knob in knobs] == list(TiKV.__dataclass_fields__)
    assert {knob.outcome for knob in knobs} == {SettingOutcome.SPARK}


@pytest.mark.parametrize(
    "wrong",
    [
        {"pd": ""},
        {"pd": "pd.example:0"},
        {"pd": "pd1.example:2379,,"},
        {"pd": "http://pd.example:2379"},
        {"pd": 2379},
        {"authority": "/tls/ca.pem"},
        {"certificate": "/tls/client.pem", "key": "/tls/client-key.pem"},
        {"key": ""},
        {"prefix": "a:b"},
        {"retain": 0},
        {"cache": "much"},
        {"patience": "later"},
    ],
)
def test_a_value_that_does_not_fit_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(hf.Invalid) as refused:
        TiKV(**wrong)
    assert all(name in f"{refused.value} {refused.value.facts()}" for name in wrong)


def test_a_session_brings_the_jar_and_the_client() -> None:
    conf = hf.TiKV().spark_conf()
    assert external_settings(conf) == {
        "spark.jars": str(hf.state_jar()),
        "spark.sql.streaming.streamingQueryListeners": "holdfast.state.CommittedBatches",
        "spark.jars.packages": "org.tikv:tikv-client-java:3.3.5",
        f"{SS}.checkpointFormatVersion": "1",
        f"{SS}.rowChecksum.enabled": "false",
    }
    own_client = {**conf, "spark.jars": "/opt/jars/tikv-client-java-3.3.5.jar"}
    assert "spark.jars.packages" not in external_settings(own_client)
