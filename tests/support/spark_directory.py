"""The directory in which a session's JVM resolves relative paths."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def work_in(spark: SparkSession, folder: Path) -> None:
    """Resolve relative paths in a directory; the JVM itself cannot change its own."""
    jvm: Any = spark._jvm
    files = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.org.apache.hadoop.conf.Configuration())
    files.setWorkingDirectory(jvm.org.apache.hadoop.fs.Path(str(folder)))
    # A file system that is opened later begins there.
    jvm.java.lang.System.setProperty("user.dir", str(folder))


@contextmanager
def working_in(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Resolve relative paths in a directory within the block, and then where they were resolved before."""
    jvm: Any = spark._jvm
    before = Path(jvm.java.lang.System.getProperty("user.dir"))
    work_in(spark, folder)
    try:
        yield
    finally:
        work_in(spark, before)
