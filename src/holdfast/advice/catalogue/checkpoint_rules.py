"""Rules of what a checkpoint's files tell."""

from __future__ import annotations

from typing import Final

from holdfast.advice.findings import Evidence, Rule, Severity

_FACTS: Final = (Evidence.FACTS,)

CHECKPOINT_RULES: Final = (
    Rule(
        "HF601",
        "tiny-partitions",
        Severity.NOTE,
        _FACTS,
        "An operator with 32 partitions or more, and fewer than 100 rows (or, where rows are not"
        " counted, 16 KB)"
        " in a partition.",
        "Each partition is a task, a store and several files in each batch, whatever it holds.",
        "make a checkpoint with fewer by `holdfast rescale CHECKPOINT NEW --partitions N`",
        "spark.sql.shuffle.partitions=200",
        "spark.sql.shuffle.partitions=8",
    ),
    Rule(
        "HF602",
        "state-grows",
        Severity.WARNING,
        _FACTS,
        "State of an operator that was larger in each third of the batches that are kept, by a fifth"
        " or more in"
        " all, in a checkpoint without a watermark; or a watermark that has not moved meanwhile.",
        "Nothing seems to end it, and it will not fit one day.",
        "bound it by a watermark or a time to live; `holdfast ttl CHECKPOINT --what-if 24h` shows"
        " what one would free",
        "a query without a watermark",
        "a query with one, or state with a time to live",
    ),
    Rule(
        "HF603",
        "uneven-partitions",
        Severity.WARNING,
        _FACTS,
        "A store of 1 MB or more whose largest of four or more partitions has half of all bytes or more.",
        "The task of that partition decides how long a batch takes, and its executor how much memory"
        " is needed.",
        "see the largest keys with `holdfast skew CHECKPOINT --keys 10`, and the guide on hot keys",
        "one key has most of the rows",
        "keys that are even, or `hf.skew.split_hot`",
    ),
    Rule(
        "HF604",
        "no-watermark",
        Severity.WARNING,
        _FACTS,
        "A deduplication, or a join of streams, in a checkpoint that has had no watermark for ten batches.",
        "Without one they remove nothing: every key or row that was ever seen is still there.",
        "declare a watermark in the query; see HF103 and HF106 for how",
        "a query without a watermark",
        "a query with one",
    ),
)
