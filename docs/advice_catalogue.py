"""Write the reference page of all advice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lint_catalogue import item

from holdfast.advice.advice import AdviceKind, Topic
from holdfast.advice.advising import KINDS

_TEXT: Final = """\
`holdfast advise CHECKPOINT` or `holdfast advise JOB` recommends changes, the worst finding first. In Python
it is `hf.advise(…)`. The guide [Which settings for my state?](../guides/which-settings.md) is an
introduction. Lint describes a problem; advice estimates the cost of leaving it. If both find the same
problem, the advice names the rule of lint.

**Input.** The logs of a checkpoint and the names and sizes of its files; for a job also the batches with
rows recorded in the state home, if there are at least ten. Advice reads no rows of the state and starts no
Spark. It takes settings that the checkpoint does not record from `--conf`, and the number of cores from
`--cores`. The end of the output lists what could not be determined.

**Certainty.** `certain`: proved by files or by the job's batches. `likely`: the evidence shows the cause,
and the size of the cost is estimated as described below. `guess`: it depends on a fact that no file records,
such as a setting of the session.

**Severity.** An error loses state or falls behind, a warning will cost time or money, a note is worth a
look. The exit code is 0 whatever is found.

**Estimates.** The batch interval is the median time between two batches, over the newest 24 in the offset
log. The costs of the backends are those measured in the guide [Which backend?](../guides/which-backend.md),
or those in `--measured FILE`, the output of `holdfast bench backends --json`. The time of a restart follows
the line through the smallest and the largest state that was measured, by number of keys, and decreases with
the number of tasks that load in parallel. Requests and money are estimated as `holdfast cost` does, with the
prices of `--prices FILE`.
"""
_TITLES: Final = {
    Topic.BACKEND: "The state backend",
    Topic.CHECKPOINT: "The checkpoint",
    Topic.PARTITIONS: "Partitions",
    Topic.MEMORY: "Memory",
}


def advice_page(note: str) -> str:
    """Return the page."""
    parts = ["# Advice\n", note, _TEXT, "## All advice\n", _table()]
    for topic, title in _TITLES.items():
        parts.append(f"## {title}\n\n`--topic {topic.value}`\n")
        parts += [text for kind in KINDS.values() if kind.topic is topic for text in _described(kind)]
    return "\n".join(parts)


def _table() -> str:
    rows = [
        f"| [{kind.id}](#{kind.id.lower()}-{kind.name}) | {kind.name} | {kind.topic.value} |"
        f" {kind.severity.value} | {kind.sureness.value} |"
        for kind in KINDS.values()
    ]
    head = "| Id | Name | Topic | Severity | Certainty |\n|---|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def _described(kind: AdviceKind) -> Iterator[str]:
    yield f"### {kind.id} {kind.name}\n"
    rule = "" if kind.rule is None else f"; see also rule [{kind.rule}](lint.md) of lint"
    yield f"{kind.severity.value}, {kind.sureness.value}{rule}\n"
    titled = (("Evidence", kind.looks_for), ("Cost", kind.costs), ("What to do", kind.instead))
    *first, last = (item(f"**{title}**: {text}") for title, text in titled)
    yield from first
    yield last + "\n"
