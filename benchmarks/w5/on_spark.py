"""Run the job on Spark: python on_spark.py FOLDER raw|holdfast

Both use Holdfast's defaults for the session (RocksDB with changelogs), two cores and two partitions. The
figure is the median of the batches after the first two: all that a batch took.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import holdfast as hf
from holdfast.config.spark_defaults import LOCAL_FILES

OUTPUT = "user long, amount double, average double"


class RawAlerts(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "n long, total double")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002
        n, total = self._seen.get() or (0, 0.0)
        for row in rows:
            if n and row.amount * n > 3 * total:
                yield Row(user=key[0], amount=row.amount, average=total / n)
            n += 1
            total += row.amount
        self._seen.update((n, total))

    def close(self) -> None:
        pass


class Alerts(hf.Keyed):
    n = hf.value("long", default=0)
    total = hf.value("double", default=0.0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:  # noqa: ARG002
        n, total = state.n, state.total
        state.n = n + 1
        state.total = total + event.amount
        if n and event.amount * n > 3 * total:
            return (event.user, event.amount, total / n)
        return None


def job(side: str, events: DataFrame) -> DataFrame:
    if side == "raw":
        return events.groupBy("user").transformWithState(RawAlerts(), OUTPUT, "Update", "None")
    return hf.keyed(events, by="user").process(Alerts(), output=OUTPUT, name="alerts")


def main() -> None:
    folder, side = Path(sys.argv[1]), sys.argv[2]
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "2",
    }
    with tempfile.TemporaryDirectory(prefix="w5-") as place:
        spark = hf.session("w5", master="local[2]", conf=conf, home=Path(place) / "home")
        spark.sparkContext.setLogLevel("ERROR")
        for key, value in LOCAL_FILES.items():
            spark.conf.set(key, value)
        events = (
            spark.readStream.schema("user long, amount double")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(folder / "parquet"))
        )
        counted: list[int] = []
        query = (
            job(side, events)
            .writeStream.outputMode("update")
            .option("checkpointLocation", f"{place}/checkpoint")
            .foreachBatch(lambda batch, _: counted.append(batch.count()))
            .trigger(availableNow=True)
        )
        running = query.start()
        running.awaitTermination()
        batches = [each for each in running.recentProgress if each["numInputRows"]][2:]
        speeds = [1000 * each["numInputRows"] / each["durationMs"]["triggerExecution"] for each in batches]
        result = {
            "engine": f"spark, {side}",
            "events_per_s": round(statistics.median(speeds)),
            "min": round(min(speeds)),
            "max": round(max(speeds)),
            "alerts": sum(counted),
        }
        sys.stdout.write(json.dumps(result) + "\n")
        spark.stop()


if __name__ == "__main__":
    main()
