"""A savepoint verified on executors gives the proof that this process gives, of whole and of damaged ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from grid import WHOLE
from pyspark.sql import SparkSession

import holdfast as hf
from golden import golden_on_disk
from holdfast.engine.executors import Executors
from holdfast.errors import NotFound, Unavailable
from holdfast.savepoints.spread import SharedSavepoint, open_shared

NAMES = ("4.2/aggregate-changelog", "4.2/join-format2", "4.2/keyed-format2", "4.2/session-rocksdb")


def saved(name: str, folder: Path) -> str:
    """A savepoint of a golden checkpoint."""
    golden_on_disk(name, folder / "checkpoint")
    return hf.savepoints.take(folder / "checkpoint", folder / "catalog").uri


@pytest.mark.parametrize("name", NAMES if WHOLE else NAMES[:1])
def test_the_proof_is_the_same(spark: SparkSession, tmp_path: Path, name: str) -> None:
    savepoint = saved(name, tmp_path)
    alone = hf.savepoints.verify(savepoint, deep=True)
    assert alone.ok
    assert alone.content == "compared"
    assert hf.savepoints.verify(savepoint, deep=True, master="local[2]") == alone


def test_a_damaged_one_has_the_same_problems(spark: SparkSession, tmp_path: Path) -> None:
    savepoint = saved(NAMES[0], tmp_path)
    objects = sorted(path for path in (tmp_path / "catalog" / "objects").rglob("*") if path.is_file())
    damages: tuple[Callable[[Path], None], ...] = (Path.unlink, _cut, _flip)
    for number, damage in enumerate(damages):
        damage(objects[number])
    alone = hf.savepoints.verify(savepoint, deep=True)
    assert len(alone.problems) == 3
    assert hf.savepoints.verify(savepoint, deep=True, master="local[2]") == alone


def test_an_executor_that_sees_another_catalog_is_no_damage(tmp_path: Path) -> None:
    saved(NAMES[0], tmp_path)
    [listed] = hf.savepoints.list(tmp_path / "catalog")
    savepoint_id = listed.uri.rpartition("/")[2]
    for catalog in (tmp_path / "catalog", tmp_path / "elsewhere"):
        with pytest.raises(Unavailable, match="does not see the catalog"):
            open_shared(SharedSavepoint(f"file://{catalog}", savepoint_id, "0" * 64))


def test_the_first_error_in_the_order_of_the_items_is_raised(spark: SparkSession) -> None:
    # Functions in a function are pickled with their code, because executors cannot import this module.
    def fails_from_seven(item: int) -> int:
        if item >= 7:
            raise NotFound(f"item {item}")
        return item

    def divides(item: int) -> float:
        return 1 / item

    with Executors("test", None) as executors:
        assert executors.run(str, range(40), None, "") == [str(number) for number in range(40)]
        with pytest.raises(NotFound, match="item 7"):
            executors.run(fails_from_seven, range(40), None, "")
        with pytest.raises(Unavailable, match="job on the executors") as caught:
            executors.run(divides, range(3), None, "")
    assert "ZeroDivisionError" in (caught.value.found or "")
    assert SparkSession.getActiveSession() is not None  # a session of the user stays


@pytest.mark.skipif(not WHOLE, reason="starts a cluster of two executors; HOLDFAST_GRID=all runs it")
@pytest.mark.parametrize("damage", [None, "flip"])
def test_two_executors_print_what_one_process_prints(tmp_path: Path, damage: str | None) -> None:
    savepoint = saved(NAMES[0], tmp_path)
    if damage is not None:
        files = [path for path in (tmp_path / "catalog" / "objects").rglob("*") if path.is_file()]
        _flip(max(files, key=lambda path: path.stat().st_size))

    def verify(*words: str) -> tuple[int, dict[str, object]]:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "savepoint", "verify", savepoint, "--deep", "--json", *words],
            cwd=tmp_path,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            check=False,
            capture_output=True,
            text=True,
            timeout=500,
        )
        return done.returncode, json.loads(done.stdout)

    alone = verify()
    assert alone[0] == (0 if damage is None else 6)
    assert verify("--master", "local-cluster[2,1,1024]") == alone


def _cut(path: Path) -> None:
    path.chmod(0o644)
    data = path.read_bytes()
    path.unlink()  # the file may be linked
    path.write_bytes(data[:-1])


def _flip(path: Path) -> None:
    path.chmod(0o644)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
