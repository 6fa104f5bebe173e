"""The access to Holdfast's small files in a checkpoint on any storage, through Spark's file systems.

Over Spark Connect the server reads the files, and none can be written, because a client cannot create a file
at a given address.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.config.spark_versions import UNFIXED_PARTITIONS, minor
from holdfast.engine import connect
from holdfast.engine.connect import is_connect
from holdfast.engine.jvm_lock import java_message
from holdfast.errors import Unavailable
from holdfast.formats.logs.batch_logs import fixes_partitions, parse_offsets
from holdfast.formats.logs.operator_metadata import parse_operator
from holdfast.layout import OPERATOR_METADATA, STATE, Log, OperatorMetadataFile
from holdfast.storage.remote import hadoop_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FOLDER = "_holdfast"
_ASK_STORAGE = (
    "check that the storage is reachable and that Spark has credentials for it, then start the query again"
)


def read_text(spark: SparkSession, checkpoint: str, name: str, folder: str = FOLDER) -> str | None:
    """Return the text of a file in a checkpoint, or None if the file does not exist.

    Raises:
        Unavailable: The storage does not answer.
    """
    if is_connect(spark):
        found = connect.read_bytes(spark, _at(checkpoint, folder, name))
        return None if found is None else found.decode()
    with _files(spark, _at(checkpoint, folder, name), "read from") as (files, path):
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()


def write_text(spark: SparkSession, checkpoint: str, name: str, text: str, folder: str = FOLDER) -> None:
    """Write a text file in a checkpoint, and replace an existing file by a rename.

    Call it only while no query runs, or from the running query itself.

    Raises:
        Unavailable: The storage does not answer.
    """
    hadoop: Any = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    with _files(spark, _at(checkpoint, folder, name), "write to") as (files, path):
        beside = files.makeQualified(hadoop.Path(_at(checkpoint, folder, f".{name}.new")))
        stream = files.create(beside, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        context = hadoop.FileContext.getFileContext(path.toUri(), spark._jsc.hadoopConfiguration())
        context.rename(beside, path, _overwrite(spark))


def qualified(spark: SparkSession, address: str) -> str:
    """Return an address with its file system, as resolved by Spark, such as the default one of the cluster.

    Raises:
        Unavailable: Spark does not support the file system.
    """
    with _files(spark, address, "access") as (_, path):
        return str(path.toString())


def has_any(spark: SparkSession, checkpoint: str, folder: str) -> bool:
    """Return whether a directory of a checkpoint has a file.

    Raises:
        Unavailable: The storage does not answer.
    """
    with _files(spark, _at(checkpoint, folder), "read from") as (files, path):
        return bool(files.exists(path) and len(files.listStatus(path)))


def names_in(spark: SparkSession, place: str, folder: str) -> list[str]:
    """Return the names in a directory of a checkpoint or table; empty if it does not exist.

    Raises:
        Unavailable: The storage does not answer.
    """
    with _files(spark, _at(place, folder), "read from") as (files, path):
        return [file.getPath().getName() for file in files.listStatus(path)] if files.exists(path) else []


def newest_number(spark: SparkSession, checkpoint: str, folder: str) -> int | None:
    """Return the highest number among a directory's file names, such as the newest committed batch, or None.

    Raises:
        Unavailable: The storage does not answer.
    """
    names = names_in(spark, checkpoint, folder)
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=None)


def unfixed_partitions(spark: SparkSession, checkpoint: str) -> int | None:
    """Return the number of partitions of a checkpoint's state if Spark would use the session's, or None.

    Spark 4.2 does not write the number to an offset log of version 2, which named sources need, and later
    uses the number of the session. If that is lower, it ignores the state of the other partitions without an
    error. Spark 4.3 uses the number of the state.

    Raises:
        Unavailable: The storage does not answer.
    """
    if is_connect(spark) or minor(spark.version) != UNFIXED_PARTITIONS:
        return None
    newest = newest_number(spark, checkpoint, Log.OFFSETS)
    text = None if newest is None else read_text(spark, checkpoint, str(newest), Log.OFFSETS)
    if text is None:
        return None
    offsets = parse_offsets(text.encode(), _at(checkpoint, Log.OFFSETS, str(newest)))
    if fixes_partitions(offsets.version, offsets.confs):
        return None
    numbers = [int(name) for name in names_in(spark, checkpoint, STATE) if name.isdecimal()]
    found = [_noted_partitions(spark, checkpoint, number) for number in numbers]
    return max(found, default=0) or None


def _noted_partitions(spark: SparkSession, checkpoint: str, operator_id: int) -> int:
    """Return the number of partitions in an operator's metadata; 0 without metadata."""
    newest = newest_number(spark, checkpoint, f"{STATE}/{operator_id}/{OPERATOR_METADATA}/v2")
    path = OperatorMetadataFile(operator_id, newest).render()
    folder, _, name = path.rpartition("/")
    text = read_text(spark, checkpoint, name, folder)
    if text is None:
        return 0
    return max(store.partitions for store in parse_operator(text.encode(), path).stores)


def _at(place: str, *names: str) -> str:
    return "/".join((hadoop_address(place), *names))


@contextmanager
def _files(spark: SparkSession, address: str, what: str) -> Iterator[tuple[Any, Any]]:
    """Yield the file system and path of an address; raise a Holdfast error for an error of the storage."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(address)
    try:
        files = path.getFileSystem(spark._jsc.hadoopConfiguration())
        yield files, files.makeQualified(path)
    except Exception as error:
        raise Unavailable(
            f"cannot {what} the storage",
            code="HF-E5009",
            where=str(path.toString()),
            found=java_message(error),
            hint=_ASK_STORAGE,
        ) from error


def _overwrite(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    rename = jvm.org.apache.hadoop.fs.Options.Rename
    options = gateway.new_array(rename, 1)
    options[0] = rename.OVERWRITE
    return options
