"""The sides of `holdfast bench peers` that run in Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from holdfast.config.spark_defaults import (
    FORMAT_KEY,
    MEMORY_PROVIDER,
    PROVIDER_KEY,
    ROW_CHECKSUM_KEY,
    STREAMING,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast import Keyed, KeyedTable

SQL: Final = ("sql", "sql_memory")
# Spark's fastest: state on the heap, no checksums. Only settings that this Spark knows are set.
FASTEST: Final[Mapping[str, str]] = {
    PROVIDER_KEY: MEMORY_PROVIDER,
    FORMAT_KEY: "1",
    ROW_CHECKSUM_KEY: "false",
    f"{STREAMING}.checkpoint.fileChecksum.enabled": "false",
}


def _raw(events: DataFrame) -> DataFrame:
    from holdfast_bench.peers.alert_processors import OUTPUT, RawAlerts

    return events.groupBy("user").transformWithState(RawAlerts(), OUTPUT, "Update", "None")


def _in_pandas(events: DataFrame) -> DataFrame:
    from holdfast_bench.peers.alert_processors import OUTPUT, PandasAlerts

    return events.groupBy("user").transformWithStateInPandas(PandasAlerts(), OUTPUT, "Update", "None")


def _apply_in_pandas(events: DataFrame) -> DataFrame:
    from holdfast_bench.peers.alert_processors import OUTPUT, STATE, apply_in_pandas

    users = events.groupBy("user")
    return users.applyInPandasWithState(apply_in_pandas, OUTPUT, STATE, "update", "NoTimeout")


def _sql(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    return events.groupBy("user").agg(functions.count("*").alias("n"), functions.sum("amount").alias("total"))


def _on_event(events: DataFrame) -> DataFrame:
    from holdfast_bench.peers.alert_processors import EventAlerts

    return _keyed(events, EventAlerts())


def _on_batch(events: DataFrame) -> DataFrame:
    from holdfast_bench.peers.alert_processors import BatchAlerts

    return _keyed(events, BatchAlerts())


def _keyed(events: DataFrame, processor: Keyed | KeyedTable) -> DataFrame:
    import holdfast as hf
    from holdfast_bench.peers.alert_processors import OUTPUT

    return hf.keyed(events, by="user").process(processor, output=OUTPUT, name="alerts")


SPARK_SIDES: Final[Mapping[str, Callable[[DataFrame], DataFrame]]] = {
    "raw_tws": _raw,
    "tws_pandas": _in_pandas,
    "apply_pandas": _apply_in_pandas,
    "sql": _sql,
    "sql_memory": _sql,
    "on_event": _on_event,
    "on_batch": _on_batch,
}
