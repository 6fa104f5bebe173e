from __future__ import annotations

from pathlib import Path

from holdfast.config.installed_spark import given_settings
from holdfast.engine.session.session import submitted_settings


def test_the_three_spellings_of_a_properties_file(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\nspark.a  one two\nspark.b=2\nspark.c: 3\n\nspark.d\n", encoding="utf-8"
    )
    place = str(tmp_path / "spark-defaults.conf")
    assert given_settings({"SPARK_CONF_DIR": str(tmp_path)}) == {
        "spark.a": ("one two", place),
        "spark.b": ("2", place),
        "spark.c": ("3", place),
        "spark.d": ("", place),
    }


def test_submit_arguments_win_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.a 1\nspark.b 2\n", encoding="utf-8")
    arguments = "--master 'local[3]' --conf spark.a=9 --packages g:a:1 pyspark-shell"
    found = given_settings({"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": arguments})
    assert {key: value for key, (value, _) in found.items()} == {
        "spark.a": "9",
        "spark.b": "2",
        "spark.master": "local[3]",
        "spark.jars.packages": "g:a:1",
    }


def test_nothing_set_is_nothing_found(tmp_path: Path) -> None:
    assert given_settings({"SPARK_CONF_DIR": str(tmp_path)}) == {}


def test_what_executors_get_is_found_in_submit_arguments(tmp_path: Path) -> None:
    arguments = (
        "--num-executors 4 --executor-cores 2 --executor-memory 3g --py-files a.py,b.zip pyspark-shell"
    )
    found = given_settings({"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": arguments})
    assert {key: value for key, (value, _) in found.items()} == {
        "spark.executor.instances": "4",
        "spark.executor.cores": "2",
        "spark.executor.memory": "3g",
        "spark.submit.pyFiles": "a.py,b.zip",
    }
    assert submitted_settings({}) == {}
