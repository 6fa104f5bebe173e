"""A program of `spark-submit`: what each account has ordered so far, guarded. `submitted.py PLACE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tallies

import holdfast as hf

place = Path(sys.argv[1])
spark = hf.session("submitted", home=place / "home", py_files=[tallies.__file__])
schema = "id string, order_id string, account string, amount long, ts timestamp"
orders = spark.readStream.schema(schema).option("maxFilesPerTrigger", 5).json(str(place / "day" / "orders"))
output = "account string, orders long, amount long"
totals = hf.keyed(orders, by="account").process(tallies.Tally(), output=output, name="tally")
given = {"master": spark.sparkContext.master}
(place / "session.json").write_text(json.dumps(given))
sink = hf.sink(totals, name="totals").upsert("totals", keys=["account"], ledger=str(place / "totals.db"))
guarded = hf.guard(
    sink, checkpoint=place / "checkpoint", trigger=hf.available_now(), home=place / "home", wait="1m"
)
sys.exit(guarded.run())
