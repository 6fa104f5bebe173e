"""Checkpoints on S3: the file manager for them, and what has to be there for it.

Spark's usual file manager writes a file under another name and renames it. S3 knows no rename: S3A copies the
file and deletes the first one, which is no single step. The manager of Spark's package spark-hadoop-cloud
uploads under the file's own name, and gives the upload up where it must not be seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.spark_defaults import ABORTABLE_MANAGER, FILE_MANAGER_KEY
from holdfast.engine.connect.classic_only import is_connect
from holdfast.engine.session.user_conf import given_settings, jars_of_spark
from holdfast.engine.versions import installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S3A: Final = "s3a://"
# The jars of Hadoop's client for S3, and of the file manager, as their names begin.
CLIENT: Final = "hadoop-aws"
CLOUD: Final = "spark-hadoop-cloud"
_JAR_SETTINGS: Final = ("spark.jars", "spark.jars.packages")
RENAMES: Final = "each file is put in place by a copy and a delete, which is no single step"


@contextmanager
def files_of(spark: SparkSession, checkpoint: str) -> Iterator[bool]:
    """Within the block a query that starts on S3 gets the file manager for S3, where that is there.

    The setting is changed for the start alone: the manager refuses other file systems, and one session may
    have queries on several. What a person has set stays.

    Yields:
        Whether its files are put in place without renames, as far as that matters there.
    """
    if not checkpoint.startswith(S3A):
        yield True
        return
    given = spark.conf.get(FILE_MANAGER_KEY, None)
    if given is not None:
        yield given == ABORTABLE_MANAGER
        return
    if is_connect(spark) or not _is_loadable(spark):
        yield False
        return
    spark.conf.set(FILE_MANAGER_KEY, ABORTABLE_MANAGER)
    try:
        yield True
    finally:
        spark.conf.unset(FILE_MANAGER_KEY)


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


def _is_loadable(spark: SparkSession) -> bool:
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.util.Utils.classForName(ABORTABLE_MANAGER, False, False)
    except Exception:  # whatever Py4J makes of ClassNotFoundException
        return False
    return True
