"""Archives of code: the same bytes for the same files, everything in them that tasks import, nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import holdfast
from holdfast.engine.cluster import code_archives, needs_code, package_archive, worker_path
from holdfast.errors import Invalid, NotFound


def folder_with(place: Path, **files: str) -> Path:
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / f"{name}.py").write_text(text)
    return place


@pytest.mark.slow
def test_the_archive_of_the_package_is_imported_by_a_python_that_has_not_got_it(tmp_path: Path) -> None:
    archive = package_archive(tmp_path / "home")
    source = "import holdfast, holdfast.worker.counts; print(holdfast.__file__, holdfast.__version__)"
    program = [sys.executable, "-S", "-c", source]
    packages = [path for path in sys.path if path.endswith("-packages")]
    found = subprocess.run(
        program,
        env={"PYTHONPATH": os.pathsep.join([str(archive), *packages])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == [f"{archive}/holdfast/__init__.py", holdfast.__version__]


def test_an_archive_is_the_same_bytes_wherever_and_whenever_it_is_made(tmp_path: Path) -> None:
    made = []
    for number in range(2):
        place = folder_with(tmp_path / str(number) / "helpers", a="A = 1", b="B = 2")
        os.utime(place / "a.py", (number, number))
        (place / "__pycache__").mkdir()
        (place / "__pycache__" / "a.pyc").write_bytes(bytes([number]))
        made += code_archives(["helpers"], place.parent, tmp_path / f"home{number}")
    assert made[0].name == made[1].name
    assert made[0].read_bytes() == made[1].read_bytes()
    entries = zipfile.ZipFile(made[0]).infolist()
    assert [(entry.filename, entry.date_time[0]) for entry in entries] == [("a.py", 1980), ("b.py", 1980)]


def test_other_code_has_another_name_and_the_same_code_is_not_written_again(tmp_path: Path) -> None:
    place = folder_with(tmp_path / "helpers", a="A = 1")
    (first,) = code_archives([place], tmp_path, tmp_path / "home")
    written = first.stat().st_mtime_ns
    assert code_archives([place], tmp_path, tmp_path / "home") == [first]
    assert first.stat().st_mtime_ns == written
    (place / "a.py").write_text("A = 2")
    assert code_archives([place], tmp_path, tmp_path / "home") != [first]


def test_an_archive_that_is_cut_off_is_made_again(tmp_path: Path) -> None:
    place = folder_with(tmp_path / "helpers", a="A = 1")
    (first,) = code_archives([place], tmp_path, tmp_path / "home")
    whole = first.read_bytes()
    first.write_bytes(whole[: len(whole) // 2])
    assert code_archives([place], tmp_path, tmp_path / "home")[0].read_bytes() == whole


def test_a_package_keeps_its_name_and_modules_go_as_they_are(tmp_path: Path) -> None:
    place = folder_with(tmp_path / "shop", __init__="", prices="TEA = 2.6")
    (tmp_path / "alone.py").write_text("")
    package, module = code_archives(["shop", "alone.py"], tmp_path, tmp_path / "home")
    assert zipfile.ZipFile(package).namelist() == ["shop/__init__.py", "shop/prices.py"]
    assert module == tmp_path / "alone.py"
    assert place.is_dir()


def test_what_is_no_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wheel.whl").touch()
    folder_with(tmp_path / "one", a="")
    folder_with(tmp_path / "two", a="")
    with pytest.raises(NotFound, match="a path in py_files does not exist"):
        code_archives(["absent.py"], tmp_path, tmp_path / "home")
    with pytest.raises(Invalid, match="does not support this file type"):
        code_archives(["wheel.whl"], tmp_path, tmp_path / "home")
    with pytest.raises(Invalid, match="the same name"):
        code_archives(["one/a.py", "two/a.py"], tmp_path, tmp_path / "home")


def test_only_other_processes_need_code() -> None:
    assert [needs_code(master) for master in ("local[2]", "local-cluster[1,1,512]", "spark://a:1")] == [
        False,
        True,
        True,
    ]
    assert worker_path(None, Path("/x/a.zip")) == "a.zip"
    assert worker_path("/opt/lib", Path("/x/a.zip")) == "a.zip:/opt/lib"
