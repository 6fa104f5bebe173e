"""`holdfast status` says how far a job is behind its topics."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command import Holdfast
from example_place import HOME, make_place

from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome
from holdfast.model import VERSIONS, PartitionPosition, SourceProgress


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make_place(tmp_path)
    return Path(HOME)


def read(folder: Path, *latest: int) -> None:
    """Batches a minute apart, with so many records in partition 0; the first 180 are read, and all of 1."""
    registry = Registry(StateHome(folder / HOME).registry)
    (before,) = registry.batches("visits")
    for number, end in enumerate(latest, start=1):
        positions = (PartitionPosition("orders", 0, 180, end), PartitionPosition("orders", 1, 50, 50))
        source = SourceProgress(0, "KafkaV2[Subscribe[orders]]", 5, positions)
        at_ms = before.committed_ms + 60_000 * number
        batch = replace(before, batch_id=before.batch_id + number, committed_ms=at_ms, sources=(source,))
        registry.add_batch("visits", 1, batch)


def line_of(text: str) -> list[str]:
    lines = text.splitlines()
    (at,) = [number for number, line in enumerate(lines) if "OLDEST WAITS" in line]
    return lines[at + 1].split()


@pytest.mark.usefixtures("home")
def test_it_is_told_by_topic(holdfast: Holdfast, tmp_path: Path) -> None:
    """Record 180 of 100 to 300 came 24 seconds after the first of the two batches."""
    read(tmp_path, 100, 300)
    said = holdfast("status", "visits")
    assert said.returncode == 0, said.stderr
    assert line_of(said.stdout)[:5] == ["visits", "0", "orders", "120", "records"]
    assert line_of(said.stdout)[5:7] == ["36.0", "s"]
    first, second = json.loads(holdfast("status", "visits", "--json").stdout)["lag"]
    assert (first["partition"], first["records"], first["at_least"]) == (0, 120, False)
    assert (second["partition"], second["records"], second["behind_ms"]) == (1, 0, 0)


@pytest.mark.usefixtures("home")
def test_a_record_that_was_always_there_has_waited_at_least_so_long(
    holdfast: Holdfast, tmp_path: Path
) -> None:
    read(tmp_path, 300)
    assert line_of(holdfast("status", "visits").stdout)[5:7] == ["at", "least"]


@pytest.mark.usefixtures("home")
def test_a_delta_table_is_behind_by_versions(holdfast: Holdfast, tmp_path: Path) -> None:
    registry = Registry(StateHome(tmp_path / HOME).registry)
    (before,) = registry.batches("visits")
    source = SourceProgress(
        0, "DeltaSource[s3://lake/visits]", 5, (PartitionPosition("s3://lake/visits", None, 7, 9, VERSIONS),)
    )
    registry.add_batch("visits", 1, replace(before, batch_id=before.batch_id + 1, sources=(source,)))
    assert line_of(holdfast("status", "visits").stdout)[:5] == [
        "visits",
        "0",
        "s3://lake/visits",
        "2",
        "versions",
    ]
    (lag,) = json.loads(holdfast("status", "visits", "--json").stdout)["lag"]
    assert (lag["records"], lag["versions"], lag["partition"], lag["unit"]) == (None, 2, None, "versions")


@pytest.mark.usefixtures("home")
def test_other_sources_have_no_table(holdfast: Holdfast) -> None:
    assert "OLDEST WAITS" not in holdfast("status", "visits").stdout
    assert json.loads(holdfast("status", "visits", "--json").stdout)["lag"] == []
