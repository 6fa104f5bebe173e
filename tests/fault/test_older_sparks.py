"""A program's own session of Spark 3.5, 4.0 and 4.1: what Holdfast does there, and what it refuses by name.

`test_guarded_query.py` has the kills, signals and damage, for each of these versions too.
"""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.request
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from other_sparks import OLDER, python_of
from running_job import JOBS, until
from test_guarded_query import FILES, Platform

from holdfast import savepoints

pytestmark = [pytest.mark.fault, pytest.mark.spark]

# The first Spark that compares schemas of state when it plans a batch.
PLANS = ("4.0", "4.1")


def said_by(platform: Platform, *arguments: str) -> Any:
    """The answer of a command in the older Spark's environment, as JSON."""
    done = subprocess.run(
        [str(platform.python), "-m", "holdfast", *arguments, "--json"],
        env=platform.environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def saved_batches(catalog: Path) -> list[int]:
    listed = savepoints.list(catalog) if catalog.exists() else ()
    return [taken.manifest.batch_id for taken in listed if taken.manifest is not None]


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("version", OLDER)
def test_metrics_savepoints_and_a_stop_from_outside(version: str, tmp_path: Path) -> None:
    platform = Platform(tmp_path, python=python_of(version))
    catalog, port = tmp_path / "sp", free_port()
    with platform.stack:
        platform.open_gate()
        guarded = platform.start(savepoints=str(catalog), savepoint_every="1s", port=port)
        platform.bring(2)
        platform.committed(1)
        until(lambda: 1 in saved_batches(catalog), "a savepoint", 300)
        refused = platform.start(wait="0s")
        assert refused.wait(300) == 4, platform.said()
        assert guarded.poll() is None

        def counted() -> bool:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                lines = answer.read().decode().splitlines()
            batches = [line for line in lines if line.startswith("holdfast_batches_total{")]
            return [float(line.rpartition(" ")[2]) for line in batches] == [2.0]

        until(counted, "both batches are counted", 300)
        [row] = said_by(platform, "list")["jobs"]
        assert (row["name"], row["kind"]) == ("words", "guarded")
        status = said_by(platform, "status", "words")
        assert str(platform.checkpoint) in json.dumps(status)
        platform.bring()
        platform.committed(2)
        said_by(platform, "stop", "words")
        assert guarded.wait(300) == 0, platform.said()
        platform.check()
        newest = savepoints.list(catalog)[0]
        assert savepoints.verify(newest.uri, deep=True).ok


@pytest.mark.parametrize("version", OLDER)
def test_what_a_version_lacks_is_refused_by_name(version: str, tmp_path: Path) -> None:
    platform = Platform(tmp_path, python=python_of(version))
    platform.bring(3)
    done = subprocess.run(
        [str(platform.python), str(JOBS / "checked_on_older_spark.py"), json.dumps({"place": str(tmp_path)})],
        env=platform.environ,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    spark = answers["spark"]
    assert spark.startswith(version)
    words, sizes = Counter[str](), []
    for number, file in enumerate(FILES[:3]):
        words.update(file.split())
        sizes.append([number, len(file.split()), len(words)])
    assert answers["watched"] == sizes
    assert answers["guarded"] == 0
    assert answers["files"] == ["FileSystemBasedCheckpointFileManager", "LocalFiles"]
    too_old = ["Unsupported", spark, ">=4.2,<4.4", True]
    assert [answers[name] for name in ("session", "configure", "keyed")] == [too_old] * 3
    if version in PLANS:
        assert answers["same code"] == ["kept", None]
        # Spark itself refuses to start this code on this state.
        assert answers["one column more"] == ["fails", "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"]
    else:
        for name in ("same code", "one column more"):
            kind, found, expected, has_hint = answers[name]
            assert (kind, expected, has_hint) == ("Unsupported", "Spark 4.0 or newer", True)
            assert found.startswith(f"Spark {spark}, ")
