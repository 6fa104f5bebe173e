"""One start of a query that writes to a topic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.stream.sinks.batch_function import Fault
from holdfast.stream.sinks.put_back import first_unplanned, query_id_in, warn_of_fork

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.stream.sinks.kafka.kafka_topic import KafkaTopic


@dataclass(slots=True)
class KafkaStart:
    """What a start of a query knows of its topic.

    Attributes:
        topic: The topic, and how rows become its records.
        partitions: How many partitions the topic has.
        fault: What the sink and its batches tell each other.
    """

    topic: KafkaTopic
    partitions: int = 0
    fault: Fault = field(default_factory=Fault)

    def prepare(self, spark: SparkSession) -> None:
        """Ask the brokers for the topic's partitions; see `KafkaTopic.partitions` for what it raises."""
        self.partitions = self.topic.partitions(spark)

    def write(self, batch: DataFrame, query_id: str, batch_id: int) -> None:
        """Send a batch's rows."""
        self.topic.write(batch, query_id, batch_id, self.fault.token, self.partitions)

    def require_in_step(self, spark: SparkSession, checkpoint: str) -> None:
        """Refuse a checkpoint whose batches readers would take for repeats; warn of another query's records.

        Raises:
            Conflict: The topic has batches that the checkpoint does not know, or was written under another
                ledger.
            Corrupt: The checkpoint does not tell the query's id.
            Unavailable: The storage or the brokers do not answer.
        """
        query_id = query_id_in(spark, checkpoint)
        written = {query.query_id: query for query in self.topic.newest(spark)}
        own = None if query_id is None else written.pop(query_id, None)
        self.topic.require_in_step(own, first_unplanned(spark, checkpoint), self.fault.token)
        if own is None:
            warn_of_fork(self.topic.topic, written)
