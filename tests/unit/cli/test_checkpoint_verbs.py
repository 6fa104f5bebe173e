from __future__ import annotations

import json
from pathlib import Path

import pytest
from audited import audited
from command import Holdfast

from golden import golden_on_disk

NAME = "4.2/join-format2"


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(golden_on_disk(NAME, tmp_path / "joined"))


def test_show(holdfast: Holdfast, place: str) -> None:
    said = holdfast("checkpoint", "show", place, "--partitions", "--confs")
    assert said.returncode == 0, said.stderr
    assert said.stderr == ""
    for text in (
        "0 join",
        "stream-stream join",
        "right counts",
        "RocksDBStateStoreProvider",
        '{"logOffset":11}',
    ):
        assert text in said.stdout
    assert "spark.sql.shuffle.partitions" in said.stdout
    short = holdfast("checkpoint", "show", place).stdout
    assert "spark.sql.shuffle.partitions" not in short


def test_history(holdfast: Holdfast, place: str) -> None:
    every = json.loads(holdfast("checkpoint", "history", place, "--json").stdout)["batches"]
    last = json.loads(holdfast("checkpoint", "history", place, "--json", "--last", "2").stdout)["batches"]
    assert last == every[-2:]
    lines = holdfast("checkpoint", "history", place).stdout.splitlines()
    assert lines[0].split()[:5] == ["BATCH", "PLANNED", "TOOK", "FAILURES", "FILES"]
    assert len(lines) == len(every) + 1


def test_verify(holdfast: Holdfast, place: str) -> None:
    said = holdfast("checkpoint", "verify", place)
    assert said.returncode == 0, said.stdout
    assert said.stdout.splitlines()[-1].startswith("whole (newest committed batch ")
    Path(place, "metadata").write_text("{}")
    damaged = holdfast("checkpoint", "verify", place, "--json")
    assert damaged.returncode == 6
    found = json.loads(damaged.stdout)
    assert set(found) == {
        "ok",
        "checkpoint",
        "batch_id",
        "problems",
        "remarks",
        "restorable",
        "files",
        "size_bytes",
        "recorded_batch",
        "compared",
        "stateful",
    }
    assert [problem["file"] for problem in found["problems"]] == ["metadata"]
    text = holdfast("checkpoint", "verify", place)
    assert text.returncode == 6
    assert text.stdout.startswith("metadata\n  ")
    assert "\n  hint: " in text.stdout


@pytest.mark.parametrize("verb", ["show", "history", "verify"])
def test_where_there_is_no_checkpoint(holdfast: Holdfast, tmp_path: Path, verb: str) -> None:
    said = holdfast("checkpoint", verb, str(tmp_path / "nothing"))
    assert said.returncode == 3
    assert "error: no checkpoint in this directory" in said.stderr


def test_an_address_that_is_none(holdfast: Holdfast) -> None:
    assert holdfast("checkpoint", "show", "ftp://host/path").returncode == 2


def test_a_damaged_file_that_show_needs(holdfast: Holdfast, place: str) -> None:
    Path(place, "metadata").write_text("{}")
    said = holdfast("checkpoint", "show", place, "--json")
    assert said.returncode == 6
    assert json.loads(said.stdout)["kind"] == "corrupt"
    assert "holdfast checkpoint verify" in said.stderr


@pytest.mark.slow
def test_reading_starts_no_process_and_loads_nothing_heavy(place: str, tmp_path: Path) -> None:
    commands = [("checkpoint", verb, place) for verb in ("show", "history", "verify")]
    found = audited(commands, tmp_path)
    assert [(audit.code, audit.started, audit.heavy) for audit in found] == [(0, (), ())] * 3


def test_the_batches_that_verify_names_are_taken_where_an_entry_of_a_source_is_lost(
    tmp_path: Path, holdfast: Holdfast
) -> None:
    place = golden_on_disk("4.2/aggregate-changelog", tmp_path / "ck")
    for name in ("10", ".10.crc"):
        (place / "sources/0" / name).unlink()
    told = holdfast("checkpoint", "verify", str(place))
    assert told.returncode == 6
    assert "batches that can still be restored: 6 to 9" in told.stdout
    refused = holdfast("savepoint", "take", str(place), str(tmp_path / "saved"), "--batch", "10")
    assert refused.returncode != 0
    assert "find a batch that can be restored" in " ".join(refused.stderr.split())
    taken = holdfast("savepoint", "take", str(place), str(tmp_path / "saved"), "--batch", "9")
    assert taken.returncode == 0
