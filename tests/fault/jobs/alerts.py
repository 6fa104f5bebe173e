"""Events checked by rules that change, over files, into a table of Parquet files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast as hf
from holdfast.engine.session.workers import ship_by_value

sys.path.append(str(Path(__file__).parents[2] / "support"))

import broadcast_programs
from broadcast_programs import EVENTS, OUTPUT, RULES, Alerts
from keyed_runs import read_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ship_by_value(broadcast_programs)


@hf.job(
    name="alerts",
    checkpoint=hf.Checkpoint("checkpoint"),
    trigger=hf.every("50ms"),
    restart=hf.exponential(initial="50ms", max="200ms", same_failure=20),
)
def alerts(spark: SparkSession, into: str = "in", out: str = "out") -> hf.Sink:
    rules = read_stream(spark, Path(into) / "rules", RULES)
    by_name = hf.broadcast(rules, key="rule", version="version", withdrawn="off")
    events = hf.keyed(read_stream(spark, Path(into) / "events", EVENTS), by="who", key_groups=8)
    found = events.with_broadcast(by_name).process(Alerts(), output=OUTPUT, name="alerts")
    return hf.sink(found).parquet(f"{out}/alerts")
