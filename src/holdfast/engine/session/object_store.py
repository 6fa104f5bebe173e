"""The jars that a checkpoint on S3 needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from holdfast.engine.session.user_conf import given_settings, jars_of_spark
from holdfast.engine.versions import installed

S3A: Final = "s3a://"
# The jars of Hadoop's client for S3, and of the file manager, as their names begin.
CLIENT: Final = "hadoop-aws"
CLOUD: Final = "spark-hadoop-cloud"
_JAR_SETTINGS: Final = ("spark.jars", "spark.jars.packages")
RENAMES: Final = "each file is put in place by a copy and a delete, which is no single step"


def package_hint() -> str:
    """What brings the file manager."""
    version = installed("pyspark") or "VERSION"
    return f"add org.apache.spark:{CLOUD}_2.13:{version} to spark.jars.packages, or its jar to spark.jars"


def jar_there(name: str, conf: Mapping[str, str], environ: Mapping[str, str] | None = None) -> str | None:
    """Where a jar comes from: Spark's own directory, or a setting that names it; None where nothing does.

    Reads the names of files; starts nothing.

    Args:
        name: How the jar's name begins.
        conf: Settings that are known beside the machine's own.
        environ: The environment; by default that of this process.
    """
    environ = os.environ if environ is None else environ
    given = {key: value for key, (value, _) in given_settings(environ).items()}
    for key in _JAR_SETTINGS:
        for entry in f"{given.get(key, '')},{conf.get(key, '')}".split(","):
            if name in entry.rpartition("/")[2]:
                return f"{entry.strip()} (from {key})"
    return next((str(jar) for jar in jars_of_spark(environ, f"{name}*.jar")), None)
