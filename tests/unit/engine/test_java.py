from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.engine.session import java
from holdfast.errors import Invalid, NotFound, Unsupported


def make_java(home: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    """A Java home as far as files tell; its `java` prints the arguments it gets."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text('#!/bin/sh\nfor a in "$@"; do echo "$a"; done\n')
    program.chmod(0o755)
    (home / "lib").mkdir()
    (home / "conf").mkdir()
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture(autouse=True)
def an_environment_without_wrappers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrappers are made in the Python environment where that can be written; here in none that exists."""
    monkeypatch.setattr(java, "java_places", lambda state_home: (state_home.resolve() / "java",))


@pytest.fixture
def no_bundled_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled_java", lambda: None)


def test_java_home_comes_first(tmp_path: Path) -> None:
    named = make_java(tmp_path / "named", "21.0.1")
    other = make_java(tmp_path / "other", "17.0.1")
    found = java.find_java({"JAVA_HOME": str(named), "PATH": str(other / "bin")})
    assert (found.home, found.major, found.source) == (named, 21, "JAVA_HOME")


def test_then_the_path_through_links(tmp_path: Path) -> None:
    real = make_java(tmp_path / "real", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")
    found = java.find_java({"PATH": str(tmp_path / "bin")})
    assert (found.home, found.version, found.source) == (real, "17.0.15", "PATH")


def test_then_the_extra(tmp_path: Path) -> None:
    found = java.find_java({"PATH": str(tmp_path)})
    assert found.source == "holdfast[java]"
    assert found.lacks_vector_module


def test_a_java_home_without_java_is_an_error_not_a_reason_to_look_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        java.find_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    assert str(tmp_path) in str(caught.value)


@pytest.mark.usefixtures("no_bundled_java")
def test_no_java_names_both_ways_out(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        java.find_java({"PATH": str(tmp_path)})
    assert "JAVA_HOME" in str(caught.value)
    assert "pip install 'holdfast[java]'" in str(caught.value)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
@pytest.mark.usefixtures("no_bundled_java")
def test_an_old_java_is_named_with_its_place(tmp_path: Path, version: str) -> None:
    old = make_java(tmp_path / "old", version)
    for environ in ({"JAVA_HOME": str(old)}, {"PATH": str(old / "bin")}):
        with pytest.raises(Unsupported) as caught:
            java.find_java(environ)
        assert str(old) in str(caught.value)
        assert version in str(caught.value)


def test_an_old_java_on_the_path_gives_way_to_the_extra(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    assert java.find_java({"PATH": str(old / "bin")}).source == "holdfast[java]"


def test_a_whole_runtime_is_used_as_it_is(tmp_path: Path) -> None:
    home = make_java(tmp_path / "whole", "17.0.1")
    found = java.find_java({"JAVA_HOME": str(home)})
    assert java.java_home_for_spark(found, tmp_path / "state") == home
    assert not (tmp_path / "state").exists()


def test_a_trimmed_runtime_gets_a_stand_in_that_drops_one_argument(tmp_path: Path) -> None:
    home = make_java(tmp_path / "trimmed", "17.0.1", modules="java.base")
    found = java.find_java({"JAVA_HOME": str(home)})
    stand_in = java.java_home_for_spark(found, tmp_path / "state")
    program = str(stand_in / "bin" / "java")
    said = subprocess.check_output(
        [program, "--add-modules=jdk.incubator.vector", "-Dx=a b", "Main"], text=True
    )
    assert said.splitlines() == ["-Dx=a b", "Main"]
    assert (stand_in / "release").read_text() == (home / "release").read_text()
    assert java.java_home_for_spark(found, tmp_path / "state") == stand_in
    assert [each.name for each in (tmp_path / "state" / "java").iterdir()] == [stand_in.name]


def test_a_whole_runtime_is_wrapped_so_that_workers_import_the_installed_pyspark(tmp_path: Path) -> None:
    home = make_java(tmp_path / "whole", "17.0.1")
    (home / "bin" / "java").write_text('#!/bin/sh\necho "$SPARK_HOME|$SPARK_CONF_DIR|$*"\n')
    found = java.find_java({"JAVA_HOME": str(home)})
    pyspark = tmp_path / "pyspark"
    wrapper = java.java_home_for_spark(found, tmp_path / "state", pyspark)

    def said(*arguments: str, spark_home: Path = pyspark, **environ: str) -> str:
        environment = {"PATH": os.environ["PATH"], "SPARK_HOME": str(spark_home), **environ}
        return subprocess.check_output(
            [str(wrapper / "bin" / "java"), *arguments], text=True, env=environment
        ).strip()

    vector = "--add-modules=jdk.incubator.vector"
    shell = "pyspark-shell"
    assert said(vector, "Main", "a b", shell) == f"|{pyspark}/conf|{vector} Main a b {shell}"
    assert said(shell, SPARK_CONF_DIR="/etc/spark") == f"|/etc/spark|{shell}"
    assert said("Worker") == f"{pyspark}||Worker"
    builder = "org.apache.spark.launcher.Main"
    assert said(builder, shell) == f"{pyspark}||{builder} {shell}"
    assert said(shell, spark_home=tmp_path / "other") == f"{tmp_path / 'other'}||{shell}"
    # A wrapper is recognised: it is not wrapped again, and its runtime is the real one.
    again = java.find_java({"JAVA_HOME": str(wrapper)})
    assert again.real == home.resolve()
    assert java.java_home_for_spark(again, tmp_path / "state", pyspark) == wrapper
    # The JVM of a master that starts executors keeps SPARK_HOME, also in a child of a session on one machine.
    assert java.java_home_for_spark(again, tmp_path / "state") == found.real


def test_java_25_is_wrapped_without_its_vector_module(tmp_path: Path) -> None:
    home = make_java(tmp_path / "new", "25.0.3")
    found = java.find_java({"JAVA_HOME": str(home)})
    program = str(java.java_home_for_spark(found, tmp_path / "state") / "bin" / "java")
    assert (
        subprocess.check_output([program, "--add-modules=jdk.incubator.vector", "Main"], text=True)
        == "Main\n"
    )


def test_a_whole_runtime_does_without_a_wrapper_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    whole = java.find_java({"JAVA_HOME": str(make_java(tmp_path / "whole", "17.0.1"))})
    assert java.java_home_for_spark(whole, tmp_path / "file", tmp_path / "pyspark") == whole.home
    small = make_java(tmp_path / "trimmed", "17.0.1", modules="java.base")
    trimmed = java.find_java({"JAVA_HOME": str(small)})
    with pytest.raises(OSError, match="file"):
        java.java_home_for_spark(trimmed, tmp_path / "file")
