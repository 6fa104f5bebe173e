"""The record of which quick tests execute which lines of Holdfast: `make mutants` selects tests by it.

`Record.of` runs tests once under coverage.py and keeps the result in `.mutants`, in a directory named by the
digest of the source. A later call with the same source runs only the test files that have changed since, and
continues a record that was interrupted.
The functions at the end are the plugin of pytest that records.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src"
KEPT: Final = ROOT / ".mutants"
# Leaves out tests that need a JVM or a server.
MARKERS: Final = "not spark and not services and not fault and not browser"
FOLDER: Final = "HOLDFAST_EXECUTED_LINES"
# What their tests share is made once for all workers, and takes longer than any of them.
_UNTIMED: Final = frozenset({"tests/unit/cli/test_output_scenes.py"})
# Test files that run before the record is saved again.
_AT_ONCE: Final = 15
_STARTS: Final = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})


class Record:
    """Which tests execute a line, and how long each test takes.

    Args:
        folder: Directory with the record.

    Attributes:
        folder: The same.
        seconds: Duration of each test that passed, under coverage.py.
        starters: Test files of which a test starts a process; its lines are not recorded.
        files: The recorded test files.
        modules: Modules outside this repository that the tests import.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found = _read(folder)
        self.seconds: dict[str, float] = {
            test: seconds
            for test, seconds in found["seconds"].items()
            if test.partition("::")[0] not in _UNTIMED
        }
        self.starters = frozenset(found["starters"])
        self.modules: list[str] = found["modules"]
        self.files = frozenset(found["files"])
        self._data = _coverage().CoverageData(str(folder / "lines"))
        self._data.read()
        self._of_file: defaultdict[str, list[str]] = defaultdict(list)
        for test in self.seconds:
            self._of_file[test.partition("::")[0]].append(test)

    @classmethod
    def of(cls, files: Sequence[str], workers: int) -> Record:
        """Return the record of this source; run the tests of these files that it lacks."""
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        _remove_parts(folder)
        record = _read(folder)
        digests = {file: _digest([ROOT / file]) for file in files}
        changed = [file for file in files if record["files"].get(file) != digests[file]]
        for start in range(0, len(changed), _AT_ONCE):
            batch = changed[start : start + _AT_ONCE]
            _run(batch, folder, workers)
            for part in folder.glob("part-*.json"):
                new = json.loads(part.read_text("utf-8"))
                record["seconds"].update(new["seconds"])
                for name in ("starters", "modules"):
                    record[name] = sorted({*record[name], *new[name]})
            _combine(folder)
            record["files"].update({file: digests[file] for file in batch})
            (folder / "tests.json").write_text(json.dumps(record), encoding="utf-8")
            _remove_parts(folder)
        return cls(folder)

    @classmethod
    def unchanged(cls) -> Record:
        """Return the record of this source as far as it goes."""
        return cls(_folder())

    def tests_of(self, path: str, lines: Iterable[int]) -> list[str]:
        """Return the tests that execute one of the lines of a file, fastest first.

        Python executes the lines of a module and of its classes once, at import, for whichever test comes
        first. For them, these are the tests that execute any line of the file.
        """
        by_line = self._data.contexts_by_lineno(str(SOURCE / "holdfast" / path))
        contexts = {context for line in lines for context in by_line.get(line, ())}
        if "" in contexts:
            contexts = {context for found in by_line.values() for context in found} - {""}
        tests = {test for context in contexts for test in self._of_context(context)}
        return sorted(tests, key=lambda test: self.seconds[test])

    def tests_in(self, files: Iterable[str]) -> list[str]:
        """Return the tests of files, fastest first."""
        tests = [test for file in files for test in self._of_file.get(file, ())]
        return sorted(tests, key=lambda test: self.seconds[test])

    def _of_context(self, context: str) -> list[str]:
        """Return the tests of a context: one test, or all that share a fixture."""
        if context in self.seconds:
            return [context]
        return [
            test for test in self._of_file.get(context.partition("::")[0], ()) if test.startswith(context)
        ]


def _coverage() -> Any:
    """Return the module of coverage.py, which only `make mutants` installs."""
    return importlib.import_module("coverage")


def _folder() -> Path:
    return KEPT / _digest(sorted(SOURCE.rglob("*.py")))


def _remove_parts(folder: Path) -> None:
    """Remove what the workers of a run have left."""
    for path in (*folder.glob("part-*.json"), *folder.glob("lines.*")):
        path.unlink()


def _digest(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _read(folder: Path) -> dict[str, Any]:
    path = folder / "tests.json"
    if not path.exists():
        return {"seconds": {}, "starters": [], "modules": [], "files": {}}
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _run(files: list[str], folder: Path, workers: int) -> None:
    """Run test files with this plugin; tests that fail or are skipped are left out of the record."""
    words = [sys.executable, "-m", "pytest", "-q", "--no-header", "-n", str(workers), "-p", "executed_lines"]
    words += ["-p", "no:cacheprovider", "-p", "no:schemathesis", "-m", MARKERS, *files]
    paths = [str(SOURCE), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, FOLDER: str(folder), "PYTHONPATH": os.pathsep.join(paths)}
    environment.pop("HOLDFAST_GRID", None)
    log = folder / "tests.log"
    with log.open("w") as out:
        code = subprocess.run(
            words, cwd=ROOT, env=environment, stdout=out, stderr=out, check=False
        ).returncode
    if code not in (0, 1):
        raise SystemExit(f"the tests could not be recorded, pytest ended with {code}: see {log}")


def _combine(folder: Path) -> None:
    """Join what the workers recorded to the earlier record."""
    coverage = _coverage().Coverage(str(folder / "lines"), config_file=False, messages=False)
    coverage.load()
    coverage.combine([str(path) for path in folder.glob("lines.*")], strict=False, keep=False)
    coverage.save()


class _Recorder:
    """Plugin that names the running test to coverage.py, and notes its duration and what it starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = ""
        self._context = ""
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._passed: set[str] = set()
        self._starters: set[str] = set()
        self._coverage = _coverage().Coverage(
            str(folder / "lines"),
            data_suffix=True,
            include=[str(SOURCE / "holdfast" / "*")],
            config_file=False,
        )
        self._coverage.start()
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _: tuple[Any, ...]) -> None:
        if event in _STARTS and self._file:
            self._starters.add(self._file)

    def _switch(self, context: str) -> None:
        self._context = context
        self._coverage.switch_context(context)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._file = item.nodeid.partition("::")[0]
        self._switch(item.nodeid)
        try:
            return (yield)
        finally:
            self._file = ""
            self._switch("")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Give the lines of a shared fixture to all tests that share it."""
        if fixturedef.scope == "function":
            return (yield)
        earlier = self._context
        self._switch(request.node.nodeid)
        try:
            return (yield)
        finally:
            self._switch(earlier)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.when == "call" and report.passed:
            self._passed.add(report.nodeid)
        elif not report.passed:
            self._passed.discard(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        outside = [
            name
            for name, module in list(sys.modules.items())
            if (not name.startswith("__") and "-packages" in (getattr(module, "__file__", None) or ""))
            or name in sys.stdlib_module_names
        ]
        part = {
            "seconds": {test: self._seconds[test] for test in self._passed},
            "starters": sorted(self._starters),
            "modules": sorted(outside),
        }
        (self._folder / f"part-{os.getpid()}.json").write_text(json.dumps(part), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Record in the processes that run tests."""
    folder = os.environ.get(FOLDER)
    if folder and (hasattr(config, "workerinput") or not config.getoption("numprocesses", default=0)):
        config.pluginmanager.register(_Recorder(Path(folder)))
