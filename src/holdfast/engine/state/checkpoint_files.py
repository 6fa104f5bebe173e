"""Small files of Holdfast's own in a checkpoint, wherever it is, through Spark's file systems."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.engine.state.ownership import java_message
from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "_holdfast"
_ASK_STORAGE = "see that the storage answers and that Spark has its credentials, then start again"


def read_text(spark: SparkSession, checkpoint: str, name: str) -> str | None:
    """A file's text, or None if there is none.

    Raises:
        Unavailable: The storage does not answer.
    """
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/{FOLDER}/{name}")
    with _answering(path, "read"):
        files = _files(spark, path)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()


def write_text(spark: SparkSession, checkpoint: str, name: str, text: str) -> None:
    """Write a file beside the old one and put it in its place; call it only while no query runs.

    Raises:
        Unavailable: The storage does not answer.
    """
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/{FOLDER}/{name}")
    beside = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/{FOLDER}/.{name}.new")
    with _answering(path, "written"):
        files = _files(spark, path)
        path, beside = files.makeQualified(path), files.makeQualified(beside)
        stream = files.create(beside, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        hadoop = spark._jsc.hadoopConfiguration()
        jvm.org.apache.hadoop.fs.FileContext.getFileContext(path.toUri(), hadoop).rename(
            beside, path, _overwrite(spark)
        )


def has_any(spark: SparkSession, checkpoint: str, folder: str) -> bool:
    """Whether there is anything in a folder of a checkpoint.

    Raises:
        Unavailable: The storage does not answer.
    """
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/{folder}")
    with _answering(path, "read"):
        files = _files(spark, path)
        return bool(files.exists(path) and len(files.listStatus(path)))


def newest_number(spark: SparkSession, checkpoint: str, folder: str) -> int | None:
    """The highest number among the files of a folder, such as the newest committed batch.

    Raises:
        Unavailable: The storage does not answer.
    """
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/{folder}")
    with _answering(path, "read"):
        files = _files(spark, path)
        names = [file.getPath().getName() for file in files.listStatus(path)] if files.exists(path) else []
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=None)


@contextmanager
def _answering(path: Any, what: str) -> Iterator[None]:
    """Say in our words what the storage said."""
    try:
        yield
    except Exception as error:
        raise Unavailable(
            f"a checkpoint cannot be {what}",
            where=str(path.toString()),
            found=java_message(error),
            hint=_ASK_STORAGE,
        ) from error


def _files(spark: SparkSession, path: Any) -> Any:
    jsc: Any = spark._jsc
    return path.getFileSystem(jsc.hadoopConfiguration())


def _overwrite(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    rename = jvm.org.apache.hadoop.fs.Options.Rename
    options = gateway.new_array(rename, 1)
    options[0] = rename.OVERWRITE
    return options
