"""Jars that a session needs beyond Spark's own, by extra."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.engine.versions import installed, minor
from holdfast.errors import Invalid, Unsupported

# Every setting here is a list that a user may have begun; ours are added behind his.
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

# A version that is missing here is one for which no build is known to work.
EXTRAS: dict[str, dict[tuple[int, int], dict[str, str]]] = {
    "delta": {(4, 2): _DELTA},
    "kafka": {
        (4, 2): {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"},
        (4, 3): {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"},
    },
}


def extra_settings(extras: Iterable[str], spark: str) -> dict[str, str]:
    """The Spark settings that bring the named extras' jars.

    Spark fetches them from Maven Central at the first start and keeps them.

    Raises:
        Invalid: No such extra.
        Unsupported: No build of it works with this Spark.
    """
    settings: dict[str, str] = {}
    for extra in extras:
        if extra not in EXTRAS:
            raise Invalid(
                "no such extra",
                where="extras",
                found=repr(extra),
                expected=f"one of {', '.join(EXTRAS)}",
                hint="name other packages in the setting spark.jars.packages",
            )
        builds = EXTRAS[extra]
        if minor(spark) not in builds:
            known = ", ".join(f"{major}.{less}" for major, less in builds)
            raise Unsupported(
                f"no {extra} build works with this Spark",
                where="extras",
                found=f"Spark {spark}",
                expected=f"Spark {known}",
                hint=f"pip install 'pyspark~={known.split(', ')[-1]}.0'",
            )
        for key, value in builds[minor(spark)].items():
            settings[key] = joined(settings.get(key, ""), value) if key in APPENDED else value
    return settings


def has_build(extra: str) -> bool:
    """Whether a build of an extra works with the installed Spark."""
    version = installed("pyspark")
    return version is not None and minor(version) in EXTRAS[extra]


def joined(first: str, more: str) -> str:
    """Two comma-separated lists as one, each entry once, in order."""
    entries = [entry.strip() for entry in f"{first},{more}".split(",")]
    return ",".join(dict.fromkeys(entry for entry in entries if entry))
