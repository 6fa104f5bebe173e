"""Run the tests of other projects against Holdfast: `make examiners`, or `make examiners ONLY=NAME`.

An examiner is a set of tests, or a checker, that Holdfast's authors did not write, fetched by
`scripts/services-examiners.sh`. Each failure has to be listed in `known_failures.txt` with its reason; any
other failure, and a listed test that passes, is an error. Reports are written to `build/examiners`.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import histories
import pyspark
from loopback import free_ports

from holdfast.engine.session.jars import state_jar
from holdfast.engine.session.java import find_java

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
SERVICES: Final = ROOT / ".services"
REPORTS: Final = ROOT / "build" / "examiners"
KNOWN: Final = HERE / "known_failures.txt"
PYSPARK_JARS: Final = Path(pyspark.__file__).parent / "jars"
STATE: Final = "org.apache.spark.sql.execution.streaming.state.examiners"

# Their variants `_checkpoint_v2` differ by the format of checkpoints alone, which Holdfast sets to 2 for all.
PYTHON_MODULES: Final = (
    "pandas.streaming.test_transform_with_state",
    "pandas.streaming.test_transform_with_state_state_variable",
    "pandas.streaming.test_pandas_transform_with_state",
    "pandas.streaming.test_pandas_transform_with_state_state_variable",
    "streaming.test_streaming_foreach_batch",
    "streaming.test_streaming_foreach",
    "streaming.test_streaming",
    "streaming.test_streaming_listener",
)
OPERATOR_SUITES: Final = (
    "Deduplication",
    "DeduplicationWithinWatermark",
    "Aggregation",
    "FlatMapGroupsWithState",
    "LeftSemiJoin",
    "InnerJoin",
    "OuterJoin",
    "FullOuterJoin",
)
# As spark-submit opens them.
OPENED: Final = """
java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util java.util.concurrent
java.util.concurrent.atomic jdk.internal.ref sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar
"""
LOGGING: Final = """
rootLogger.level = off
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a test.

    Attributes:
        test: Its name, with that of its class.
        outcome: "passed", "failed" or "skipped".
        reason: The error, or why it was skipped.
        seconds: How long it took.
    """

    test: str
    outcome: str
    reason: str
    seconds: float


def run_pyspark(only: str, folder: Path) -> Iterator[Outcome]:
    """Run PySpark's own tests of streaming under the settings of `hf.configure`.

    Args:
        only: A part of the names of modules, or MODULE:TEST.
        folder: The directory of the reports.
    """
    wanted, _, part = only.partition(":")
    for module in PYTHON_MODULES:
        if wanted not in module:
            continue
        working = folder / module
        working.mkdir(parents=True)
        words = [
            HERE / "pyspark_session.py",
            f"pyspark.sql.tests.{module}",
            os.environ.get("SETTINGS", "holdfast"),
            2,
            part,
        ]
        environment = {
            "HOLDFAST_HOME": str(working / "home"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(working),
        }
        with (working / "outcomes").open("w") as outcomes, (working / "log").open("w") as log:
            done = subprocess.run(
                [sys.executable, *map(str, words)],
                cwd=working,
                env={**os.environ, **environment},
                stdout=outcomes,
                stderr=log,
                check=False,
            )
        lines = [
            line for line in (working / "outcomes").read_text().splitlines() if line.startswith('{"test"')
        ]
        yield from (Outcome(**json.loads(line)) for line in lines)
        if done.returncode or not lines:
            yield Outcome(
                module, "failed", f"the process ended with {done.returncode}; see {working / 'log'}", 0
            )


def run_stores(only: str, folder: Path) -> Iterator[Outcome]:
    """Run Spark's suite of state stores on Redis."""
    yield from _run_scala(["RedisStoreSuite"], only, folder)


def run_operators(only: str, folder: Path) -> Iterator[Outcome]:
    """Run Spark's suites of stateful operators with their state in Redis."""
    for name in OPERATOR_SUITES:
        if only in name:
            yield from _run_scala([f"Redis{name}Suite"], "", folder / name)


def run_histories(only: str, folder: Path) -> Iterator[Outcome]:
    """Record histories under kills and freezes, and check them with porcupine."""
    histories.build()
    seconds, rounds = float(os.environ.get("SECONDS_EACH", "20")), int(os.environ.get("ROUNDS", "3"))
    base = os.environ.get("HOLDFAST_SEED", "1")
    for number in range(rounds):
        for use in ("election", "ledger"):
            seed = f"{base}.{number}"
            operations = histories.record(use, folder / f"{use}-{seed}", seed, seconds)
            for model in histories.MODELS:
                if histories.MODELS[model][0] != use or only not in model:
                    continue
                answer, count = histories.check(model, operations, folder / f"{model}-{seed}.jsonl")
                outcome = "passed" if answer == "ok" and count > 50 else "failed"
                ended = sum(each["outcome"] == "unknown" for each in operations)
                reason = f"{answer}: {count} operations, {ended} cut off by a kill"
                yield Outcome(f"{model}, seed {seed}", outcome, reason, seconds)
                spoiled = histories.spoil(model, operations)
                answer, _ = histories.check(model, spoiled, folder / f"{model}-{seed}-spoiled.jsonl")
                outcome = "passed" if answer == "illegal" else "failed"
                yield Outcome(
                    f"{model}, seed {seed}, with a late write of an older token", outcome, answer, 0
                )


def _run_scala(suites: list[str], only: str, folder: Path) -> Iterator[Outcome]:
    folder.mkdir(parents=True)
    java = str(find_java(os.environ).home / "bin" / "java")
    fetched = [
        *sorted((SERVICES / "suites").glob("*.jar")),
        *sorted((SERVICES / "examiners" / "jars").glob("*.jar")),
    ]
    clients = sorted((SERVICES / "state-clients" / "redis").glob("*.jar"))
    if not (SERVICES / "examiners" / "jars").exists() or not clients:
        sys.exit("error: Spark's suites are missing. Run `make services services-examiners`")
    # Some suites open resources of their jar as files.
    resources = ROOT / "build" / "examiners-resources"
    if not resources.exists():
        (jar,) = (SERVICES / "suites").glob("spark-sql_*-tests.jar")
        shutil.unpack_archive(jar, resources, "zip")
    classes = ROOT / "build" / "examiners-classes"
    _compile(java, [*fetched, *clients, state_jar()], classes)
    (folder / "log4j2.properties").write_text(LOGGING)
    (port,) = free_ports(1)
    command = [
        java,
        "-Xmx2g",
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
    ]
    command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED.split()]
    command += ["-Dspark.testing=1", "-Dspark.ui.enabled=false", "-Dspark.ui.showConsoleProgress=false"]
    command += [f"-Dspark.test.home={PYSPARK_JARS.parent}", f"-Dexaminers.redis=127.0.0.1:{port}"]
    command += [f"-Djava.io.tmpdir={folder}"]
    path = [folder, classes, resources, *fetched, f"{PYSPARK_JARS}/*", state_jar(), *clients]
    command += ["-cp", ":".join(map(str, path)), "org.scalatest.tools.Runner", "-R", str(classes), "-oW"]
    command += ["-u", str(folder / "reports"), *(["-z", only] if only else [])]
    command += [word for suite in suites for word in ("-s", f"{STATE}.{suite}")]
    environment = {"SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
    environment["SPARK_HOME"] = str(PYSPARK_JARS.parent)
    server = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    with (folder / "log").open("w") as log, subprocess.Popen(server, stdout=subprocess.DEVNULL) as redis:
        try:
            done = subprocess.run(
                command, cwd=folder, env={**os.environ, **environment}, stdout=log, stderr=log, check=False
            )
        finally:
            redis.terminate()
    reports = sorted((folder / "reports").glob("*.xml"))
    for report in reports:
        yield from _outcomes(ElementTree.parse(report).getroot())
    if not reports:
        yield Outcome(
            " ".join(suites), "failed", f"the process ended with {done.returncode}; see {folder / 'log'}", 0
        )


def _compile(java: str, jars: list[Any], classes: Path) -> None:
    sources = sorted((HERE / "scala").glob("*.scala"))
    newest = max(source.stat().st_mtime for source in sources)
    if classes.exists() and classes.stat().st_mtime > newest:
        return
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir(parents=True)
    path = ":".join(map(str, [*jars, *PYSPARK_JARS.glob("*.jar")]))
    compiler = [java, "-XX:+UseSerialGC", "-cp", f"{PYSPARK_JARS}/*", "scala.tools.nsc.Main", "-nowarn"]
    subprocess.run(
        [*compiler, "-release", "17", "-cp", path, "-d", str(classes), *map(str, sources)], check=True
    )


def _outcomes(suite: ElementTree.Element) -> Iterator[Outcome]:
    for case in suite.iter("testcase"):
        bad = [child for child in case if child.tag in ("failure", "error")]
        skipped = case.find("skipped") is not None
        outcome = "failed" if bad else "skipped" if skipped else "passed"
        reason = (bad[0].get("message") or bad[0].text or "") if bad else ""
        name = f"{suite.get('name', '').rpartition('.')[2]}: {case.get('name')}"
        yield Outcome(name, outcome, reason, float(case.get("time", "0")))


EXAMINERS: Final[dict[str, Callable[[str, Path], Iterator[Outcome]]]] = {
    "pyspark": run_pyspark,
    "stores": run_stores,
    "operators": run_operators,
    "histories": run_histories,
}


def known_failures() -> dict[str, str]:
    """Return the reason for each pattern of failing tests."""
    lines = [line for line in KNOWN.read_text().splitlines() if line and not line.startswith("#")]
    return {
        pattern.strip(): reason.strip() for pattern, _, reason in (line.partition(" | ") for line in lines)
    }


def judge(outcomes: list[Outcome], known: dict[str, str]) -> list[str]:
    """Return what is wrong: failures without a reason, and tests that pass although they are listed."""
    wrong = []
    for outcome in outcomes:
        listed = any(fnmatch.fnmatchcase(outcome.test, pattern) for pattern in known)
        if outcome.outcome == "failed" and not listed:
            wrong.append(f"failed: {outcome.test}: {outcome.reason.strip()[-400:]}")
        if outcome.outcome == "passed" and listed:
            wrong.append(f"passes, but is listed in {KNOWN.name}: {outcome.test}")
    return wrong


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the examiners that were asked for, and print their counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(EXAMINERS)}; all by default")
    parser.add_argument(
        "--only", default="", help="a part of the names of tests; for pyspark of modules, or MODULE:TEST"
    )
    arguments = parser.parse_args()
    wrong = []
    for name in arguments.names or EXAMINERS:
        folder = REPORTS / name
        shutil.rmtree(folder, ignore_errors=True)
        outcomes = []
        for outcome in EXAMINERS[name](arguments.only, folder):
            outcomes.append(outcome)
            (REPORTS / f"{name}.json").write_text(json.dumps([asdict(each) for each in outcomes], indent=1))
        counts = Counter(outcome.outcome for outcome in outcomes)
        say(
            f"{name}: {len(outcomes)} tests, "
            + ", ".join(f"{counts[word]} {word}" for word in sorted(counts))
        )
        wrong += judge(outcomes, known_failures())
    for line in wrong:
        say(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
