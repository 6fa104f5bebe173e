from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.config.spark_defaults import DAEMON_KEY, DEFAULTS
from holdfast.engine.session.jars import has_build
from holdfast.engine.session.session import configure
from holdfast.errors import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the machine that runs the tests."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)


def options(builder: SparkSession.Builder) -> dict[str, str]:
    return dict(builder._options)


def fresh() -> SparkSession.Builder:
    from pyspark.sql import SparkSession

    return SparkSession.builder.master("local[2]")


def test_the_session_has_every_default(spark: SparkSession) -> None:
    for default in DEFAULTS:
        assert spark.conf.get(default.key) == default.value


def test_what_the_user_set_on_his_builder_stays(tmp_path: Path) -> None:
    key = "spark.sql.streaming.stateStore.rowChecksum.enabled"
    builder = configure(fresh().config(key, "false"), home=tmp_path)
    assert options(builder)[key] == "false"
    assert options(builder)["spark.sql.streaming.stateStore.checkpointFormatVersion"] == "2"


def test_what_the_user_set_in_his_files_is_not_set_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.session.timeZone Europe/Rome\n")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.sql.shuffle.partitions=7 pyspark-shell")
    found = options(configure(fresh(), home=tmp_path))
    assert "spark.sql.session.timeZone" not in found
    assert "spark.sql.shuffle.partitions" not in found


@pytest.mark.skipif(not has_build("delta"), reason="no Delta build works with this Spark")
def test_jars_are_added_behind_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delta = "io.delta:delta-spark_4.2_2.13:4.4.0"
    own = configure(fresh().config("spark.jars.packages", "a:b:1"), extras=["delta"], home=tmp_path)
    assert options(own)["spark.jars.packages"] == f"a:b:1,{delta}"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages c:d:2 pyspark-shell")
    given = configure(fresh(), extras=["delta"], home=tmp_path)
    assert options(given)["spark.jars.packages"] == f"c:d:2,{delta}"


def test_a_cluster_keeps_sparks_partitions_and_gets_our_daemon_with_its_code(tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    builder = configure(SparkSession.builder.master("spark://somewhere:7077"), home=tmp_path)
    assert "spark.sql.shuffle.partitions" not in options(builder)
    assert options(builder)[DAEMON_KEY] == "holdfast.worker.daemon"
    assert str(tmp_path) in options(builder)["spark.files"]


def test_workers_of_another_python_are_forked_from_sparks_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A session notes its workers' Python in the environment, which the tests after this one would inherit.
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert options(configure(fresh(), home=tmp_path))[DAEMON_KEY] == "holdfast.worker.daemon"
    other = fresh().config("spark.pyspark.python", "/elsewhere/python")
    assert DAEMON_KEY not in options(configure(other, home=tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", "/elsewhere/python")
    assert DAEMON_KEY not in options(configure(fresh(), home=tmp_path))


def test_spark_connect_is_refused(tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    with pytest.raises(Unsupported, match="Spark Connect"):
        configure(SparkSession.builder.config("spark.remote", "sc://somewhere"), home=tmp_path)
