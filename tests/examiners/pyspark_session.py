"""Run one module of PySpark's own tests in a session of Holdfast, and print an outcome per line as JSON.

Arguments: the module, `holdfast` or `plain` (the settings of Spark alone), the seconds that a test may wait
for a query which does not end, and a part of the names of tests.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import unittest
from pathlib import Path
from typing import Any, Final

import pyspark.sql
from pyspark import SparkConf, SparkContext, cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.testing import sqlutils, utils

import holdfast as hf
from holdfast.engine.file_manager import local_settings

SUITES: Final = Path(__file__).parents[2] / ".services" / "examiners" / "python" / "pyspark"


def configured(conf: SparkConf, master: str, settings: str) -> SparkConf:
    """Return the settings of a class of tests, with Holdfast's."""
    builder: Any = SparkSession.builder.master(master)
    for key, value in conf.getAll():
        builder = builder.config(key, value)
    if settings == "holdfast":
        builder = hf.configure(builder)
    session = SparkConf()
    for key, value in builder._options.items():
        session.set(key, str(value))
    return session.set("spark.ui.enabled", "false")


class Outcomes(unittest.TestResult):
    """Prints the outcome of each test as it ends."""

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - its name in unittest
        super().startTest(test)
        self.began = time.monotonic()

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - its name in unittest
        super().stopTest(test)
        failures = dict(reversed([*self.failures, *self.errors]))
        skips = dict(self.skipped)
        outcome, reason = ("failed", failures[test]) if test in failures else ("passed", "")
        if test in skips:
            outcome, reason = "skipped", skips[test]
        self.report(test.id(), outcome, reason, time.monotonic() - self.began)

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802 - its name in unittest
        super().addError(test, err)
        if not isinstance(test, unittest.TestCase):  # the set-up of a class
            self.report(str(test), "failed", self.errors[-1][1], 0)

    @staticmethod
    def report(test: str, outcome: str, reason: str, seconds: float) -> None:
        """Print a line."""
        name = test.removeprefix("pyspark.sql.tests.")
        line = {"test": name, "outcome": outcome, "reason": reason, "seconds": round(seconds, 1)}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def run(module: str, settings: str, patience_s: float, part: str) -> None:
    """Run the tests of a module whose names have this part."""
    pyspark.sql.__path__.append(str(SUITES / "sql"))
    # Names that moved between the commit of the tests and the release.
    for name in dir(utils):
        if name.startswith("have_") or name.endswith("_requirement_message"):
            sqlutils.__dict__.setdefault(name, getattr(utils, name))
    package = importlib.import_module("pyspark.sql.tests")
    pickling: Any = cloudpickle
    pickling.register_pickle_by_value(package)  # the workers do not have this package
    contexts: Any = utils.ReusedPySparkTestCase
    sessions: Any = sqlutils.ReusedSQLTestCase
    queries: Any = StreamingQuery

    def set_up(cls: Any) -> None:
        super(contexts, cls).setUpClass()
        cls.sc = SparkContext(cls.master(), cls.__name__, conf=configured(cls.conf(), cls.master(), settings))
        cls.sc.setLogLevel("OFF")

    contexts.setUpClass = classmethod(set_up)
    start_session = sessions.setUpClass.__func__

    def set_up_session(cls: Any) -> None:
        start_session(cls)
        if settings == "holdfast":
            for key, value in local_settings(cls.spark).items():
                cls.spark.conf.set(key, value)

    sessions.setUpClass = classmethod(set_up_session)
    wait = queries.awaitTermination

    def wait_less(self: StreamingQuery, timeout: float | None = None) -> Any:
        return wait(self, None if timeout is None else min(timeout, patience_s))

    queries.awaitTermination = wait_less
    unittest.defaultTestLoader.testNamePatterns = [f"*{part}*"]
    tests: Any = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module))
    # Without the base classes that the module imports.
    own = (each for each in tests if any(test.id().startswith(module) for test in each))
    unittest.TestSuite(own).run(Outcomes())


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    run(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4])
