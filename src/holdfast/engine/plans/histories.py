"""What is known of the input that a query is to be started after: its columns, its files, its offsets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.engine.plans.described import relations
from holdfast.engine.plans.plan_sources import SourceRead, source_of
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_KAFKA_PLACE = ("topic", "partition", "offset")


def sources_once(frame: DataFrame) -> tuple[tuple[SourceRead, StructType], ...]:
    """The sources of a streaming frame as its offset log will have them, each with its columns."""
    from pyspark.sql.types import StructType

    found = []
    for relation in relations(frame):
        read = source_of(relation)
        if read is not None:
            found.append((read, StructType.fromJson(json.loads(relation.schema().json()))))
    return tuple(found)


def like_source(history: DataFrame, schema: StructType, where: str) -> DataFrame:
    """The columns of a source, out of a batch frame that has them, in the source's order.

    Raises:
        Invalid: A column is missing, or of another type.
    """
    from pyspark.sql import functions as F  # noqa: N812 - needs Spark

    if history.isStreaming:
        raise Invalid("the history is a stream", where=where, hint="read it with spark.read")
    has = {field.name: field.dataType for field in history.schema}
    for field in schema:
        found = has.get(field.name)
        if found is None or found.simpleString() != field.dataType.simpleString():
            raise Invalid(
                "the history does not have the columns of its source",
                where=where,
                found=f"no column {field.name}" if found is None else f"{field.name} {found.simpleString()}",
                expected=f"{field.name} {field.dataType.simpleString()}",
                hint="read it with the schema of the stream: spark.read.schema(…)",
            )
    return history.select(*[F.col(f"`{field.name.replace('`', '``')}`") for field in schema])


def changed_ms(frame: DataFrame, paths: Iterable[str]) -> list[tuple[str, int]]:
    """When files were last changed, as a source of files notes it.

    Raises:
        Invalid: One is not there.
    """
    from py4j.protocol import Py4JJavaError

    jvm: Any = frame.sparkSession._jvm
    conf: Any = frame.sparkSession._jsparkSession.sessionState().newHadoopConf()
    found = []
    for path in paths:
        place = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(path) if ":/" in path else path)
        try:
            status = place.getFileSystem(conf).getFileStatus(place)
        except Py4JJavaError as error:
            raise Invalid(
                "a file that is to count as read is not there",
                where=path,
                hint="name the files as the history was read from, or leave those out that are gone",
            ) from error
        found.append((str(status.getPath().toUri().toString()), int(status.getModificationTime())))
    return found


def last_of_kafka(history: DataFrame) -> list[tuple[str, int, int]] | None:
    """Topic, partition and largest offset of rows of Kafka's; None where the frame does not tell."""
    from pyspark.sql import functions as F  # noqa: N812 - needs Spark

    if any(name not in history.columns for name in _KAFKA_PLACE):
        return None
    rows = history.groupBy("topic", "partition").agg(F.max("offset").alias("last")).collect()
    return [(str(row["topic"]), int(row["partition"]), int(row["last"])) for row in rows]
