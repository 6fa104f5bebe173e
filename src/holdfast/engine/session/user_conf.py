"""What the user has already set for Spark, read from the places that Spark reads itself."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

# Set by `spark-submit` for the program that it starts: where its JVM listens.
GATEWAY_VARIABLE: Final = "PYSPARK_GATEWAY_PORT"


def spark_home(environ: Mapping[str, str]) -> Path | None:
    """The Spark that would run: SPARK_HOME, or the one that the pyspark package carries."""
    named = environ.get("SPARK_HOME")
    if named:
        return Path(named)
    spec = importlib.util.find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def jars_of_spark(environ: Mapping[str, str], pattern: str) -> list[Path]:
    """Those of its jars whose names fit, sorted; none where there is no Spark."""
    home = spark_home(environ)
    return [] if home is None else sorted((home / "jars").glob(pattern))


def given_settings(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Settings from `spark-defaults.conf` and PYSPARK_SUBMIT_ARGS, each with the place it came from.

    A value set through the builder would override both without a word, so a default of ours is only
    used for keys that are not in here.
    """
    found: dict[str, tuple[str, str]] = {}
    home = spark_home(environ)
    folder = environ.get("SPARK_CONF_DIR") or (str(home / "conf") if home else None)
    if folder:
        path = Path(folder) / "spark-defaults.conf"
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            found.update({key: (value, str(path)) for key, value in _properties(text)})
    arguments = _words(environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for flag, value in pairwise(arguments):
        if flag in ("--conf", "-c") and "=" in value:
            key, _, setting = value.partition("=")
            found[key] = (setting, "PYSPARK_SUBMIT_ARGS")
        elif flag in _FLAGS:
            found[_FLAGS[flag]] = (value, "PYSPARK_SUBMIT_ARGS")
    return found


def submitted_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of the `spark-submit` that has started this program; none where none has.

    They are in its JVM, which waits for us at a port. What a builder sets wins over them.
    """
    if GATEWAY_VARIABLE not in environ:
        return {}
    from pyspark import SparkConf, SparkContext

    ensure: Any = SparkContext._ensure_initialized
    ensure()
    return {str(key): str(value) for key, value in SparkConf().getAll()}


_FLAGS = {
    "--master": "spark.master",
    "--jars": "spark.jars",
    "--packages": "spark.jars.packages",
    "--repositories": "spark.jars.repositories",
    "--driver-memory": "spark.driver.memory",
    "--executor-memory": "spark.executor.memory",
    "--executor-cores": "spark.executor.cores",
    "--total-executor-cores": "spark.cores.max",
    "--num-executors": "spark.executor.instances",
    "--py-files": "spark.submit.pyFiles",
    "--files": "spark.files",
    "--archives": "spark.archives",
}


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _properties(text: str) -> Iterator[tuple[str, str]]:
    """The `key value`, `key=value` or `key: value` lines of a Java properties file."""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            parts = re.split(r"\s*[=:]\s*|\s+", stripped, maxsplit=1)
            yield parts[0], parts[1] if len(parts) > 1 else ""
