"""The committed jar is the one that the sources beside it give."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from jar_file import DIGEST, pack, sources_digest

import holdfast as hf
from holdfast.config.spark_defaults import EXTERNAL_LAYOUT
from holdfast.formats.access_times import LIMITS_MS

ROOT = Path(__file__).parents[2]


def test_the_jar_was_built_from_these_sources() -> None:
    with zipfile.ZipFile(hf.state_jar()) as jar:
        assert jar.read(DIGEST).decode() == sources_digest(), "run `make jar` and commit the jar"


def test_the_jar_holds_nothing_but_our_own_classes() -> None:
    with zipfile.ZipFile(hf.state_jar()) as jar:
        names = jar.namelist()
    assert [
        name for name in names if not name.startswith(("holdfast/state/", "holdfast/files/", "META-INF/"))
    ] == []
    assert "holdfast/state/RedisStateStoreProvider.class" in names


def test_jar_and_package_name_the_same_layout() -> None:
    source = (ROOT / "jvm/src/holdfast/state/ExternalStateStoreProvider.scala").read_text()
    [number] = re.findall(r'object Layout \{\s*val Version = "(\d+)"', source)
    assert number == EXTERNAL_LAYOUT


def test_jar_and_package_have_the_same_buckets_of_request_times() -> None:
    source = (ROOT / "jvm/src/holdfast/state/RequestTimes.scala").read_text()
    [limits] = re.findall(r"val LimitsMillis: Seq\[Int\] = Seq\((.*)\)", source)
    assert tuple(map(int, limits.split(", "))) == LIMITS_MS


def test_the_same_classes_give_the_same_bytes(tmp_path: Path) -> None:
    classes = tmp_path / "classes" / "holdfast"
    classes.mkdir(parents=True)
    for name in ("B.class", "A.class"):
        (classes / name).write_bytes(name.encode() * 100)
    pack(tmp_path / "classes", tmp_path / "one.jar")
    (classes / "A.class").touch()
    pack(tmp_path / "classes", tmp_path / "two.jar")
    assert (tmp_path / "one.jar").read_bytes() == (tmp_path / "two.jar").read_bytes()
