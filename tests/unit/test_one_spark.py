"""An install brings one version of Spark, whatever extras come with it now or later."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

ROOT = Path(__file__).parents[2]
SPARKS = ("4.2.0", "4.2.1", "4.2.9", "4.3.0", "4.3.1")


def test_each_extra_takes_every_spark_that_the_extra_spark_may_bring() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    [given] = [Requirement(line) for line in extras["spark"] if line.startswith("pyspark")]
    allowed = [version for version in SPARKS if version in given.specifier]
    assert allowed
    seen = []
    for extra, lines in extras.items():
        others = (wanted for wanted in map(Requirement, lines) if wanted.name not in ("holdfast", "pyspark"))
        for wanted in others:
            try:
                needs = metadata.requires(wanted.name) or []
            except metadata.PackageNotFoundError:
                pytest.skip(f"{wanted.name} of the extra {extra} is not installed")
            for other in map(Requirement, needs):
                if other.name == "pyspark":
                    seen.append(extra)
                    assert all(version in other.specifier for version in allowed), extra
    assert seen == ["delta"]
