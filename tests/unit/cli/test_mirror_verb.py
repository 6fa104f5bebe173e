"""`holdfast mirror`: batches are copied as they come, a failure is told once, and a time is restored."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest
from command import PROGRAM, Holdfast

import holdfast as hf
from golden import files_of_batch, golden_files, golden_on_disk

pytestmark = pytest.mark.slow

NAME = "4.2/aggregate-memory"
FILES = golden_files(NAME)


def test_each_batch_is_copied_while_the_storage_answers(tmp_path: Path, home: Path) -> None:
    checkpoint = golden_on_disk(NAME, tmp_path / "ck")
    for batch in (10, 11):
        for path in files_of_batch(batch):
            (checkpoint / path).unlink()
    words = (
        "mirror",
        "ck",
        "mirrored",
        "--every",
        "20ms",
        "--json",
        "--metrics-port",
        "0",
        "--name",
        "visits",
    )
    process = subprocess.Popen(
        [PROGRAM, *words],
        cwd=tmp_path,
        env={**os.environ, "HOLDFAST_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = map(json.loads, iter(process.stdout.readline, ""))
    try:
        assert next(lines)["batch_id"] == 9
        url = next(line["url"] for line in lines if line.get("event") == "serving")
        for path in files_of_batch(10):
            (checkpoint / path).write_bytes(FILES[path])
        assert next(line for line in lines if line.get("batch_id") == 10)["savepoint"]
        # The mirror's place is gone: what is lost is told once, and copied when it is there again.
        (tmp_path / "mirrored").rename(tmp_path / "away")
        (tmp_path / "mirrored").write_text("no directory")
        for path in files_of_batch(11):
            (checkpoint / path).write_bytes(FILES[path])
        assert next(line for line in lines if line.get("event") == "error")
        with urlopen(url, timeout=30) as page:
            samples = page.read().decode()
        [age] = [row for row in samples.splitlines() if row.startswith("holdfast_mirror_age_seconds{")]
        assert 'query="visits"' in age
        assert float(age.split()[-1]) > 0
        (tmp_path / "mirrored").unlink()
        (tmp_path / "away").rename(tmp_path / "mirrored")
        assert next(line for line in lines if line.get("batch_id") == 11)["savepoint"]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert [
        each.manifest.batch_id for each in hf.savepoints.list(tmp_path / "mirrored") if each.manifest
    ] == [
        9,
        10,
        11,
    ]


def test_a_time_restores_the_newest_batch_copied_by_then(
    tmp_path: Path, home: Path, holdfast: Holdfast
) -> None:
    checkpoint = golden_on_disk(NAME, tmp_path / "ck")
    hidden = {path: (checkpoint / path).read_bytes() for path in files_of_batch(11)}
    for path in hidden:
        (checkpoint / path).unlink()
    assert holdfast("mirror", "ck", "mirrored", "--once").returncode == 0
    for path, data in hidden.items():
        (checkpoint / path).write_bytes(data)
    assert holdfast("mirror", "ck", "mirrored", "--once").returncode == 0
    older, newer = (each.manifest for each in hf.savepoints.list(tmp_path / "mirrored"))
    assert older is not None
    assert newer is not None
    shutil.rmtree(checkpoint)
    stamp = older.savepoint_id  # 20261124T113354.844Z-…
    between = f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:11]}:{stamp[11:13]}:{stamp[13:19]}Z"
    assert holdfast("restore", f"mirrored@{between}", "again").returncode == 0
    assert hf.checkpoints.read(tmp_path / "again").batch_id == 10
    assert holdfast("restore", "mirrored@latest", "newest").returncode == 0
    assert hf.checkpoints.read(tmp_path / "newest").batch_id == 11
    refused = holdfast("restore", "mirrored@2020-01-01T00:00", "never")
    assert refused.returncode == 3
    assert "no savepoint in this catalog was taken by this time" in refused.stderr
