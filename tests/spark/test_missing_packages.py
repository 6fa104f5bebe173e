"""Packages that Spark cannot fetch are named, with what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import Holdfast

pytestmark = pytest.mark.spark

JOB = """\
import holdfast as hf

@hf.job(name="shop", checkpoint="checkpoint", restart=hf.no_restart())
def build(spark):
    raise AssertionError("it has begun")
"""
# Looks in a directory that is empty, or at a port of this machine where nobody listens.
NOWHERE = (
    '<filesystem name="only" m2compatible="true"><artifact pattern="{empty}/[module].[ext]"/></filesystem>'
)
DEAF = '<ibiblio name="only" m2compatible="true" root="http://127.0.0.1:1/"/>'
IVY = "<ivysettings><settings defaultResolver='only'/><resolvers>{resolver}</resolvers></ivysettings>"


@pytest.mark.parametrize(
    ("resolver", "code", "hint"),
    [
        (NOWHERE, 3, "check group, artifact and version"),
        (DEAF, 1, "behind a proxy, set JAVA_TOOL_OPTIONS"),
    ],
)
def test_a_job_says_which_packages_it_could_not_get(
    holdfast: Holdfast, tmp_path: Path, resolver: str, code: int, hint: str
) -> None:
    (tmp_path / "job.py").write_text(JOB)
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(IVY.format(resolver=resolver.format(empty=tmp_path / "empty")))
    said = holdfast(
        "run",
        "job.py",
        "--no-rest",
        *("--conf", "spark.jars.packages=no.such:thing:1.0"),
        *("--conf", f"spark.jars.ivySettings={settings}"),
        *("--conf", f"spark.jars.ivy={tmp_path / 'ivy'}"),
    )
    assert said.returncode == code, said.stderr
    assert "Spark could not fetch packages: no.such:thing:1.0" in said.stderr
    assert hint in said.stderr
    assert "spark.jars" in said.stderr
    assert "Traceback" not in said.stderr
    assert "JAVA_GATEWAY_EXITED" not in said.stderr
