"""Tell from a plan which operators of ours are in it.

An operator's definition lives in the process that wrote it; its plan only carries the number under which
it is kept. Where the plan has a metric of ours anyway, the number is one of its columns; elsewhere it is an
alias of a frame, which Spark takes away before it runs anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from holdfast.engine.plans.plans import analysed_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

METRIC_COLUMN: Final = "definition"
_ALIAS: Final = "holdfast_definition_"
_NUMBERS: Final = re.compile(rf"max\((\d+)\) AS {METRIC_COLUMN}#|SubqueryAlias {_ALIAS}(\d+)\b")


def marked(frame: DataFrame, number: int) -> DataFrame:
    """The same frame, with a definition's number in its plan."""
    return frame.alias(f"{_ALIAS}{number}")


def definitions_in(frame: DataFrame) -> list[int]:
    """The numbers of all definitions in a frame's plan, each once."""
    found = [int(one or other) for one, other in _NUMBERS.findall(analysed_plan(frame))]
    return list(dict.fromkeys(found))
