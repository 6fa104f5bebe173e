"""The jar with Holdfast's state stores, and the clients of the databases that they keep state in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.spark_defaults import (
    CASSANDRA_PROVIDER,
    EXTERNAL_LAYOUT,
    EXTERNAL_PROVIDERS,
    FORMAT_KEY,
    PROVIDER_KEY,
    REDIS_PROVIDER,
    ROW_CHECKSUM_KEY,
    TIKV_PROVIDER,
)
from holdfast.engine.session.packages import PACKAGES_KEY
from holdfast.errors import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS_KEY: Final = "spark.jars"
LISTENERS_KEY: Final = "spark.sql.streaming.streamingQueryListeners"
# Notes which batch was committed last, for services that read state.
LISTENER: Final = "holdfast.state.CommittedBatches"

# The client of each store, and a class of it that tells whether a session has it already.
_CLIENTS: Final[Mapping[str, tuple[str, str]]] = {
    # The build that has Netty and Jackson under names of its own: Spark has others.
    CASSANDRA_PROVIDER: (
        "org.apache.cassandra:java-driver-core-shaded:4.19.3",
        "com.datastax.oss.driver.api.core.CqlSession",
    ),
    REDIS_PROVIDER: ("redis.clients:jedis:8.0.2", "redis.clients.jedis.Jedis"),
    TIKV_PROVIDER: ("org.tikv:tikv-client-java:3.3.5", "org.tikv.raw.RawKVClient"),
}


def state_jar() -> Path:
    """Tell where the jar of the state stores is, for the `spark.jars` of a session of your own."""
    return Path(__file__).with_name("holdfast-state.jar")


def external_settings(given: Mapping[str, str]) -> dict[str, str]:
    """What a session needs beside its own settings, if these name one of Holdfast's state stores.

    Args:
        given: The session's settings.
    """
    provider = given.get(PROVIDER_KEY)
    if provider not in EXTERNAL_PROVIDERS:
        return {}
    needed = {
        JARS_KEY: str(state_jar()),
        LISTENERS_KEY: LISTENER,
        # Both are ways of RocksDB's files to notice damage.
        FORMAT_KEY: "1",
        ROW_CHECKSUM_KEY: "false",
    }
    package, _ = _CLIENTS[provider]
    artifact = package.split(":")[1]
    if f"/{artifact}-" not in f"/{given.get(JARS_KEY, '')}":
        needed[PACKAGES_KEY] = package
    return needed


def check_state_jar(spark: SparkSession) -> None:
    """See that a session which keeps state outside has the jar of this release, and the client.

    Raises:
        Unsupported: It has not.
    """
    provider = spark.conf.get(PROVIDER_KEY, "")
    if provider not in EXTERNAL_PROVIDERS:
        return
    found = _layout(spark)
    package, client = _CLIENTS[provider]
    if found is None:
        raise Unsupported(
            "the session runs without Holdfast's jar, so it cannot keep state outside the cluster",
            where=JARS_KEY,
            expected=str(state_jar()),
            hint="stop the session and let holdfast.session() make it, or set spark.jars",
        )
    if found != EXTERNAL_LAYOUT:
        raise Unsupported(
            "the session has the jar of another release of Holdfast",
            where=JARS_KEY,
            found=f"layout {found}",
            expected=f"layout {EXTERNAL_LAYOUT}: {state_jar()}",
            hint="give driver and executors one release, then start the session anew",
        )
    if not _has_class(spark, client):
        raise Unsupported(
            "the session has no client for the database of its state",
            where=PACKAGES_KEY,
            expected=package,
            hint="stop the session and let holdfast.session() make it, or set spark.jars.packages",
        )


def _has_class(spark: SparkSession, name: str) -> bool:
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        jvm.java.lang.Class.forName(name, False, loader)
    except Exception:
        return False
    return True


def _layout(spark: SparkSession) -> str | None:
    """The layout that the jar in the session has; None where there is no jar."""
    jvm: Any = spark._jvm
    return str(jvm.holdfast.state.Layout.Version()) if _has_class(spark, "holdfast.state.Layout") else None
