"""The jars that a session needs in addition to Spark's own, and the errors of fetching them.

Spark resolves `spark.jars.packages` in the JVM before Python can reach the JVM. The errors are only in the
JVM's standard error, which is that of this process. In a driver it is a file, which can be read; on a
terminal or in a pipe the user reads it directly.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from holdfast.config.installed_spark import given_settings, jars_of_spark
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
from holdfast.config.spark_versions import installed, minor
from holdfast.errors import HoldfastError, Invalid, NotFound, Unavailable, Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


S3A: Final = "s3a://"
# The prefixes of the jars with Hadoop's client for S3 and with the file manager.
CLIENT: Final = "hadoop-aws"
CLOUD: Final = "spark-hadoop-cloud"
_JAR_SETTINGS: Final = ("spark.jars", "spark.jars.packages")
RENAMES: Final = "a rename on S3 is a copy and a delete, which is not atomic"


def package_hint() -> str:
    """Return the hint for installing the file manager."""
    version = installed("pyspark") or "VERSION"
    return f"add org.apache.spark:{CLOUD}_2.13:{version} to spark.jars.packages, or its jar to spark.jars"


def jar_there(name: str, conf: Mapping[str, str], environ: Mapping[str, str] | None = None) -> str | None:
    """Return the origin of a jar, which is Spark's own directory or a setting, or None without the jar.

    It reads the names of files and starts nothing.

    Args:
        name: The prefix of the jar's name.
        conf: The settings in addition to those of the machine.
        environ: The environment; by default that of this process.
    """
    environ = os.environ if environ is None else environ
    given = {key: value for key, (value, _) in given_settings(environ).items()}
    for key in _JAR_SETTINGS:
        for entry in f"{given.get(key, '')},{conf.get(key, '')}".split(","):
            if name in entry.rpartition("/")[2]:
                return f"{entry.strip()} (from {key})"
    return next((str(jar) for jar in jars_of_spark(environ, f"{name}*.jar")), None)


# Each of these settings is a list that the user may have set; Holdfast's entries are appended.
APPENDED = (
    "spark.jars",
    "spark.jars.packages",
    "spark.sql.extensions",
    "spark.sql.streaming.streamingQueryListeners",
)

_DELTA = {
    "spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

Extra: TypeAlias = Literal["delta", "kafka"]
# No build is known to work with a version that is not listed.
EXTRAS: dict[Extra, dict[tuple[int, int], dict[str, str]]] = {
    "delta": {(4, 2): _DELTA},
    "kafka": {
        (4, 2): {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"},
        (4, 3): {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"},
    },
}


def extra_settings(extras: Iterable[Extra], spark: str) -> dict[str, str]:
    """Return the Spark settings for the jars of the given extras.

    Spark fetches them from Maven Central at the first start and caches them.

    Raises:
        Invalid: An extra is unknown.
        Unsupported: No build of an extra works with this version of Spark.
    """
    settings: dict[str, str] = {}
    for extra in extras:
        if extra not in EXTRAS:
            raise Invalid(
                "unknown extra",
                code="HF-E2191",
                where="extras",
                found=repr(extra),
                expected=f"one of {', '.join(EXTRAS)}",
                hint="add other packages with the setting spark.jars.packages",
            )
        builds = EXTRAS[extra]
        if minor(spark) not in builds:
            known = ", ".join(f"{major}.{less}" for major, less in builds)
            raise Unsupported(
                f"no {extra} package works with this Spark version",
                code="HF-E7048",
                where="extras",
                found=f"Spark {spark}",
                expected=f"Spark {known}",
                hint=f"install a supported Spark with `pip install 'pyspark~={known.split(', ')[-1]}.0'`",
            )
        for key, value in builds[minor(spark)].items():
            settings[key] = joined(settings.get(key, ""), value) if key in APPENDED else value
    return settings


def has_build(extra: Extra) -> bool:
    """Return whether a build of an extra works with the installed version of Spark."""
    version = installed("pyspark")
    return version is not None and minor(version) in EXTRAS[extra]


def joined(first: str, more: str) -> str:
    """Return two comma-separated lists joined in order, without duplicates."""
    entries = [entry.strip() for entry in f"{first},{more}".split(",")]
    return ",".join(dict.fromkeys(entry for entry in entries if entry))


PACKAGES_KEY: Final = "spark.jars.packages"
_NO_JVM: Final = "JAVA_GATEWAY_EXITED"
# More than the output of Spark and Ivy for about a hundred packages.
_MOST_BYTES: Final = 4 << 20
_FACT: Final = "Spark could not fetch packages"
# The message of Ivy in the JVM's last error, with group, artifact and version.
_UNRESOLVED: Final = re.compile(
    r"(?:unresolved dependency|download failed): "
    r"(?P<group>[^\s#]+)#(?P<name>[^\s;]+);(?P<version>[^\s:!,\]]+)"
)
# The message of Ivy for a server that did not answer, as opposed to a missing package.
_NO_SERVER: Final = re.compile(
    r"Host \S+ not found|through a proxy server|(?:SERVER|CLIENT) ERROR|Server access error"
    r"|Connect\w*Exception|Connection (?:refused|reset|closed|timed out)|timed out|UnknownHost"
    r"|NoRouteToHost|SSL\w*Exception",
    re.IGNORECASE,
)
_OFFLINE: Final = (
    "without a network, list local jars in spark.jars; with a mirror, set spark.jars.repositories or"
    " spark.jars.ivySettings; behind a proxy, set"
    " JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'"
)
_WRONG: Final = (
    "check group, artifact and version, which must fit Spark and Scala; for your own packages set"
    " spark.jars.repositories, or list their jars in spark.jars"
)


@contextmanager
def unresolved_told(packages: str) -> Iterator[None]:
    """Raise a Holdfast error if Spark's JVM ends within the block because packages cannot be resolved.

    Args:
        packages: The value of `spark.jars.packages`.

    Raises:
        NotFound: A package does not exist.
        Unavailable: A package server was not reached, or the cause is unknown.
    """
    sys.stderr.flush()
    begin = _end_of_stderr()
    try:
        yield
    except Exception as error:
        if not packages or _NO_JVM not in str(error):
            raise
        text = None if begin is None else _stderr_from(begin)
        if text is None:
            raise _unknown(packages) from error
        unresolved = unresolved_error(text)
        if unresolved is None:
            raise
        raise unresolved from error


def unresolved_error(text: str) -> HoldfastError | None:
    """Return the error for Spark's output, or None if the output does not mention unresolved packages."""
    found = [f"{match['group']}:{match['name']}:{match['version']}" for match in _UNRESOLVED.finditer(text)]
    if not found:
        return None
    # The packages are in the fact, because some places show only the fact.
    fact = f"{_FACT}: {', '.join(dict.fromkeys(found))}"
    if _NO_SERVER.search(text):
        return Unavailable(
            fact, code="HF-E5014", where=PACKAGES_KEY, found="no answer from a server", hint=_OFFLINE
        )
    return NotFound(
        fact, code="HF-E3036", where=PACKAGES_KEY, found="no server with these packages", hint=_WRONG
    )


def _unknown(packages: str) -> Unavailable:
    return Unavailable(
        "Java ended before Spark started, possibly because packages could not be fetched",
        code="HF-E5015",
        where=PACKAGES_KEY,
        found=packages,
        hint=f"read the standard error of Java; {_OFFLINE}",
    )


def _end_of_stderr() -> int | None:
    """Return the length of standard error, or None if it is not a file."""
    try:
        found = os.fstat(2)
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _stderr_from(begin: int) -> str | None:
    try:
        # Opened again, because standard error is open for writing.
        with Path("/dev/fd/2").open("rb") as file:
            file.seek(begin)
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


JARS_KEY: Final = "spark.jars"
LISTENERS_KEY: Final = "spark.sql.streaming.streamingQueryListeners"
# Records the last committed batch, for services that read state.
LISTENER: Final = "holdfast.state.CommittedBatches"

# The client library of each store, and a class by which it is detected in a session.
_CLIENTS: Final[Mapping[str, tuple[str, str]]] = {
    # The build with its own copies of Netty and Jackson, whose versions differ from Spark's.
    CASSANDRA_PROVIDER: (
        "org.apache.cassandra:java-driver-core-shaded:4.19.3",
        "com.datastax.oss.driver.api.core.CqlSession",
    ),
    REDIS_PROVIDER: ("redis.clients:jedis:8.0.2", "redis.clients.jedis.Jedis"),
    TIKV_PROVIDER: ("org.tikv:tikv-client-java:3.3.5", "org.tikv.raw.RawKVClient"),
}


def state_jar() -> Path:
    """Return the path of the jar with Holdfast's state stores, for the `spark.jars` of your own session.

    `hf.session` and `hf.configure` add the jar if the state is in a database.

    Example:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.config("spark.jars", str(hf.state_jar()))
        assert hf.state_jar().suffix == ".jar"
    """
    return Path(__file__).with_name("holdfast-state.jar")


def external_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the additional settings of a session that uses one of Holdfast's state stores.

    Args:
        given: The settings of the session.
    """
    provider = given.get(PROVIDER_KEY)
    if provider not in EXTERNAL_PROVIDERS:
        return {}
    needed = {
        JARS_KEY: str(state_jar()),
        LISTENERS_KEY: LISTENER,
        # Both settings detect damage in RocksDB's files.
        FORMAT_KEY: "1",
        ROW_CHECKSUM_KEY: "false",
    }
    package, _ = _CLIENTS[provider]
    artifact = package.split(":")[1]
    if f"/{artifact}-" not in f"/{given.get(JARS_KEY, '')}":
        needed[PACKAGES_KEY] = package
    return needed


def check_state_jar(spark: SparkSession) -> None:
    """Check that a session with state in a database has the jar of this release and the client library.

    Raises:
        Unsupported: The jar or the client library is missing, or is of a different release.
    """
    provider = spark.conf.get(PROVIDER_KEY, "")
    if provider not in EXTERNAL_PROVIDERS:
        return
    found = _layout(spark)
    package, client = _CLIENTS[provider]
    if found is None:
        raise Unsupported(
            "the session lacks Holdfast's jar for state in a database",
            code="HF-E7049",
            where=JARS_KEY,
            expected=str(state_jar()),
            hint="stop the session and create it with holdfast.session(), or set spark.jars",
        )
    if found != EXTERNAL_LAYOUT:
        raise Unsupported(
            "the session has the jar of a different Holdfast release",
            code="HF-E7050",
            where=JARS_KEY,
            found=f"layout {found}",
            expected=f"layout {EXTERNAL_LAYOUT}: {state_jar()}",
            hint="use the same release on driver and executors, then restart the session",
        )
    if not _has_class(spark, client):
        raise Unsupported(
            "the session lacks the client library of the database that stores the state",
            code="HF-E7051",
            where=PACKAGES_KEY,
            expected=package,
            hint="stop the session and create it with holdfast.session(), or set spark.jars.packages",
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
    """Return the layout version of the session's jar, or None without the jar."""
    jvm: Any = spark._jvm
    return str(jvm.holdfast.state.Layout.Version()) if _has_class(spark, "holdfast.state.Layout") else None
