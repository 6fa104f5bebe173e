"""The archive of Spark's classes: which one belongs to a Java and its jars, and what a JVM is told of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.engine.session import class_archive
from holdfast.engine.session.class_archive import SWITCH, ClassArchive, archive_of, jvm_options
from holdfast.engine.session.java import JavaRuntime, find_java
from holdfast.errors import HoldfastError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state home beside an environment that cannot be written, and some jars."""
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    (jars / "spark-core.jar").write_bytes(b"core")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "nobody"))
    monkeypatch.setattr(class_archive, "can_be_made", lambda place: "nobody" not in str(place))
    return tmp_path / "home"


def java(folder: Path, version: str = "17.0.9", *, has_base: bool = True) -> JavaRuntime:
    server = folder / f"java-{version}" / "lib" / "server"
    server.mkdir(parents=True, exist_ok=True)
    if not (server / "libjvm.so").exists():
        (server / "libjvm.so").write_bytes(version.encode())
    if has_base:
        (server / "classes.jsa").write_bytes(b"")
    return JavaRuntime(folder / f"java-{version}", version, "JAVA_HOME")


def found(runtime: JavaRuntime, home: Path) -> ClassArchive:
    archive = archive_of(runtime, home, os.environ)
    assert archive is not None
    return archive


def made(runtime: JavaRuntime, home: Path) -> ClassArchive:
    archive = found(runtime, home)
    archive.path.parent.mkdir(parents=True, exist_ok=True)
    archive.path.touch()
    return archive


def test_one_that_was_not_made_adds_nothing(home: Path, tmp_path: Path) -> None:
    assert found(java(tmp_path), home).options() == ""
    assert jvm_options(java(tmp_path), home, "", os.environ) == ""


def test_a_jvm_is_told_to_map_it_in_silence(home: Path, tmp_path: Path) -> None:
    archive = made(java(tmp_path), home)
    assert archive.path.parent == home / "java"
    assert jvm_options(java(tmp_path), home, "-Xmx1g", os.environ) == (
        f"-XX:SharedArchiveFile={archive.path} -Xlog:cds*=off"
    )


def test_a_java_without_an_archive_of_its_own_classes_gets_one_below_it(home: Path, tmp_path: Path) -> None:
    archive = made(java(tmp_path, has_base=False), home)
    assert archive.base is not None
    assert archive.options() == f"-XX:SharedArchiveFile={archive.base}:{archive.path} -Xlog:cds*=off"
    fresh = home / "fresh"
    assert archive.training_options(fresh).split()[:2] == [
        f"-XX:SharedArchiveFile={archive.base}",
        f"-XX:ArchiveClassesAtExit={fresh}",
    ]


def test_java_25_has_a_cache_instead(home: Path, tmp_path: Path) -> None:
    archive = made(java(tmp_path, "25.0.3"), home)
    assert archive.base is None
    assert archive.options() == f"-XX:AOTCache={archive.path} -Xlog:aot*=off -Xlog:cds*=off"
    assert archive.training_options(home / "fresh").startswith(f"-XX:AOTCacheOutput={home / 'fresh'} ")


def test_other_jars_and_another_java_need_another_one(home: Path, tmp_path: Path) -> None:
    first = found(java(tmp_path), home).path
    assert found(java(tmp_path, "21.0.1"), home).path != first
    (tmp_path / "spark" / "jars" / "more.jar").write_bytes(b"more")
    assert found(java(tmp_path), home).path != first


@pytest.mark.parametrize("own", ["-XX:SharedArchiveFile=/x", "-Xshare:off", "-XX:AOTMode=off"])
def test_options_of_the_user_keep_it_out(home: Path, tmp_path: Path, own: str) -> None:
    made(java(tmp_path), home)
    assert jvm_options(java(tmp_path), home, own, os.environ) == ""


def test_it_can_be_switched_off(home: Path, tmp_path: Path) -> None:
    made(java(tmp_path), home)
    assert archive_of(java(tmp_path), home, {**os.environ, SWITCH: "off"}) is None


def test_a_place_with_a_space_has_none(home: Path, tmp_path: Path) -> None:
    assert archive_of(java(tmp_path), home / "my home", os.environ) is None


def test_those_that_no_session_has_used_for_a_month_are_deleted(home: Path, tmp_path: Path) -> None:
    old, unused, own = (made(java(tmp_path, version), home) for version in ("17.0.8", "21.0.1", "17.0.9"))
    other = home / "java" / "17.0.8-0123456789ab"
    other.mkdir()
    for archive in (old, unused, own):
        os.utime(archive.path, (0, 0))
    os.utime(other, (0, 0))
    jvm_options(old.java, home, "", os.environ)
    now_s = old.path.stat().st_mtime + 1
    own.remove_unused(now_s)
    assert old.path.exists()
    assert own.path.exists()
    assert other.exists()
    assert not unused.path.exists()


@pytest.mark.parametrize(
    ("version", "added"),
    [
        ("25", True),
        ("25.0.1", True),
        ("25.0.2", True),
        ("25.0.2+10-LTS", True),
        ("25.0.3", False),
        ("25.0.20", False),
        ("25.1.0", False),
        ("17.0.9", False),
    ],
)
def test_a_java_whose_g1_corrupts_data_gets_another_collector(
    home: Path, tmp_path: Path, version: str, added: bool
) -> None:
    assert (jvm_options(java(tmp_path, version), home, "-Xmx1g", os.environ) == "-XX:+UseParallelGC") is added
    assert jvm_options(java(tmp_path, version), home, "-XX:+UseSerialGC", os.environ) == ""


def test_a_jvm_starts_beside_a_damaged_one(home: Path, tmp_path: Path) -> None:
    try:
        runtime = find_java(os.environ)
    except HoldfastError as error:
        pytest.skip(str(error))
    archive = ClassArchive(runtime, tmp_path / "damaged.jsa", None)
    archive.path.write_bytes(b"no archive" * 1000)
    ran = subprocess.run(
        [str(runtime.home / "bin" / "java"), *archive.options().split(), "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == ""
