"""Drills are kept beside the savepoints, and tell when recovery takes longer than it did."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from catalogs import START_MS, Hands, catalog, file_query
from command import Holdfast

from holdfast.errors import NotFound
from holdfast.jobs.trials.drill import DrillReport
from holdfast.savepoints.catalog import Drill, drills, has_grown, note, usual_ms
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage

DRILL = Drill(
    at_ms=START_MS,
    savepoint="memory://catalog/savepoints/one",
    query_id="q",
    size_bytes=10,
    job="shop",
    empty=False,
    phases_ms={"verify": 100, "copy": 200, "first batch": 700},
    load_ms=30,
)


def taking(ms: int, **other: object) -> Drill:
    return replace(DRILL, phases_ms={"verify": ms}, **other)  # type: ignore[arg-type]


def test_what_is_noted_is_read_back_in_order() -> None:
    into = catalog()
    later = replace(DRILL, at_ms=START_MS + 5000, job=None, load_ms=None)
    note(into, later, b"abcd")
    note(into, DRILL, b"abcd")
    note(into, DRILL, b"efgh")  # of the same millisecond
    assert drills(into) == (DRILL, DRILL, later)
    assert DRILL.recovery_ms == 1000


def test_the_names_of_earlier_versions_are_read() -> None:
    into = catalog()
    note(into, DRILL, b"abcd")
    (path,) = into.files
    written = json.loads(into.files[path])
    for former, now in (("bytes", "size_bytes"), ("state_load_ms", "load_ms")):
        written[former] = written.pop(now)
    into.write(path, json.dumps(written).encode(), replace=True)
    assert "size_bytes" not in json.loads(into.files[path])
    assert drills(into) == (DRILL,)


def test_a_catalog_without_drills_has_none() -> None:
    assert drills(catalog()) == ()


def test_a_file_that_is_no_drill_is_passed_over() -> None:
    into = catalog()
    note(into, DRILL, b"abcd")
    (path,) = into.files
    into.write(path.replace("-61626364", "-00000000"), into.files[path][:-9])
    into.write("drills/readme.txt", b"mine")
    assert drills(into) == (DRILL,)


def test_a_removal_leaves_drills_alone() -> None:
    hands, into = Hands(), catalog()
    taken = hands.take(MemoryStorage(file_query(2)), into)
    note(into, DRILL, b"abcd")
    hands.delete(into, taken.manifest.savepoint_id)
    hands.sweep(into)
    assert drills(into) == (DRILL,)


@pytest.mark.parametrize(
    ("earlier", "now", "usual", "grown"),
    [
        ([], 9000, None, False),
        ([1000], 1500, 1000, False),
        ([1000], 1501, 1000, True),
        ([100, 100, 1000, 1000, 1000, 1200, 900], 1400, 1000, False),
        ([9000, 9000, 100, 100, 100, 100, 100], 151, 100, True),
    ],
)
def test_growth_is_half_more_than_the_median_of_the_last_five(
    earlier: list[int], now: int, usual: int | None, grown: bool
) -> None:
    before = [taking(each) for each in earlier]
    assert usual_ms(before, taking(now)) == usual
    assert has_grown(before, taking(now)) is grown


def test_only_drills_of_the_same_kind_are_compared() -> None:
    others = [taking(1, query_id="other"), taking(1, job=None), taking(1, job="another")]
    assert usual_ms(others, taking(9000)) is None


def test_warnings_say_what_is_wrong() -> None:
    fine = DrillReport(taking(1000), (taking(900),), 300_000, None)
    assert (fine.ok, fine.grown, fine.warnings) == (True, False, ())
    slow = DrillReport(
        taking(2000, job=None, empty=True), (taking(1000, job=None),), 1999, "the disk is full"
    )
    assert (slow.ok, slow.grown) == (False, True)
    text = "; ".join(slow.warnings)
    for words in (
        "longer than 1s 999ms",
        "2.0 times",
        "median of the last drills: 1.0 s",
        "without --job",
        "no input",
        "disk",
    ):
        assert words in text


def test_files_alone_are_drilled_without_spark(holdfast: Holdfast, tmp_path: Path) -> None:
    into = LocalStorage(tmp_path / "catalog")
    hands = Hands()
    first = hands.take(MemoryStorage(file_query(2)), into)
    second = hands.take(MemoryStorage(file_query(3)), into)
    said = holdfast("drill", "catalog")
    assert said.returncode == 0, said.stderr
    assert second.uri in said.stdout
    assert "without --job this is not a full recovery" in said.stderr
    said = holdfast("drill", first.uri, "--max", "1ms")
    assert said.returncode in (0, 1)
    assert [each.savepoint for each in drills(into)] == [second.uri, first.uri]
    assert list((tmp_path / "home" / "sandboxes").iterdir()) == []


def test_a_place_without_savepoints_is_missing(holdfast: Holdfast) -> None:
    said = holdfast("drill", "./nothing")
    assert said.returncode == NotFound.exit_code
    assert "the directory has no savepoint" in said.stderr
