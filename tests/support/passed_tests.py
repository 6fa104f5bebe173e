"""The record of tests of the long form that have passed: its table in `docs/proof/places.md`.

    HOLDFAST_GRID=all pytest --junitxml=RUN.xml TESTS…
    python tests/support/passed_tests.py RUN.xml…

The second command puts these results into the table. The pages of storages and Spark versions have a tick for
a test that CI does not run only if the table has it. A failed test is removed from it; one that was skipped
leaves it as it is.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

from spark_matrix import CELLS, VERBS, version_of

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "proof" / "places.md"
TITLE: Final = "Tests that passed"
# One row has the tests of each Spark version's checkpoints, which are hundreds.
CHECKPOINTS: Final = "tests/unit/checkpoints/test_every_spark.py::test_a_verb"

_ROW: Final = re.compile(
    r"^\| `(tests/[^`]+)` \| (\d{4}-\d{2}-\d{2}) \| `(\w+)` \| (\d+) s \|$", re.MULTILINE
)
# A version's row is written only if all of its tests were run.
_COUNTS: Final = Counter(f"{CHECKPOINTS}[{version_of(name)}]" for name in CELLS for _ in VERBS)


class Pass(NamedTuple):
    """A test that passed, and when, and how long it took."""

    test: str
    date: str
    commit: str
    seconds: int

    def line(self) -> str:
        return f"| `{self.test}` | {self.date} | `{self.commit}` | {self.seconds} s |"


def passes_in(text: str) -> dict[str, Pass]:
    """Return the rows of a page's table, by test."""
    return {
        test: Pass(test, date, commit, int(seconds)) for test, date, commit, seconds in _ROW.findall(text)
    }


@cache
def recorded() -> dict[str, Pass]:
    """Return the tests that passed, as the page has them."""
    return passes_in(PAGE.read_text(encoding="utf-8"))


def row_of(test: str) -> str:
    """Return the id of the row that has a test."""
    if not test.startswith(f"{CHECKPOINTS}["):
        return test
    version = test.removeprefix(f"{CHECKPOINTS}[").partition("/")[0]
    return f"{CHECKPOINTS}[{version}]"


def results(reports: Iterable[Path], commit: str) -> tuple[list[Pass], set[str]]:
    """Return the rows that passed wholly, and those with a failure."""
    seconds: defaultdict[str, float] = defaultdict(float)
    dates: dict[str, str] = {}
    failed: set[str] = set()
    tried = Counter[str]()
    for report in reports:
        for suite in ElementTree.parse(report).iter("testsuite"):
            for case in suite.iter("testcase"):
                if "classname" not in case.attrib:  # the test that Ctrl-C ended
                    continue
                row = row_of(f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}")
                tried[row] += 1
                if case.find("failure") is not None or case.find("error") is not None:
                    failed.add(row)
                elif case.find("skipped") is None:
                    seconds[row] += float(case.attrib["time"])
                    dates[row] = suite.attrib["timestamp"][:10]
    passed = [row for row in seconds if row not in failed and tried[row] >= _COUNTS.get(row, 1)]
    return [Pass(row, dates[row], commit, round(seconds[row])) for row in passed], failed


def written(page: str, passed: Iterable[Pass], failed: Iterable[str]) -> str:
    """Return the page with these results in its table."""
    rows = passes_in(page) | {each.test: each for each in passed}
    for test in failed:
        rows.pop(test, None)
    text, heading, _ = page.partition(f"\n## {TITLE}\n")
    assert heading, f"{PAGE} has no heading {TITLE!r}"
    lines = [
        "",
        "| Test | Date | Commit | Took |",
        "|---|---|---|---|",
        *(rows[name].line() for name in sorted(rows)),
    ]
    return "\n".join([f"{text}{heading}".rstrip("\n"), *lines, ""])


if __name__ == "__main__":
    head = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    passed, failed = results(map(Path, sys.argv[1:]), head)
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), passed, failed), encoding="utf-8")
    sys.stdout.write(
        f"{len(passed)} rows passed, {len(failed)} failed\n" + "".join(f"{name}\n" for name in sorted(failed))
    )
