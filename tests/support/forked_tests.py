"""Tests of a changed source, each run in a fork of a process that has loaded other packages.

This process must not import Holdfast or run tests itself; a fork does, from the source directory it gets.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import pytest
from executed_lines import MARKERS, ROOT

# A test is ended when it takes longer than this, and this many times its recorded time.
PATIENCE_S: Final = 30.0
TIMES: Final = 10
_LOADING_S: Final = 180.0


@dataclass(frozen=True)
class Ending:
    """How a run of tests ended.

    Attributes:
        passed: True if all tests passed.
        test: The test that failed or was ended, or the file that could not be imported.
        endless: True if the test, or the import of the tests, was ended.
    """

    passed: bool
    test: str = ""
    endless: bool = False


def preload(modules: Iterable[str]) -> None:
    """Import modules for all forks; what cannot be imported here is left to them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def run(tests: Sequence[str], source: Path, seconds: Mapping[str, float]) -> Ending:
    """Run tests in their order until one fails.

    Args:
        tests: Ids of tests.
        source: Directory that contains `holdfast`.
        seconds: Recorded duration of each test.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        _run_in_fork(tests, source, writing)
    os.close(writing)
    try:
        return _followed(reading, seconds)
    finally:
        os.close(reading)
        # The fork leads the group of the processes that its tests started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _followed(reading: int, seconds: Mapping[str, float]) -> Ending:
    """Read what a fork reports until it ends, or takes too long."""
    test, until, rest = "", time.monotonic() + _LOADING_S, b""
    with selectors.DefaultSelector() as selector:
        selector.register(reading, selectors.EVENT_READ)
        while True:
            if not selector.select(max(until - time.monotonic(), 0)):
                return Ending(False, test, endless=True)
            data = os.read(reading, 1 << 16)
            if not data:
                return Ending(False, test)  # the fork died
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                event, test = json.loads(line)
                if event == "failed":
                    return Ending(False, test)
                if event == "passed":
                    return Ending(True)
                until = time.monotonic() + PATIENCE_S + TIMES * seconds.get(test, 0)


class _Reporter:
    """Plugin that selects tests and reports which one runs and which one failed."""

    def __init__(self, tests: Sequence[str], reports: int) -> None:
        self._order = {test: number for number, test in enumerate(tests)}
        self._reports = reports

    def say(self, event: str, test: str) -> None:
        os.write(self._reports, json.dumps([event, test]).encode() + b"\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the selected tests, file by file, so that tests share the fixtures of their file.

        A change can give the cases of a test other names; then all of its cases are kept.
        """
        renamed = {test.partition("[")[0] for test in self._order.keys() - {item.nodeid for item in items}}
        order = {
            item: self._order.get(item.nodeid, len(self._order))
            for item in items
            if item.nodeid in self._order or item.nodeid.partition("[")[0] in renamed
        }
        files: dict[str, list[pytest.Item]] = {}
        for item in sorted(order, key=order.__getitem__):
            files.setdefault(item.nodeid.partition("::")[0], []).append(item)
        items[:] = [item for group in files.values() for item in group]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.say("started", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.say("failed", report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.say("failed", report.nodeid)


def _run_in_fork(tests: Sequence[str], source: Path, reports: int) -> NoReturn:
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        os.environ["PYTHONPATH"] = str(source)
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
        os.environ.pop("HOLDFAST_GRID", None)
        sys.path.insert(0, str(source))
        for name, module in list(sys.modules.items()):
            if name != "__main__" and (getattr(module, "__file__", None) or "").startswith(f"{ROOT}/tests/"):
                del sys.modules[name]
        os.chdir(ROOT)
        reporter = _Reporter(tests, reports)
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        words = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-m", MARKERS]
        # Modules loaded before pytest starts have no rewritten assertions.
        words += ["-W", "ignore::pytest.PytestAssertRewriteWarning", *files]
        code = pytest.main(words, plugins=[reporter])
        passed = code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        reporter.say("passed" if passed else "failed", "")
    finally:
        os._exit(0)
