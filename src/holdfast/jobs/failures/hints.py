"""What to do about failures that Spark and its connectors name, but say no next step for."""

from __future__ import annotations

import re
from typing import Final

_SINK_LOG: Final = re.compile(
    r"BATCH_METADATA_NOT_FOUND.* (?:file:(?://)?)?(?P<entry>\S+/_spark_metadata/(?P<batch>\d+))"
)
_HINTS: Final = (
    (
        re.compile(r"BATCH_METADATA_NOT_FOUND"),
        "the log of a source lacks a file: `holdfast checkpoint verify` names the batches to restore",
    ),
    (
        re.compile(r"KAFKA_DATA_LOSS|OffsetOutOfRange|offset was changed from|available in Kafka any more"),
        "the topic was made anew, or its records went unread: `holdfast offsets set` moves the query on",
    ),
    (
        re.compile(r"UnknownTopicOrPartition|does not host this topic-partition"),
        "make the topic, or mend its name in the job",
    ),
    (
        re.compile(
            r"Timed out waiting for a node assignment|TimeoutException.*(?:[Nn]ode|describeTopics|metadata"
            r"|position|offset)|No resolvable bootstrap urls"
        ),
        "see that the brokers run, and that this machine reaches them under the names they advertise",
    ),
    (
        re.compile(r"DELTA_SCHEMA_CHANGED|DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE"),
        "start the job again: it reads the new columns; `holdfast check` says whether its state takes them",
    ),
    (
        re.compile(r"PARQUET_COLUMN_DATA_TYPE_MISMATCH|PARQUET_CONVERSION_FAILURE"),
        "a file has a column of another type than the job reads: write it anew, or read the wider type",
    ),
)

# What a cluster lacks is told by the whole text alone.
_CLUSTER: Final = (
    (
        re.compile(r"PYTHON_VERSION_MISMATCH"),
        "name a Python of the driver's version on the executors: spark.pyspark.python",
    ),
    (
        re.compile(r'Cannot run program "[^"]*python[^"]*"'),
        "name a Python that the executors have, or ship one: spark.pyspark.python, spark.archives",
    ),
    (
        re.compile(r"(?s)/pyspark/.*worker\w*\.py.*^ModuleNotFoundError: No module named", re.MULTILINE),
        "give the module to the executors: py_files of the job, or spark.archives",
    ),
)


def hint_of(failure: str, text: str) -> str | None:
    """The next step for a failure; None where nothing is known.

    Args:
        failure: Its class and line.
        text: All that was said.
    """
    gap = _SINK_LOG.search(failure)
    if gap is not None:
        return (
            f"the log of the sink lacks batch {gap['batch']}: stop the query, write the line v1 to"
            f" {gap['entry']}, and start it again; do so for each batch that is named"
        )
    told = next((hint for pattern, hint in _HINTS if pattern.search(failure)), None)
    return told or next((hint for pattern, hint in _CLUSTER if pattern.search(text)), None)
