"""Platforms are told by what they put into the environment, or on the disks, of their machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command import Holdfast

from holdfast.config.installed_spark import platform_here
from holdfast.config.settings import Settings, unwritable
from holdfast.engine.session.doctor import Check, examine
from holdfast.errors import Invalid


@pytest.mark.parametrize(
    ("environ", "path", "name"),
    [
        ({"DATABRICKS_RUNTIME_VERSION": "17.3"}, None, "Databricks"),
        ({"DATABRICKS_RUNTIME_VERSION": "client.3.1"}, None, "Databricks serverless"),
        ({"DATABRICKS_RUNTIME_VERSION": "19", "IS_SERVERLESS": "TRUE"}, None, "Databricks serverless"),
        ({"GLUE_VERSION": "5.1"}, None, "AWS Glue"),
        ({"GLUE_PYTHON_VERSION": "3"}, None, "AWS Glue"),
        ({}, "mnt/var/lib/info/job-flow.json", "Amazon EMR"),
        ({}, "usr/lib/spark/jars/spark-core_2.12-3.5.6-amzn-2.jar", "Amazon EMR"),
        ({"DATAPROC_IMAGE_VERSION": "2.3"}, None, "Dataproc"),
        ({}, "etc/google-dataproc/dataproc.properties", "Dataproc"),
        ({}, "usr/lib/spark/jars/spark-core_2.13-4.2.0.jar", None),
        ({"DATABRICKS_RUNTIME_VERSION": ""}, None, None),
        ({}, None, None),
    ],
)
def test_a_platform_is_told(
    environ: dict[str, str], path: str | None, name: str | None, tmp_path: Path
) -> None:
    if path is not None:
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    found = platform_here(environ, tmp_path)
    assert (found and found.name) == name
    if found is not None and path is not None:
        assert path.startswith(found.told_by.lstrip("/"))


def line(name: str, environ: dict[str, str], home: Path) -> Check | None:
    return next((check for check in examine(Settings(home=home), environ).checks if check.name == name), None)


def test_doctor_names_a_platform_and_what_is_refused(tmp_path: Path) -> None:
    assert line("platform", {}, tmp_path) is None
    classic = line("platform", {"DATABRICKS_RUNTIME_VERSION": "17.3"}, tmp_path)
    assert classic is not None
    assert classic.ok
    assert not classic.needed
    assert "docs/guides/platforms.md" in str(classic.hint)
    serverless = line("platform", {"DATABRICKS_RUNTIME_VERSION": "client.3.1"}, tmp_path)
    assert serverless is not None
    assert not serverless.ok
    assert serverless.needed


def test_doctor_fails_on_a_platform_without_a_session_of_ones_own(holdfast: Holdfast) -> None:
    said = holdfast("doctor", environ={"DATABRICKS_RUNTIME_VERSION": "client.3.1"})
    assert said.returncode == 1
    assert "MISSING  platform: Databricks serverless" in said.stdout


def test_one_scratch_directory_that_can_be_written_is_enough(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    good = line("scratch directory", {"SPARK_LOCAL_DIRS": f"{tmp_path}/file/a,{tmp_path}/new"}, tmp_path)
    assert good is not None
    assert good.ok
    bad = line("scratch directory", {"SPARK_LOCAL_DIRS": f"{tmp_path}/file/a"}, tmp_path)
    assert bad is not None
    assert not bad.ok
    assert "is not a directory" in bad.found
    assert "SPARK_LOCAL_DIRS" in bad.found


def test_a_file_system_that_is_mounted_read_only_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unwritable(tmp_path / "new" / "one") is None
    whole = os.statvfs(tmp_path)

    class ReadOnly:
        f_flag = whole.f_flag | os.ST_RDONLY

    monkeypatch.setattr(os, "statvfs", lambda _: ReadOnly)
    assert unwritable(tmp_path / "new") == f"{tmp_path} is on a read-only file system"


def test_a_tilde_without_a_home_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    with pytest.raises(Invalid, match="cannot expand ~ in the setting home") as caught:
        Settings.resolve({"home": "~nobody-of-this-name/x"}, {}, Path("/"))
    assert "set HOME" in str(caught.value.hint)
