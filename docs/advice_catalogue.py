"""The kinds of advice as a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lint_catalogue import item

from holdfast.advice.advice import AdviceKind, Topic
from holdfast.advice.advising import KINDS

_TEXT: Final = """\
`holdfast advise CHECKPOINT` or `JOB` says what would be better, the worst first. In Python it is
`hf.advise(…)`. The guide [Which settings for my state?](../guides/which-settings.md) shows how to go through
it. Lint says what is wrong; advice says what it costs to leave it as it is. Where both see the same, the
advice names the rule of lint.

**What it reads.** The logs of a checkpoint, and names and sizes of its files; of a job also what the state
home remembers of the batches that had rows, from ten on. Nothing of the state is read, and no Spark is
started. A setting that no checkpoint has is known only by `--conf`, and the number of cores by `--cores`.
What cannot be told is named at the end.

**How sure.** `certain`: files, or the batches of the job, show it. `likely`: they show what leads to it, and
its size is reckoned as below. `guess`: it depends on something that no file tells, such as a setting of the
session.

**How bad.** An error loses state or falls behind, a warning will cost, a note is worth a look. The exit code
is 0 whatever is found.

**Numbers.** The pace is the median time from one batch to the next, over the newest 24 in the offset log.
What backends take is as the guide [Which backend?](../guides/which-backend.md) has measured it, or as
`--measured FILE` says, which has what `holdfast bench backends --json` prints; a restart grows with the
keys, by the line through the smallest and the largest state that was measured, and falls with the tasks
that load side by side. Requests and money are reckoned as `holdfast cost` does, with the prices of
`--prices FILE`.
"""
_TITLES: Final = {
    Topic.BACKEND: "Where state is kept",
    Topic.CHECKPOINT: "The checkpoint",
    Topic.PARTITIONS: "Partitions",
    Topic.MEMORY: "Memory",
}


def advice_page(note: str) -> str:
    """The page."""
    parts = ["# The kinds of advice\n", note, _TEXT, "## All kinds\n", _table()]
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
    head = "| Id | Name | Topic | How bad | How sure |\n|---|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def _described(kind: AdviceKind) -> Iterator[str]:
    yield f"### {kind.id} {kind.name}\n"
    rule = "" if kind.rule is None else f", as [{kind.rule}](lint.md) of lint"
    yield f"{kind.severity.value}, {kind.sureness.value}{rule}\n"
    titled = (("Looks for", kind.looks_for), ("What it costs", kind.costs), ("Instead", kind.instead))
    *first, last = (item(f"**{title}**: {text}") for title, text in titled)
    yield from first
    yield last + "\n"
