"""Writes the report of a part of `make proof`: what ran, on what, what failed, and how long it took.

A plugin of pytest. It does nothing unless HOLDFAST_PROOF_PART names a part; HOLDFAST_PROOF_REPORTS names a
directory other than `docs/proof`.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import hypothesis
import pytest

ROOT: Final = Path(__file__).parents[2]
PART: Final = "HOLDFAST_PROOF_PART"
REPORTS: Final = "HOLDFAST_PROOF_REPORTS"
MINUTES: Final = 80
_PACKAGES: Final = ("pyspark", "pyarrow", "duckdb", "delta-spark", "hypothesis", "pytest", "pytest-xdist")
_PROGRAMS: Final = (
    ("java", "-version"),
    ("redis-server", "--version"),
    ("postgres", "--version"),
    ("mariadbd", "--version"),
    ("promtool", "--version"),
)
_OUTCOMES: Final = ("passed", "failed", "skipped")


def kept_by_hand(page: Path, title: str) -> str:
    """Return what people wrote below this heading, the last of a page whose figures are written anew."""
    earlier = page.read_text("utf-8") if page.exists() else ""
    _, heading, text = earlier.partition(f"\n## {title}\n")
    return f"{heading}{text}"


def pytest_configure(config: pytest.Config) -> None:
    """Listen to the outcomes of a part, in the process that has all of them."""
    part = os.environ.get(PART)
    if part and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ProofReport(part, config.invocation_params.args))


class ProofReport:
    """What a run of a part is remembered by.

    Args:
        part: The number of the part.
        arguments: What pytest was called with.
    """

    def __init__(self, part: str, arguments: Iterable[object]) -> None:
        self.part = part
        self.options = [str(word) for word in arguments if not str(word).startswith("tests/")]
        self.began = time.time()
        self.outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.skips: Counter[str] = Counter()
        self.failures: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test once: by its call, or by the step around it that did not pass."""
        file = report.nodeid.partition("::")[0]
        self.seconds[file] += report.duration
        if report.when != "call" and report.outcome == "passed":
            return
        self.outcomes[file][report.outcome] += 1
        if report.failed:
            self.failures[f"{report.nodeid} ({report.when})"] = _last_line(report.longreprtext)
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            self.skips[reason.removeprefix("Skipped: ")] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be collected is a failure."""
        if report.failed:
            self.outcomes[report.nodeid]["failed"] += 1
            self.failures[f"{report.nodeid} (collection)"] = _last_line(report.longreprtext)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the report."""
        folder = Path(os.environ.get(REPORTS) or ROOT / "docs" / "proof")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"part-{self.part}.md").write_text(self.rendered(int(exitstatus)), encoding="utf-8")

    def rendered(self, exit_status: int) -> str:
        """Return the report as Markdown."""
        minutes = (time.time() - self.began) / 60
        whole: Counter[str] = Counter()
        for counts in self.outcomes.values():
            whole += counts
        lines = [
            f"# Proof, part {self.part}",
            "",
            f"`make proof PART={self.part}` writes this page; `tests/proof_parts.txt` lists the parts.",
            "",
            "| | |",
            "|---|---|",
            f"| begun | {datetime.fromtimestamp(self.began, timezone.utc):%Y-%m-%d %H:%M} UTC |",
            f"| commit | {_commit()} |",
            f"| options | `{' '.join(self.options)}` |",
            f"| outcome | {', '.join(f'{whole[word]:,} {word}' for word in _OUTCOMES)}; exit {exit_status} |",
            f"| time | {minutes:.1f} min; a part is to take {MINUTES} at most |",
            f"| machine | {_machine()} |",
            f"| versions | {'; '.join(_versions())} |",
            f"| seeds | {_seeds()} |",
            "",
            "## Failures",
            "",
            *([f"- `{test}`: {_cell(what)}" for test, what in self.failures.items()] or ["None."]),
            "",
            "## Skipped",
            "",
            *([f"- {count:,}: {_cell(reason)}" for reason, count in self.skips.most_common()] or ["None."]),
            "",
            "## Files",
            "",
            "Seconds are those of the tests, added up over all processes.",
            "",
            f"| File | {' | '.join(_OUTCOMES)} | seconds |",
            f"|---|{'---|' * len(_OUTCOMES)}---|",
        ]
        for file, counts in sorted(self.outcomes.items()):
            numbers = " | ".join(f"{counts[word]:,}" for word in _OUTCOMES)
            lines.append(f"| `{file}` | {numbers} | {self.seconds[file]:.1f} |")
        return "\n".join(lines) + "\n"


def _last_line(text: str) -> str:
    errors = re.findall(r"^E +(.+)$", text, re.MULTILINE) or text.strip().splitlines()[-1:]
    return errors[0] if errors else "no message"


def _cell(text: str) -> str:
    line = " ".join(text.split())[:300].replace("`", "'")
    return f"`{line}`"


def _commit() -> str:
    commit = _said("git", "-C", str(ROOT), "rev-parse", "HEAD")
    changed = _said("git", "-C", str(ROOT), "status", "--porcelain")
    return (commit or "unknown") + (", with changes that are not committed" if changed else "")


def _machine() -> str:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    load = f"load {os.getloadavg()[2]:.1f} at the end"
    return f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {load}, {platform.system()} {platform.release()}"


def _versions() -> list[str]:
    installed = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}
    found = [f"Python {platform.python_version()}"]
    found += [f"{name} {installed.get(name, 'is not installed')}" for name in _PACKAGES]
    for program, option in _PROGRAMS:
        said = _said(program, option) if shutil.which(program) else ""
        found.append(said.splitlines()[0] if said else f"no {program}")
    return found


def _seeds() -> str:
    profile = hypothesis.settings()
    drawn = os.environ.get("HOLDFAST_SEED")
    examples = "the same examples in each run" if drawn is None else f"drawn with HOLDFAST_SEED={drawn}"
    hashing = os.environ.get("PYTHONHASHSEED", "random")
    return (
        f"Hypothesis {profile.max_examples} examples a test, {examples}; PYTHONHASHSEED {hashing};"
        " other seeds are constants in the tests, and in their names where they are parametrized"
    )


def _said(*words: str) -> str:
    """What a program prints; nothing where it cannot be run."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"{words[0]}: {error}\n")
        return ""
    return (done.stdout or done.stderr).strip()
