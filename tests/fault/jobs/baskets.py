"""Baskets of names, most events of one of them, in groups that a function chooses; hot names are split."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast as hf
from holdfast.engine.session.workers import ship_by_value

sys.path.append(str(Path(__file__).parents[2] / "support"))

import split_programs
from keyed_runs import read_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ship_by_value(split_programs)


@hf.job(
    name="baskets",
    checkpoint=hf.Checkpoint("checkpoint"),
    trigger=hf.every("50ms"),
    restart=hf.exponential(initial="50ms", max="200ms", same_failure=20),
)
def baskets(spark: SparkSession, into: str = "in", out: str = "out") -> hf.Sink:
    # Parts of a hot key come from several tasks.
    events = read_stream(spark, Path(into), split_programs.EVENTS).repartition(3)
    split = hf.keyed(events, by="who", key_groups=8, placement=split_programs.by_length).split_hot(["ann"])
    answers = split.process(split_programs.Basket(), output=split_programs.OUTPUT, name="basket")
    return hf.sink(answers).parquet(f"{out}/baskets")
