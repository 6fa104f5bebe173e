"""What a checkpoint on S3 needs, found by names of jars and settings alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config.spark_defaults import ABORTABLE_MANAGER, FILE_MANAGER_KEY
from holdfast.engine.session.doctor import store_checks
from holdfast.engine.session.jars import CLIENT, CLOUD, jar_there

PACKAGES = "spark.jars.packages"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A Spark of its own, whose Hadoop is 3.4.1."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "jars" / "hadoop-client-api-3.4.1.jar").touch()
    return {"SPARK_HOME": str(tmp_path)}


def test_a_jar_comes_from_spark_or_from_a_setting(environ: dict[str, str], tmp_path: Path) -> None:
    assert jar_there(CLIENT, {}, environ) is None
    named = "a:b:1,org.apache.hadoop:hadoop-aws:3.4.1"
    found = jar_there(CLIENT, {PACKAGES: named}, environ)
    assert found == f"org.apache.hadoop:hadoop-aws:3.4.1 (from {PACKAGES})"
    assert jar_there(CLOUD, {"spark.jars": "/j/spark-hadoop-cloud_2.13-4.1.1.jar"}, environ) is not None
    # A folder of that name is no such jar.
    assert jar_there(CLOUD, {"spark.jars": "/spark-hadoop-cloud/other.jar"}, environ) is None
    (tmp_path / "conf" / "spark-defaults.conf").write_text(f"{PACKAGES} x:hadoop-aws:1\n")
    assert jar_there(CLIENT, {}, environ) == f"x:hadoop-aws:1 (from {PACKAGES})"
    (tmp_path / "conf" / "spark-defaults.conf").unlink()
    (tmp_path / "jars" / "hadoop-aws-3.4.1.jar").touch()
    assert jar_there(CLIENT, {}, environ) == str(tmp_path / "jars" / "hadoop-aws-3.4.1.jar")


def test_what_is_missing_for_s3_is_said(environ: dict[str, str]) -> None:
    checks = {check.name: check for check in store_checks("s3a://bucket/ck", {}, environ)}
    client, manager = checks["jar hadoop-aws for Spark"], checks["file manager for S3"]
    assert (client.ok, client.needed) == (False, True)
    assert client.hint == "add org.apache.hadoop:hadoop-aws:3.4.1 to spark.jars.packages"
    assert (manager.ok, manager.needed) == (False, False)
    assert "a rename on S3 is a copy and a delete" in manager.found
    assert "spark-hadoop-cloud_2.13" in (manager.hint or "")


def test_with_both_jars_only_another_manager_is_told(environ: dict[str, str]) -> None:
    conf = {PACKAGES: "o:hadoop-aws:3,o:spark-hadoop-cloud_2.13:4"}
    for settings in (conf, {**conf, FILE_MANAGER_KEY: ABORTABLE_MANAGER}):
        checks = store_checks("s3a://bucket/ck", settings, environ)
        assert [check.name for check in checks if not check.ok and "s3fs" not in check.name] == []
    other = store_checks("s3a://bucket/ck", {**conf, FILE_MANAGER_KEY: "my.Manager"}, environ)
    assert "set by you: my.Manager" in [check.found for check in other if not check.ok]


def test_other_places_need_nothing_of_it(environ: dict[str, str]) -> None:
    assert store_checks("file:///ck", {}, environ) == ()
    assert store_checks("hdfs://name/ck", {}, environ) == ()
