"""The catalogue: every rule by its id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.advice.catalogue.checkpoint_rules import CHECKPOINT_RULES
from holdfast.advice.catalogue.processor_rules import PROCESSOR_RULES
from holdfast.advice.catalogue.progress_rules import PROGRESS_RULES
from holdfast.advice.catalogue.setting_rules import SETTING_RULES
from holdfast.advice.catalogue.sink_rules import SINK_RULES
from holdfast.advice.catalogue.state_rules import STATE_RULES
from holdfast.advice.catalogue.time_rules import TIME_RULES
from holdfast.advice.findings import Evidence, Rule, Severity

# What the rules' examples begin with.
PRELUDE: Final = """\
from pyspark.sql import functions as F

import holdfast as hf

events = spark.readStream.table("events")
orders = spark.readStream.table("orders")
payments = spark.readStream.table("payments")
"""

BAD_SUPPRESSION: Final = Rule(
    "HF001",
    "suppression-without-reason",
    Severity.WARNING,
    (Evidence.SOURCE,),
    "A comment that suppresses a rule and gives no reason, or names a rule that there is not.",
    "It suppresses nothing. Whoever reads it later cannot tell whether it still holds.",
    "write `# holdfast: ignore[HF102] the keys are 40 countries`",
    'events.groupBy("country").count()  # holdfast: ignore[HF102]',
    'events.groupBy("country").count()  # holdfast: ignore[HF102] the keys are 40 countries',
)
RULES: Final[Mapping[str, Rule]] = {
    rule.id: rule
    for rule in (
        BAD_SUPPRESSION,
        *STATE_RULES,
        *TIME_RULES,
        *SETTING_RULES,
        *SINK_RULES,
        *PROCESSOR_RULES,
        *CHECKPOINT_RULES,
        *PROGRESS_RULES,
    )
}
# The titles of the groups, by the first digit of an id.
GROUPS: Final = {
    "0": "Comments",
    "1": "State without an end",
    "2": "Watermarks",
    "3": "Settings",
    "4": "Checkpoints and sinks",
    "5": "Processors",
    "6": "Checkpoints at rest",
    "7": "Batches of a job",
}
