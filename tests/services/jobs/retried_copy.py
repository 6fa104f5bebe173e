"""A batch into a database whose tasks die in the middle and are tried again; prints what is there.

The first argument is JSON: the address of the database, a folder, how many rows.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import holdfast as hf


def main(asked: dict[str, Any]) -> None:
    folder, rows = Path(asked["folder"]), asked["rows"]
    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
    }
    # A task may fail twice.
    spark = hf.session("retried", home=folder / "home", master="local[2,3]", conf=conf)
    spark.sparkContext.setLogLevel("OFF")
    (folder / "in").mkdir()
    spark.range(rows).repartition(1).write.mode("append").parquet(str(folder / "in"))
    died = folder / "died"

    def dying(batches: Any) -> Any:
        """Let some rows through, then die, twice in all."""
        for number, batch in enumerate(batches):
            if number == 3:
                for name in ("0", "1"):
                    try:
                        os.close(os.open(f"{died}-{name}", os.O_CREAT | os.O_EXCL))
                    except FileExistsError:
                        continue
                    os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    stream = spark.readStream.schema("id long").parquet(str(folder / "in")).repartition(3)
    to = hf.sink(stream.mapInArrow(dying, "id long")).append("numbers", asked["database"])
    to.start(checkpoint=str(folder / "checkpoint"), trigger=hf.available_now()).awaitTermination()
    (record,) = hf.ledger(asked["database"]).history("numbers")
    deaths = len(list(folder.glob("died-*")))
    print(json.dumps({"rows": record.rows, "deaths": deaths}))  # noqa: T201 - the answer
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
