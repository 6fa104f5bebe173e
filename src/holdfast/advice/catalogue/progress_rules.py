"""Rules of what a job's state home remembers of its batches."""

from __future__ import annotations

from typing import Final

from holdfast.advice.findings import Evidence, Rule, Severity

_FACTS: Final = (Evidence.FACTS,)

PROGRESS_RULES: Final = (
    Rule(
        "HF701",
        "rows-dropped-late",
        Severity.WARNING,
        _FACTS,
        "Rows that were dropped as late in the batches that are remembered, a thousandth of the input or"
        " more.",
        "They are in no result, and Spark says so in its numbers alone.",
        "see how late rows are with `hf.late_rows`, wait longer in the watermark, or take them out apart:"
        " `late=` of"
        " hf.keyed",
        "a watermark that waits less than rows are late",
        "one that waits longer, or late rows that are handled",
    ),
    Rule(
        "HF702",
        "state-only-grows",
        Severity.WARNING,
        _FACTS,
        "An operator with 1000 rows or more that has lost none in 20 batches with input or more, and has"
        " grown by a"
        " fifth in the second half of them.",
        "Nothing has ended in all that time. A watermark or a time to live that works takes rows out.",
        "bound it by a watermark or a time to live, unless the keys are few; `holdfast ttl CHECKPOINT"
        " --what-if 24h`"
        " shows what one would free",
        "keys that never end",
        "a watermark, or state with a time to live",
    ),
    Rule(
        "HF703",
        "hot-key",
        Severity.WARNING,
        _FACTS,
        "A key with three tenths or more of the rows of the newest batch, of those that `hf.skew.watch`"
        " looks at.",
        "The task of its partition decides how long a batch takes, whatever else is added.",
        "split it with `hf.skew.split_hot`; see the guide on hot keys",
        "one key that is far more frequent than all others",
        "keys that are even, or that are split",
    ),
    Rule(
        "HF704",
        "commit-dominates",
        Severity.WARNING,
        _FACTS,
        "20 batches with input or more, of a second or more at the mean, half of which went into Spark's"
        " logs, or"
        " into committing the state of a partition.",
        "More cores do not help: the storage of the checkpoint is what is waited for.",
        "take fewer partitions (`holdfast rescale`), longer triggers, changelogs (HF308), or a faster"
        " storage for the"
        " checkpoint",
        "many partitions with a checkpoint on slow storage",
        "as many as there are cores, and a trigger that is longer",
    ),
    Rule(
        "HF705",
        "empty-batches",
        Severity.NOTE,
        _FACTS,
        "20 batches or more, nine of ten without input.",
        "Each of them writes its logs, and commits its stores where state may end: work and requests for"
        " nothing.",
        "give a longer trigger, or `availableNow` from a scheduler",
        "a short trigger on a source that is mostly silent",
        "a longer trigger",
    ),
)
