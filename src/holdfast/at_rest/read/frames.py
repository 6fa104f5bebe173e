"""States as DataFrames of Spark."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from holdfast.at_rest.read.model import NamedState, StateForm
from holdfast.at_rest.read.state_reader import StateReader
from holdfast.at_rest.read.tables import column_names, state_table
from holdfast.errors import Unsupported
from holdfast.formats.operators import is_processor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOG: Final = logging.getLogger(__name__)


def frame(reader: StateReader, state: NamedState, spark: SparkSession | None) -> DataFrame:
    """The rows of a state as a DataFrame; read here, and handed to Spark as Arrow.

    What cannot be read here, such as rows encoded as Avro, Spark's own reader reads where it can, and the log
    says so.

    Cost: about 3 microseconds a row in this process, and its memory. Spark's own reader of state takes
    several times as long, knows neither savepoints nor Holdfast's keyed state, and names no columns.

    Args:
        reader: The checkpoint or savepoint at its batch.
        state: The state.
        spark: The session; the running one, or a new one, by default.

    Raises:
        Unsupported: Neither can read it.
    """
    from pyspark.sql import SparkSession as Session

    from holdfast.engine.session.session import session

    running: Any = spark or Session.getActiveSession() or session("holdfast-state")
    try:
        table = state_table(state).read_all()
    except Unsupported as error:
        if not state.source.spark_reads(state):
            raise
        _LOG.warning("%s: Spark's reader is used in place of ours", error.fact)
        return _by_spark(running, reader, state)
    return running.createDataFrame(table)  # type: ignore[no-any-return]


def _by_spark(spark: SparkSession, reader: StateReader, state: NamedState) -> DataFrame:
    """The same rows through Spark's reader, under the same names as far as it has the columns."""
    # Readers of state need the coordinator of state stores, which Spark creates when it first lists streams.
    spark.streams.active  # noqa: B018 - for this effect
    source = spark.read.format("statestore").option("operatorId", state.operator_id)
    source = source.option("batchId", reader.batch_id)
    if state.form is StateForm.ROWS:
        source = source.option("joinSide", state.name)
    elif is_processor(state.kind):
        source = source.option("stateVarName", state.name)
    value = ("value.value.*", "value.ttlExpirationMs") if state.ttl else ("value.*",)
    shown = value if state.value.names else ()
    frame = source.load(reader.storage.uri).select("key.*", *shown, "partition_id")
    # Spark's reader of a join has neither a row's place nor whether it has matched.
    hidden = {"index", "matched"} if state.form is StateForm.ROWS else set()
    names = [name for name in column_names(state) if name not in hidden]
    return frame.toDF(*names) if len(names) == len(frame.columns) else frame
