"""Ten faults of the past, put back one by one: `make past-faults` measures when a quick test finds each.

Each was found by somebody once, in an earlier state of the code. Here it is one change of today's code. The
result is in `docs/proof/past-faults.md`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, NamedTuple

from executed_lines import ROOT, SOURCE
from mutants import Importers, Mutant, changed

REPORT: Final = ROOT / "docs" / "proof" / "past-faults.md"
LIMIT_S: Final = 600.0
_PAGE: Final = """# Faults of the past

`make past-faults` wrote this page. It puts ten faults that were found and fixed back into today's code, one
by one, and runs the quick tests that import the changed module, the nearest first, until one fails. Where
only a recorded power failure shows the fault, the test of `make test` that records one is run.

Begun {began} UTC at commit {commit}, {cores} cores, load {load:.1f} at the end.

| Fault | File | Outcome | Test | After |
|---|---|---|---|---|
{rows}
"""


class Fault(NamedTuple):
    """A fault: what it did, the file below `src/holdfast`, and the change that puts it back.

    `make test` has `test` for it, where no quick test can find it.
    """

    what: str
    path: str
    before: str
    after: str
    test: str = ""


FAULTS: Final = (
    Fault(
        "setdefault of a map state returns the given object, not the stored one",
        "worker/runtime/handles.py",
        "return self._entries()[key if self.read_key is None else self.read_key(key)]",
        "return default",
    ),
    Fault(
        "a take leaves a damaged object in the catalog, and the new savepoint is damaged too",
        "savepoints/catalog.py",
        "    if found == sha256:\n        return False",
        "    if found:\n        return False",
    ),
    Fault(
        "storage that ignores conditional creates gives one term to two owners",
        "ownership/storage_election.py",
        "newest != term.token or not self._is_own(term.token)",
        "newest != term.token",
    ),
    Fault(
        "a committed row of the registry comes undone in a power failure",
        "storage/shared_database.py",
        "'EXTRA' if self._shape.lasting",
        "'FULL' if self._shape.lasting",
        "tests/fault/test_power_cuts.py::test_registry",
    ),
    Fault(
        "verify reports files as lost that Spark's cleanup has deleted",
        "checkpoints/verification/file_checks.py",
        "    left_behind = {file.version for file in gone if file.kind is FileKind.SNAPSHOT}",
        "    return list(gone)",
    ),
    Fault(
        "a ledger whose database was put back to an older state skips batches",
        "formats/logs/notes.py",
        "return query_id == self.query_id and self.first_batches.get(sink, batch_id) < batch_id",
        "return False",
    ),
    Fault(
        "values lose their age when a key group is converted to new code",
        "worker/state/loading.py",
        '            if stamps is not None:\n                made[f"{STAMP_PREFIX}{state.name}"] = stamps',
        '            if stamps is None:\n                made[f"{STAMP_PREFIX}{state.name}"] = stamps',
    ),
    Fault(
        "verify calls a RocksDB snapshot whole that needs a data file of a different run",
        "checkpoints/verification/state_checks.py",
        "        if live is None:\n            return\n        session = None if",
        "        if live is not None:\n            return\n        session = None if",
    ),
    Fault(
        "a flow of a pipeline is restored behind the batches of its table, and the sink skips them",
        "savepoints/restoring.py",
        "    if not accept_loss:\n        require_newest_of_flow",
        "    if accept_loss:\n        require_newest_of_flow",
    ),
    Fault(
        "a deleted savepoint comes back in a power failure, without its files",
        "storage/local.py",
        "            return\n        self._flush_name(path)\n\n    def file_of",
        "            return\n\n    def file_of",
        "tests/fault/test_power_cuts.py::test_delete",
    ),
)


def as_mutant(fault: Fault) -> Mutant:
    """Return the change of today's code that puts a fault back."""
    text = (SOURCE / "holdfast" / fault.path).read_bytes()
    before = fault.before.encode()
    assert text.count(before) == 1, f"{fault.path}: {fault.before!r} is there {text.count(before)} times"
    start = text.index(before)
    line = text.count(b"\n", 0, start) + 1
    return Mutant(fault.path, line, start, start + len(before), fault.before, fault.after)


def _outcome(mutant: Mutant, copy: Path, stages: list[list[str]]) -> str:
    """Run the tests on a fault, stage by stage, until one fails."""
    until = time.monotonic() + LIMIT_S
    with changed(mutant, copy):
        for stage in stages:
            left = until - time.monotonic()
            if not stage or left < 1:
                continue
            code = _exit_code(stage, copy, left)
            if code is None:
                return "timed out"
            if code not in (0, 5):
                return "killed"
    return "survived"


def _exit_code(tests: list[str], copy: Path, limit: float) -> int | None:
    """Run test files until one test fails; return the exit code, or None after the limit."""
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


def main() -> int:
    """Put the faults back, run the tests on each, and write the report."""
    importers, rows = Importers(), []
    began = datetime.now(timezone.utc)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "src")
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for fault in FAULTS:
            at = time.monotonic()
            mutant = as_mutant(fault)
            stages = [[fault.test]] if fault.test else importers.tests_of(fault.path)
            outcome = _outcome(mutant, copy, stages)
            said = {"killed": "found", "survived": "not found"}.get(outcome, outcome)
            by = f"`{fault.test}`" if fault.test else "a quick test"
            rows.append(f"| {fault.what} | `{fault.path}` | {said} | {by} | {time.monotonic() - at:.0f} s |")
            sys.stdout.write(f"{rows[-1]}\n")
            sys.stdout.flush()
    page = _PAGE.format(
        began=f"{began:%Y-%m-%d %H:%M}",
        commit=commit.stdout.strip(),
        cores=os.cpu_count(),
        load=os.getloadavg()[1],
        rows="\n".join(rows),
    )
    REPORT.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
