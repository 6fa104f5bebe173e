"""Reads a topic to its end as several readers do, and prints what each makes of it as JSON.

The first argument is JSON: the broker, a topic, a folder, settings.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def counted(frame: DataFrame) -> dict[str, int]:
    """How often each value of Holdfast's is there."""
    rows = frame.where("key is not null").selectExpr("cast(value as string) v").collect()
    return dict(sorted(Counter(row.v for row in rows).items()))


def main(asked: dict[str, Any]) -> None:
    spark = hf.session("read", home=Path(asked["folder"]) / "home", master="local[2]", conf=asked["conf"])
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", asked["address"])
    frame = reader.option("subscribe", asked["topic"]).option("includeHeaders", "true").load()
    seen, used = hf.RepeatFilter(), Counter[str]()
    for row in frame.where("key is not null").orderBy("partition", "offset").collect():
        headers = [(header["key"], bytes(header["value"])) for header in row.headers or ()]
        if seen.is_new(row.topic, row.partition, headers):
            used[bytes(row.value).decode()] += 1
    found = {
        "raw": counted(frame),
        "batch": counted(hf.without_repeats(frame)),
        "consumer": dict(sorted(used.items())),
    }
    print(json.dumps(found))  # noqa: T201 - the answer
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
