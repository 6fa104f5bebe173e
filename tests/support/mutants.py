"""Are the tests worth their time? `make mutants COUNT=100 SEED=…` breaks the code and counts who notices.

A mutant is one change in one file: a comparison or a condition turned round, a constant off by one, a
statement left out, and so on. They are drawn by seed from the files that guard people's state, equally often
from each room. For each, the tests run that import the changed module, the nearest importers first, until one
fails. The survivors are written to `docs/proof/mutants.md`; those that change nothing anybody can see stand
in `tests/equivalent_mutants.txt`, with the reason.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from proof_report import kept_by_hand

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src"
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
# The folders of tests that need neither a JVM nor a server.
TESTS: Final = ("tests/unit", "tests/property", "tests/contract")
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
    def key(self) -> str:
        """The change without its line, which moves."""
        return f"{self.path} | {_one_line(self.before)} | {_one_line(self.after)}"


def main() -> int:
    """Draw mutants, run the tests on each, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0, help="end after this time; 0 for no limit")
    parser.add_argument("--limit", type=float, default=300, help="seconds for the tests of one mutant")
    parser.add_argument("--only", default="", help="a room")
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    given = parser.parse_args()
    drawn = draw(given.count, given.seed, given.only)
    if given.list:
        for room, mutant in drawn:
            _say(f"{room}: {mutant.path}:{mutant.line}: {mutant.before} -> {mutant.after}")
        return 0
    began, until = datetime.now(timezone.utc), time.monotonic() + (given.minutes * 60 or 1e9)
    importers = Importers()
    outcomes: list[tuple[str, Mutant, str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "src")
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for room, mutant in drawn:
            if time.monotonic() > until:
                break
            at = time.monotonic()
            outcome = outcome_of(mutant, copy, importers.tests_of(mutant.path), given.limit)
            outcomes.append((room, mutant, outcome, time.monotonic() - at))
            _say(f"{len(outcomes)}/{len(drawn)} {room}: {mutant.path}:{mutant.line} {outcome}")
            if outcome == "survived":
                _say(f"    {_one_line(mutant.before)} -> {_one_line(mutant.after)}")
            if not given.only:
                REPORT.write_text(_rendered(outcomes, given.count, given.seed, began), encoding="utf-8")
    return 0


def draw(count: int, seed: int, only: str = "") -> list[tuple[str, Mutant]]:
    """Return so many mutants, in turn from each room."""
    rng = random.Random(seed)
    rooms = {room: _shuffled(room, rng) for room in ROOMS if only in room}
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
    for place in ROOMS[room]:
        path = SOURCE / "holdfast" / place
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        for file in files:
            mutants += mutants_of(file.read_text("utf-8"), file.relative_to(SOURCE / "holdfast").as_posix())
    rng.shuffle(mutants)
    return iter(mutants)


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


def outcome_of(mutant: Mutant, copy: Path, stages: list[list[str]], limit: float) -> str:
    """Run the tests on a mutant; return what became of it."""
    if mutant.key in _equivalent():
        return "equivalent"
    file = copy / "holdfast" / mutant.path
    original = file.read_bytes()
    file.write_bytes(original[: mutant.start] + mutant.after.encode() + original[mutant.end :])
    try:
        compile(file.read_bytes(), mutant.path, "exec")
        until = time.monotonic() + limit
        for stage in stages:
            left = until - time.monotonic()
            if not stage or left < 1:
                continue
            code = _tested(stage, copy, left)
            if code is None:
                return "timed out"
            if code not in (0, 5):
                return "killed"
    finally:
        file.write_bytes(original)
    return "survived"


def _tested(tests: list[str], copy: Path, limit: float) -> int | None:
    """Run test files until one fails; return the exit code, or None after the limit."""
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    words += ["-p", "no:schemathesis", "-m", "not slow", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("HOLDFAST_GRID", None)
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return None


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


def _rendered(outcomes: list[tuple[str, Mutant, str, float]], count: int, seed: int, began: datetime) -> str:
    from proof_report import _commit, _machine

    by_room: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for room, _, outcome, _ in outcomes:
        by_room[room][outcome] += 1
    words = ("killed", "survived", "timed out", "equivalent")
    lines = [
        "# Mutants",
        "",
        f"`make mutants COUNT={count} SEED={seed}` wrote this page. It breaks the code in one place at a",
        "time and runs the quick tests that import the changed module, the nearest first, until one fails.",
        "",
        "| | |",
        "|---|---|",
        f"| begun | {began:%Y-%m-%d %H:%M} UTC |",
        f"| commit | {_commit()} |",
        f"| machine | {_machine()} |",
        f"| mutants | {len(outcomes)} of {count} drawn |",
        f"| time | {sum(seconds for *_, seconds in outcomes) / 60:.0f} min |",
        "",
        f"| Room | {' | '.join(words)} |",
        "|---|---|---|---|---|",
        *(
            f"| {room} | {' | '.join(str(counts[word]) for word in words)} |"
            for room, counts in by_room.items()
        ),
        f"| all | {' | '.join(str(sum(c[word] for c in by_room.values())) for word in words)} |",
        "",
        "## Survivors",
        "",
        "| Place | Before | After |",
        "|---|---|---|",
    ]
    for _, mutant, outcome, _ in outcomes:
        if outcome in ("survived", "timed out"):
            before, after = (_one_line(each).replace("|", "\\|") for each in (mutant.before, mutant.after))
            lines.append(f"| `{mutant.path}:{mutant.line}` | `{before}` | `{after}` |")
    return "\n".join(lines) + "\n" + kept_by_hand(REPORT, "Looked at")


if __name__ == "__main__":
    sys.exit(main())
