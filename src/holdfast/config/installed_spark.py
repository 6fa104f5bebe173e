"""The installed Spark and its platform: versions, known settings, and the user's configuration.

Platforms are identified by environment variables or files on their machines.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from holdfast.config.spark_versions import installed

GUIDE: Final = "docs/guides/platforms.md"
_TRUE: Final = ("1", "true")
# A platform's name, environment variables and path patterns, one of which is enough to identify it.
_WITH_OLDER_SPARK: Final = (
    ("AWS Glue", ("GLUE_VERSION", "GLUE_PYTHON_VERSION"), ()),
    # Amazon's builds of Spark have `amzn` in their versions, with a cluster and without one.
    ("Amazon EMR", (), ("mnt/var/lib/info/job-flow.json", "usr/lib/spark/jars/spark-core_*amzn*.jar")),
    ("Dataproc", ("DATAPROC_IMAGE_VERSION", "DATAPROC_VERSION"), ("etc/google-dataproc",)),
)
_NEEDS_NEWER: Final = (
    "jobs and keyed state need Spark 4.2 or 4.3, which its releases may not have; hf.guard and hf.watch need"
    " Spark 3.5 to 4.3, and are not tested on its build of Spark; commands on files read checkpoints of Spark"
    " 3.4 to 4.3"
)


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform that provides its own Spark.

    Attributes:
        name: The name of the platform.
        told_by: The environment variable or file that identified the platform.
        refused: The features that are not available there.
        starts_spark: Whether a user's process can start Spark there.
    """

    name: str
    told_by: str
    refused: str
    starts_spark: bool = True


def platform_here(environ: Mapping[str, str], root: Path = Path("/")) -> Platform | None:
    """Return the platform of this process; None if no known platform is detected.

    Cost: three lookups of paths.

    Args:
        environ: The environment.
        root: The root of the file system.
    """
    if version := environ.get("DATABRICKS_RUNTIME_VERSION"):
        serverless = version.startswith("client.") or environ.get("IS_SERVERLESS", "").lower() in _TRUE
        return _databricks(f"DATABRICKS_RUNTIME_VERSION={version}", serverless=serverless)
    for name, variables, patterns in _WITH_OLDER_SPARK:
        marks = [f"{variable}={environ[variable]}" for variable in variables if variable in environ]
        marks += [f"/{path.relative_to(root)}" for pattern in patterns for path in root.glob(pattern)]
        if marks:
            return Platform(name, marks[0], _NEEDS_NEWER)
    return None


def _databricks(told_by: str, *, serverless: bool) -> Platform:
    if serverless:
        refused = (
            "queries run behind Spark Connect: no `holdfast run`, hf.guard, hf.watch or keyed state;"
            " state of Databricks' own RocksDB provider cannot be read or saved"
        )
        return Platform("Databricks serverless", told_by, refused, starts_spark=False)
    refused = (
        "the session belongs to Databricks: no `holdfast run`; state of Databricks' own RocksDB provider"
        " cannot be read or saved; hf.guard and hf.watch need dedicated access mode"
    )
    return Platform("Databricks", told_by, refused)


# The port of the JVM, set by `spark-submit` for the program that it starts.
GATEWAY_VARIABLE: Final = "PYSPARK_GATEWAY_PORT"


def spark_home(environ: Mapping[str, str]) -> Path | None:
    """Return the directory of the Spark that would run: SPARK_HOME, or that of the pyspark package."""
    named = environ.get("SPARK_HOME")
    if named:
        return Path(named)
    spec = importlib.util.find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def jars_of_spark(environ: Mapping[str, str], pattern: str) -> list[Path]:
    """Return Spark's jars with matching names, sorted; empty without Spark."""
    home = spark_home(environ)
    return [] if home is None else sorted((home / "jars").glob(pattern))


def given_settings(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the settings from `spark-defaults.conf` and PYSPARK_SUBMIT_ARGS, each with its origin.

    A value set through the builder would silently override both, so Holdfast sets its defaults only for keys
    that are not in the result.
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
    """Yield the keys and values of a Java properties file: `key value`, `key=value` or `key: value`."""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            parts = re.split(r"\s*[=:]\s*|\s+", stripped, maxsplit=1)
            yield parts[0], parts[1] if len(parts) > 1 else ""


# Spark defines all its SQL settings in one class, whose bytes contain their names.
_JAR: Final = "spark-catalyst_*.jar"
_CLASS: Final = "org/apache/spark/sql/internal/SQLConf$.class"


@dataclass(frozen=True, slots=True)
class InstalledSpark:
    """The Spark installation that this process would use.

    Attributes:
        version: The version of Spark; None if pyspark is not installed.
        definitions: The bytes of the class that defines Spark's SQL settings; empty if not found.
    """

    version: str | None
    definitions: bytes = b""

    @classmethod
    def here(cls, environ: Mapping[str, str]) -> InstalledSpark:
        """Return the installed Spark. Cost: reads one class of one jar."""
        definitions = b""
        jars = jars_of_spark(environ, _JAR)
        with suppress(OSError, KeyError, IndexError, zipfile.BadZipFile), zipfile.ZipFile(jars[0]) as jar:
            definitions = jar.read(_CLASS)
        return cls(installed("pyspark"), definitions)

    def unknown(self, settings: Iterable[str]) -> tuple[str, ...]:
        """Return the Spark SQL settings that the installed Spark does not define, sorted."""
        if not self.definitions:
            return ()
        own = (name for name in settings if name.startswith("spark.sql."))
        return tuple(sorted(name for name in own if name.encode() not in self.definitions))
