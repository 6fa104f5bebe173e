"""Alarms for payments that break a rule, where the rules change while the job runs.

    holdfast run fraud_rules.py

Rules are broadcast state: all cards see a change in the same batch, and the checkpoint has the rules too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAYMENTS = "payment string, card string, amount double, ts timestamp"
RULES = "rule string, most double, version long, withdrawn boolean"
ALARMS = "payment string, card string, rule string, found double, most double"
WINDOW = hf.hours(1)


class Rules(hf.Keyed):
    """Per card: the payments of the last hour, against the rules of the moment."""

    recent: hf.State[hf.ListState[dt.datetime]] = hf.list("timestamp", ttl="2h")

    def on_event(
        self, event: hf.Event, state: Rules, ctx: hf.Context
    ) -> Iterator[tuple[str, str, str, float, float]]:
        """Report each rule that a payment breaks."""
        state.recent.set([*(at for at in state.recent if at > event.ts - WINDOW), event.ts])
        found = {"amount": event.amount, "payments an hour": float(len(state.recent))}
        for name, rule in sorted(ctx.broadcast.items()):
            if name in found and found[name] > rule.most:
                yield event.payment, event.card, name, found[name], rule.most


@hf.job(name="fraud-rules", checkpoint="checkpoint", trigger=hf.available_now())
def fraud_rules(spark: SparkSession, data: str = "data") -> hf.Sink:
    """Read payments and rules from directories of JSON files."""
    files = spark.readStream.option("maxFilesPerTrigger", 1)
    payments = files.schema(PAYMENTS).json(f"{data}/payments")
    rules = files.schema(RULES).json(f"{data}/rules")
    alarms = (
        hf.keyed(payments, by="card")
        .with_broadcast(hf.broadcast(rules, key="rule", version="version", withdrawn="withdrawn"))
        .process(Rules(), output=ALARMS, name="rules")
    )
    return hf.sink(alarms, name="alarms").upsert("alarms", keys=["payment", "rule"], ledger="alarms.db")
