"""Check that the tests notice broken code: `make mutants COUNT=100 SEED=…` breaks it and counts the failures.

A mutant is one change in one file: a negated comparison or condition, a constant off by one, a statement
left out, and so on. Mutants are drawn by seed from the files that guard people's state, equally often from
each room. `docs/proof/mutants.md` reports the outcomes and how a mutant is judged. Mutants that change
nothing that a caller can observe are listed in `tests/equivalent_mutants.txt`, each below its reason.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import importlib.util
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from executed_lines import ROOT, SOURCE, Record
from forked_tests import PATIENCE_S, TIMES, Ending, preload, run
from proof_report import kept_by_hand

REPORT: Final = ROOT / "docs" / "proof" / "mutants.md"
EQUIVALENT: Final = ROOT / "tests" / "equivalent_mutants.txt"
ROOMS: Final = {
    "formats": ("formats",),
    "checkpoints": ("checkpoints",),
    "ownership": ("ownership",),
    "changes": ("changes",),
    "savepoints": ("savepoints",),
    "worker state": ("worker/state", "worker/passes.py", "worker/packets.py"),
    "ledger": ("stream/sinks/ledger.py", "stream/sinks/database.py", "stream/sinks/record_repeats.py"),
}
# The directories of tests that need neither a JVM nor a server.
TESTS: Final = ("tests/unit", "tests/property", "tests/contract")
# The first tests of a mutant, the fastest: most mutants are killed by one of them.
FIRST: Final = 40
# Recorded seconds of tests that run on one mutant: of those that execute the change, and of others.
EXECUTING_S: Final = 120.0
OTHERS_S: Final = 20.0
_TURNED: Final = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_ARITHMETIC: Final = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Mod: "*"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        path: The file, below `src/holdfast`.
        line: The line of the change.
        start: Where the replaced text begins in the file.
        end: Where it ends.
        before: The replaced text.
        after: What replaces it.
    """

    path: str
    line: int
    start: int
    end: int
    before: str
    after: str

    @property
    def lines(self) -> range:
        """The lines from the beginning of the changed statement to the end of the change."""
        statements = (node.lineno for node in self._around())
        return range(max(statements, default=self.line), self._last + 1)

    @property
    def id(self) -> str:
        """The change of one source."""
        return f"{self.path} | {self.start} | {self.after}"

    @property
    def key(self) -> str:
        """The change without its line, which moves."""
        functions = [node for node in self._around() if isinstance(node, ast.FunctionDef)]
        function = max(functions, key=lambda node: node.lineno).name if functions else ""
        return f"{self.path} | {function} | {_one_line(self.before)} | {_one_line(self.after)}"

    @property
    def _last(self) -> int:
        return self.line + self.before.count("\n")

    def _around(self) -> Iterator[ast.stmt]:
        """Yield the statements that contain the change."""
        for node in ast.walk(ast.parse((SOURCE / "holdfast" / self.path).read_text("utf-8"))):
            if (
                isinstance(node, ast.stmt)
                and node.lineno <= self.line
                and self._last <= (node.end_lineno or 0)
            ):
                yield node


# What becomes of a mutant. The first two are killed.
OUTCOMES: Final = ("killed", "endless", "survived", "not executed", "equivalent")


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        room: The room of the changed file.
        mutant: The change.
        word: One of `OUTCOMES`.
        test: The test that failed, if one did.
        seconds: Duration of the tests, those on the unchanged code included.
    """

    room: str
    mutant: Mutant
    word: str
    test: str
    seconds: float

    def __str__(self) -> str:
        change = f"{_one_line(self.mutant.before)} -> {_one_line(self.mutant.after)}"
        by = self.test or change
        return f"{self.room}: {self.mutant.path}:{self.mutant.line} {self.word} {self.seconds:.0f} s: {by}"


def main() -> int:
    """Draw mutants, run the tests on each, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0, help="end after this time; 0 for no limit")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes that record the tests")
    parser.add_argument("--as-recorded", action="store_true", help="record nothing; use what is recorded")
    parser.add_argument("--only", default="", help="a room")
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    given = parser.parse_args()
    drawn = [(room, mutant) for room, mutant in draw(given.count, given.seed) if given.only in room]
    if given.list:
        for room, mutant in drawn:
            _say(f"{room}: {mutant.path}:{mutant.line}: {mutant.before} -> {mutant.after}")
        return 0
    began, until = datetime.now(timezone.utc), time.monotonic() + (given.minutes * 60 or 1e9)
    importers = Importers()
    record = Record.unchanged() if given.as_recorded else Record.of(importers.tests(), given.workers)
    recorded = f"{len(record.files)} recorded of {len(importers.tests())}"
    judge, outcomes = Judge(record, importers), list[Outcome]()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "src")
        shutil.copytree(SOURCE, copy)
        compileall.compile_dir(copy, quiet=2)
        for room, mutant in drawn:
            if time.monotonic() > until:
                break
            outcomes.append(judge.outcome_of(room, mutant, copy))
            _say(f"{len(outcomes)}/{len(drawn)} {outcomes[-1]}")
            if not given.only:
                REPORT.write_text(
                    _rendered(outcomes, given.count, given.seed, began, recorded), encoding="utf-8"
                )
    return 0


def draw(count: int, seed: int) -> list[tuple[str, Mutant]]:
    """Return so many mutants, in turn from each room."""
    rng = random.Random(seed)
    rooms = {room: _shuffled(room, rng) for room in ROOMS}
    drawn: list[tuple[str, Mutant]] = []
    while len(drawn) < count and rooms:
        for room in list(rooms):
            mutant = next(rooms[room], None)
            if mutant is None:
                del rooms[room]
            elif len(drawn) < count:
                drawn.append((room, mutant))
    return drawn


def _shuffled(room: str, rng: random.Random) -> Iterator[Mutant]:
    mutants: list[Mutant] = []
    for file in _files(ROOMS[room]):
        mutants += mutants_of(file.read_text("utf-8"), file.relative_to(SOURCE / "holdfast").as_posix())
    rng.shuffle(mutants)
    return iter(mutants)


def _files(paths: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files of a room."""
    for name in paths:
        path = SOURCE / "holdfast" / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def mutants_of(text: str, path: str) -> list[Mutant]:
    """Return every mutant of a file."""
    lines = [0]
    for line in text.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    data = text.encode()
    found = []
    tree = ast.parse(text)
    for parent in ast.walk(tree):
        for node, after in _changes(parent):
            start = lines[node.lineno - 1] + node.col_offset
            end = lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            before = data[start:end].decode()
            if before != after:
                found.append(Mutant(path, node.lineno, start, end, before, after))
    return found


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield the nodes to replace in or below a node, and what replaces each."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _TURNED:
        left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
        yield node, f"({left} {_TURNED[type(node.ops[0])]} {right})"
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_text(node):
        yield node, f"({ast.unparse(node.left)} {_ARITHMETIC[type(node.op)]} {ast.unparse(node.right)})"
    if isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield node, f"({word.join(f'({ast.unparse(each)})' for each in node.values)})"
    if isinstance(node, (ast.If, ast.While, ast.IfExp)) and not _is_typing(node.test):
        yield node.test, f"(not ({ast.unparse(node.test)}))"
    if isinstance(node, ast.comprehension) and node.ifs:
        yield node.ifs[0], f"(not ({ast.unparse(node.ifs[0])}))"
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield node, f"({node.value} + 1)"
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield node, str(not node.value)
    if isinstance(node, ast.FunctionDef):
        for statement in _statements(node):
            yield statement, "pass"


def _statements(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    """Yield the statements of a function that can be left out without another error than their absence."""
    for node in ast.walk(function):
        for body in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            for statement in body if isinstance(body, list) else ():
                if isinstance(statement, (ast.Raise, ast.AugAssign, ast.Delete, ast.Continue)):
                    yield statement
                elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                    if "_LOG" not in ast.unparse(statement.value.func):
                        yield statement
                elif isinstance(statement, ast.Assign) and isinstance(
                    statement.targets[0], (ast.Attribute, ast.Subscript)
                ):
                    yield statement


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in ast.walk(node)
    )


def _is_typing(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in ast.unparse(test)


class Importers:
    """The test files that import a module, by way of how many others."""

    def __init__(self) -> None:
        self._imports: dict[str, frozenset[str]] = {}
        for path in SOURCE.rglob("*.py"):
            self._imports[_module(path.relative_to(SOURCE))] = _imported(path)
        self._tests = {
            path.relative_to(ROOT).as_posix(): _imported(path)
            for folder in TESTS
            for path in (ROOT / folder).rglob("test_*.py")
        }
        for path in (ROOT / "tests" / "support").glob("*.py"):
            self._imports[path.stem] = _imported(path)

    def tests(self) -> list[str]:
        """Return all test files; first those that import a module of the rooms."""
        rooms = {_module(file.relative_to(SOURCE)) for places in ROOMS.values() for file in _files(places)}
        return sorted(
            self._tests,
            key=lambda test: (not self._tests[test] & rooms, not test.startswith("tests/unit"), test),
        )

    def tests_of(self, path: str) -> list[list[str]]:
        """Return the test files that import a module, by their distance: nearest first."""
        wanted, seen, stages = {_module(Path("holdfast", path))}, set[str](), []
        used: set[str] = set()
        for _ in range(3):
            near = (test for test, names in self._tests.items() if names & wanted and test not in used)
            stage = sorted(near, key=lambda test: (not test.startswith("tests/unit"), test))
            used |= set(stage)
            stages.append(stage)
            seen |= wanted
            wanted = {name for name, names in self._imports.items() if names & wanted} - seen
        return stages


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


class Judge:
    """The tests of mutants, selected by the record of the lines that they execute.

    Args:
        record: The record of this source.
        importers: The test files by the modules that they import.
    """

    def __init__(self, record: Record, importers: Importers) -> None:
        self._record = record
        self._importers = importers
        self._file = record.folder / "kills.jsonl"
        lines = self._file.read_text("utf-8").splitlines() if self._file.exists() else []
        self._kills = {key: tuple(kill) for key, *kill in map(json.loads, lines)}
        preload(record.modules)

    def outcome_of(self, room: str, mutant: Mutant, copy: Path) -> Outcome:
        """Return the outcome of a mutant; run tests on it, unless an earlier run has killed it.

        A mutant of the same source stays killed while the test that failed is the same.
        """
        if mutant.key in _equivalent():
            return Outcome(room, mutant, "equivalent", "", 0)
        found = self._kills.get(mutant.id)
        if found is not None and found[1] in self._record.seconds:
            return Outcome(room, mutant, *found)
        began = time.monotonic()
        word, test = self._run(mutant, copy)
        seconds = round(time.monotonic() - began, 1)
        if test:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps([mutant.id, word, test, seconds]) + "\n")
        return Outcome(room, mutant, word, test, seconds)

    def _run(self, mutant: Mutant, copy: Path) -> tuple[str, str]:
        """Run tests on a mutant; return its outcome and the test that failed."""
        executing = self._record.tests_of(mutant.path, mutant.lines)
        further = self._within(executing[FIRST:], EXECUTING_S)
        others = self._within(self._others(mutant, frozenset(executing)), OTHERS_S)
        with changed(mutant, copy):
            for tests in (executing[:FIRST], further, others):
                ending = self._failure(tests, copy)
                if ending is not None:
                    return ("endless" if ending.endless else "killed"), ending.test or tests[0]
        return ("survived" if executing else "not executed"), ""

    def _within(self, tests: list[str], seconds: float) -> list[str]:
        """Return the first tests that together take no longer than this."""
        total = itertools.accumulate(self._record.seconds[test] for test in tests)
        return [test for test, end in zip(tests, total, strict=True) if end <= seconds]

    def _failure(self, tests: list[str], copy: Path) -> Ending | None:
        """Return the first failure of tests on a mutant that the unchanged code does not have."""
        while tests:
            ending = run(tests, copy, self._record.seconds)
            if ending.passed:
                return None
            failing = [test for test in tests if test.startswith(ending.test)]
            if run(
                failing if ending.test in failing else failing[:FIRST], SOURCE, self._record.seconds
            ).passed:
                return ending
            # A file that fails on the unchanged code, too, would do so test by test.
            file = ending.test.partition("::")[0]
            tests = [test for test in tests if not test.startswith(file)]
        return None

    def _others(self, mutant: Mutant, executing: frozenset[str]) -> list[str]:
        """Return tests whose lines are not recorded, or that share what an earlier test has computed.

        They are the tests of the files that import the changed module, and of those that start processes.
        """
        near, further = self._importers.tests_of(mutant.path)[:2]
        files = [*near, *(file for file in further if file in self._record.starters), *self._record.starters]
        tests = (test for file in dict.fromkeys(files) for test in self._record.tests_in([file]))
        return [test for test in tests if test not in executing]


@contextlib.contextmanager
def changed(mutant: Mutant, copy: Path) -> Iterator[None]:
    """Change a file of the copy for a while."""
    file = copy / "holdfast" / mutant.path
    original = file.read_bytes()
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)
    file.write_bytes(original[: mutant.start] + mutant.after.encode() + original[mutant.end :])
    try:
        yield
    finally:
        file.write_bytes(original)


def _equivalent() -> frozenset[str]:
    if not EQUIVALENT.exists():
        return frozenset()
    lines = EQUIVALENT.read_text("utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


_HOW: Final = f"""`make mutants COUNT={{count}} SEED={{seed}}` wrote this page. It breaks the code in one
place at a time and runs quick tests, which need neither a JVM nor a server, until one fails.

How a mutant is judged:

1. The quick tests have run once on the unchanged code, under coverage.py, which recorded the lines that each
   executes. A mutant gets the tests that execute the changed statement, the fastest first, for up to
   {EXECUTING_S:.0f} recorded seconds. A line that Python executes at import gets the tests that execute any
   line of its file.
2. If none of them fails, other tests run, for up to {OTHERS_S:.0f} recorded seconds: of the files that
   import the changed module, and of those that start processes, in which no lines are recorded.
3. `killed`: a test failed that then passed on the unchanged code.
4. `endless`: a test took longer than {PATIENCE_S:.0f} s and {TIMES} times its recorded time, and then, under
   the same load, stayed below this limit on the unchanged code and passed. These count as killed.
5. `survived`: none of the tests failed. `not executed`: the same, and no quick test executes the change.
6. `equivalent`: listed in `tests/equivalent_mutants.txt` with the reason; no test ran.
"""


def _rendered(outcomes: list[Outcome], count: int, seed: int, began: datetime, recorded: str) -> str:
    from proof_report import _commit, _machine

    by_room: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        by_room[outcome.room][outcome.word] += 1
    lines = [
        "# Mutants",
        "",
        _HOW.format(count=count, seed=seed),
        "| | |",
        "|---|---|",
        f"| begun | {began:%Y-%m-%d %H:%M} UTC |",
        f"| commit | {_commit()} |",
        f"| machine | {_machine()} |",
        f"| mutants | {len(outcomes)} of {count} drawn |",
        f"| test files | {recorded} |",
        f"| time | {sum(outcome.seconds for outcome in outcomes) / 60:.0f} min, without the record |",
        "",
        f"| Room | {' | '.join(OUTCOMES)} |",
        "|---|---|---|---|---|---|",
        *(
            f"| {room} | {' | '.join(str(counts[word]) for word in OUTCOMES)} |"
            for room, counts in by_room.items()
        ),
        f"| all | {' | '.join(str(sum(c[word] for c in by_room.values())) for word in OUTCOMES)} |",
        "",
        "## Survivors",
        "",
        "| Location | Before | After |",
        "|---|---|---|",
    ]
    for outcome in outcomes:
        if outcome.word in ("survived", "not executed"):
            mutant = outcome.mutant
            before, after = (_one_line(text).replace("|", "\\|") for text in (mutant.before, mutant.after))
            lines.append(f"| `{mutant.path}:{mutant.line}` | `{before}` | `{after}` |")
    return "\n".join(lines) + "\n" + kept_by_hand(REPORT, "Looked at")


if __name__ == "__main__":
    sys.exit(main())
