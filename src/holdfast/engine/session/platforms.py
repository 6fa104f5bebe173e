"""Which platform this process runs on, and what of Holdfast is not possible there.

Platforms are told by what they put into the environment, or on the disks, of their machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

GUIDE: Final = "docs/guides/platforms.md"
_TRUE: Final = ("1", "true")
# A name, with variables of the environment and patterns of paths: one of them is enough.
_WITH_OLDER_SPARK: Final = (
    ("AWS Glue", ("GLUE_VERSION", "GLUE_PYTHON_VERSION"), ()),
    # Amazon's builds of Spark have `amzn` in their versions, with a cluster and without one.
    ("Amazon EMR", (), ("mnt/var/lib/info/job-flow.json", "usr/lib/spark/jars/spark-core_*amzn*.jar")),
    ("Dataproc", ("DATAPROC_IMAGE_VERSION", "DATAPROC_VERSION"), ("etc/google-dataproc",)),
)
_NEEDS_NEWER: Final = (
    "jobs, hf.guard and keyed state need Spark 4.2 or 4.3, which its releases may not have; verbs over"
    " files read what its Spark 3.4 to 4.3 wrote"
)


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform that brings its own Spark.

    Attributes:
        name: What people call it.
        told_by: By what it was recognised.
        refused: What is not possible there.
        starts_spark: Whether a process of its user's can start Spark there.
    """

    name: str
    told_by: str
    refused: str
    starts_spark: bool = True


def platform_here(environ: Mapping[str, str], root: Path = Path("/")) -> Platform | None:
    """The platform of this process; None on a machine of one's own.

    Cost: a look for three paths.

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
        "the session is Databricks' own: no `holdfast run`; state of Databricks' own RocksDB provider"
        " cannot be read or saved; hf.guard and hf.watch need dedicated access mode"
    )
    return Platform("Databricks", told_by, refused)
