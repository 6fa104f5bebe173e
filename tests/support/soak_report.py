"""The report of a soak run: a row of the table of all runs, and the figures of the newest one.

The page has sections by hand as well, which a report leaves as they are.
"""

from __future__ import annotations

import datetime as dt
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bank_audit import PER_FILE
from bank_auditor import Auditor
from bank_faults import FAULTS
from bank_run import LIMITS
from proof_report import _machine

TABLE: Final = "What was run"
NEWEST: Final = "The newest run"
# Samples that a comparison of their first and last third needs.
_LEAST_SAMPLES: Final = 3


@dataclass(slots=True)
class Outcome:
    """A run that has ended.

    Attributes:
        command: How to repeat it.
        commit: The commit at its beginning.
        seconds: How long it took.
        files: The number of files with transfers.
        took: The seconds until the job went on, of each fault by its name.
        audits: The number of looks by their names.
        repeated: The number of looks that were repeated, with the reason.
        samples: Memory, descriptors, files and bytes after each fault.
        error: What ended it; None if every invariant held.
    """

    command: str
    commit: str
    seconds: float
    files: int
    took: Mapping[str, Sequence[float]] = field(default_factory=lambda: defaultdict(list))
    audits: Mapping[str, int] = field(default_factory=Counter)
    repeated: Mapping[str, int] = field(default_factory=Counter)
    samples: Sequence[Mapping[str, float]] = ()
    error: BaseException | None = None

    @classmethod
    def of(
        cls,
        command: str,
        commit: str,
        seconds: float,
        files: int,
        took: Mapping[str, Sequence[float]],
        auditor: Auditor,
        samples: Sequence[Mapping[str, float]],
        error: BaseException | None,
    ) -> Outcome:
        """Return that of a run with this auditor."""
        audits = {name: auditor.done[name] for name in sorted(auditor.looks)}
        return cls(command, commit, seconds, files, took, audits, auditor.again, samples, error)

    @property
    def faults(self) -> int:
        """The number of faults that have passed."""
        return sum(len(each) for each in self.took.values())

    @property
    def result(self) -> str:
        """A sentence about the result, fit for a table."""
        if self.error is None:
            return "every invariant held"
        return "failed: " + " ".join(str(self.error).split()).replace("|", "/")[:300]

    @property
    def begun(self) -> str:
        """The time when it began."""
        now = dt.datetime.now(dt.timezone.utc)
        return f"{now - dt.timedelta(seconds=self.seconds):%Y-%m-%d %H:%M} UTC"


def page_with(page: str, outcome: Outcome) -> str:
    """Return a page with a run in its table and its figures in a section of their own."""
    sections = re.split(r"(?m)^(?=## )", page)
    title = next((n for n, text in enumerate(sections) if text.startswith(f"## {TABLE}\n")), None)
    if title is None:
        raise ValueError(f"the page has no section {TABLE!r}")
    sections[title] = _with_row(sections[title], row(outcome))
    newest = f"## {NEWEST}\n\n" + "\n".join(tables(outcome)) + "\n\n"
    others = [text for text in sections if not text.startswith(f"## {NEWEST}\n")]
    return "".join([*others[: title + 1], newest, *others[title + 1 :]])


def _with_row(section: str, line: str) -> str:
    lines = section.splitlines()
    last = max(n for n, text in enumerate(lines) if text.startswith("|"))
    return "\n".join([*lines[: last + 1], line, *lines[last + 1 :]]).rstrip("\n") + "\n\n"


def row(outcome: Outcome) -> str:
    """Return the line of a run in the table of all."""
    most = {name: max((each[name] for each in outcome.samples), default=0) for name in _names(outcome)}
    bounds = ", ".join(f"{name} {value:g}" for name, value in most.items() if name in (*LIMITS, "disk MB"))
    what = f"`{outcome.command}`, commit {outcome.commit[:12]}, {outcome.seconds / 60:.0f} min"
    counts = f"{outcome.faults} faults, {sum(outcome.audits.values())} audits, {outcome.files} files"
    return (
        f"| {outcome.begun[:10]} | {what} | {counts}: {outcome.result}. Largest: {bounds or 'not measured'} |"
    )


def _names(outcome: Outcome) -> list[str]:
    return [name for name in outcome.samples[0] if name != "at"] if outcome.samples else []


def tables(outcome: Outcome) -> list[str]:
    """Return the figures of a run as lines of Markdown."""
    lines = [
        "| | |",
        "|---|---|",
        f"| begun | {outcome.begun} |",
        f"| command | `{outcome.command}` |",
        f"| commit | {outcome.commit} |",
        f"| machine | {_machine()} |",
        f"| time | {outcome.seconds / 60:.0f} min |",
        f"| files, transfers | {outcome.files}, {outcome.files * PER_FILE} |",
        f"| faults | {outcome.faults} |",
        f"| result | {outcome.result} |",
        "",
        "| Fault | Times | Seconds until the job goes on, median and longest |",
        "|---|---|---|",
    ]
    for name, kind in FAULTS.items():
        took = outcome.took.get(name, [])
        range_ = f"{statistics.median(took):.0f}, {max(took):.0f}" if took else ""
        lines.append(f"| {kind.title} | {len(took)} | {range_} |")
    lines += ["", "| Audit | Times |", "|---|---|"]
    lines += [f"| {name} | {times} |" for name, times in outcome.audits.items()]
    if outcome.repeated:
        again = ", ".join(f"{name} {times}" for name, times in sorted(outcome.repeated.items()))
        lines += [
            "",
            f"Looks repeated because a file was removed or the checkpoint exchanged meanwhile: {again}.",
        ]
    if len(outcome.samples) >= _LEAST_SAMPLES:
        third = len(outcome.samples) // 3
        lines += ["", "| Growth | first third, largest | last third, largest |", "|---|---|---|"]
        for name in _names(outcome):
            first = max(each[name] for each in outcome.samples[:third])
            last = max(each[name] for each in outcome.samples[-third:])
            lines.append(f"| {name} | {first:g} | {last:g} |")
    return lines
