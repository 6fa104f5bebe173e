from __future__ import annotations

import pytest

from holdfast_bench.keyed.keyed_figures import MIB, Figures, figures_of
from holdfast_bench.keyed.keyed_files import Written
from holdfast_bench.keyed.keyed_memory import Memory
from holdfast_bench.keyed.keyed_process import Measured
from holdfast_bench.keyed.keyed_workloads import Part, Sizes, workloads


def measured(*batch_ms: int, changelog: int = 0, snapshot: int = 0, private: int = 0) -> Measured:
    return Measured(
        1000, batch_ms, tuple(each - 100 for each in batch_ms), {}, Written(changelog, snapshot, 2),
        Memory(2 * private, private),
    )  # fmt: skip


def figures(*batch_ms: int, changelog: int = 0, snapshot: int = 0, private: int = 0) -> Figures:
    run = measured(*batch_ms, changelog=changelog, snapshot=snapshot, private=private)
    return figures_of([run])


def part(name: str, **sides: Figures) -> Part:
    return Part(next(each for each in workloads(Sizes()) if each.name == name), sides)


def test_rounds_are_put_together() -> None:
    found = figures_of(
        [
            measured(400, 500, changelog=60, snapshot=6, private=3 * MIB),
            measured(300, 1000, 450, changelog=40, private=5 * MIB),
        ]
    )
    assert found.median_ms == 450
    assert found.events_per_s == pytest.approx(1000 / 0.45)
    assert found.slowest == pytest.approx(1000 / 450)
    assert found.changelog_bytes == 20
    assert found.snapshot_bytes == pytest.approx(1.2)
    assert (found.snapshots, found.worker_bytes, found.private_bytes) == (4, 10 * MIB, 5 * MIB)


def test_rounds_that_differ_about_a_promise_tell_nothing() -> None:
    quick, slow = measured(100, 100, changelog=9), measured(130, 130, changelog=9)
    steady = figures_of([quick, quick])
    found = {
        each.comparison.name: each
        for each in part("dense", on_batch=figures_of([quick, slow]), sql=steady).results
    }
    ratio = found["on_batch / sql"]
    assert ratio.pairs == [1.0, pytest.approx(100 / 130)]
    assert (ratio.told, ratio.as_dict()["told"]) == (False, False)
    assert figures_of([quick, slow]).spread == pytest.approx(30 / 115)
    assert figures_of([quick]).spread == 0
    found = {
        each.comparison.name: each
        for each in part("dense", on_batch=steady, sql=figures_of([slow, slow])).results
    }
    assert found["on_batch / sql"].told


def test_the_json_of_a_side() -> None:
    run = figures(500, 400, 1000)
    fields = run.as_dict(latency=False)
    assert (fields["events_per_s"], fields["min"], fields["max"]) == (2000, 1000, 2500)
    assert fields["batch_ms"] == {"median": 500, "min": 400, "max": 1000}
    assert fields["add_batch_ms"] == 400
    assert fields["batches"] == 3
    fields = run.as_dict(latency=True)
    assert (fields["ms"], fields["min"], fields["max"]) == (500, 400, 1000)
    assert "events_per_s" not in fields


def test_the_dense_ratios_and_promises() -> None:
    dense = part(
        "dense",
        raw_tws=figures(5000),
        sql=figures(500, changelog=1000),
        on_event=figures(1000, changelog=2000),
        on_batch=figures(400, changelog=1000, snapshot=400),
    )
    fields = dense.as_dict()
    assert fields["ratios"]["on_batch / raw_tws"] == 12.5
    assert fields["ratios"]["on_batch / sql"] == 1.25
    assert fields["ratios"]["on_event / raw_tws"] == 5
    assert fields["ratios"]["on_event, events/s"] == 1000
    assert fields["ratios"]["on_batch / sql, checkpoint bytes of a batch"] == 1.4
    held = {each["name"]: each["holds"] for each in fields["promises"]}
    assert held == {
        "on_batch / raw_tws": True,
        "on_batch / sql": True,
        "on_event / raw_tws": False,
        "on_event, events/s": False,
        "on_batch / sql, checkpoint bytes of a batch": True,
        "on_event / sql, checkpoint bytes of a batch": False,
    }


def test_the_sparse_promises() -> None:
    sparse = part(
        "sparse",
        raw_tws=figures(6000),
        sql=figures(500, changelog=10),
        on_event=figures(900, 900, 1801, changelog=20, private=255 * MIB),
        on_event_few=figures(600),
        on_batch=figures(501, changelog=21, private=257 * MIB),
        on_batch_few=figures(300),
    )
    held = {each["name"]: each["holds"] for each in sparse.as_dict()["promises"]}
    assert held == {
        "on_batch / raw_tws": False,
        "on_batch / sql": False,
        "on_event / raw_tws": False,
        "on_batch / on_batch_few, time of a batch": False,
        "on_event / on_event_few, time of a batch": True,
        "on_batch, slowest batch / median": True,
        "on_event, slowest batch / median": False,
        "on_batch / sql, checkpoint bytes of a batch": False,
        "on_event / sql, checkpoint bytes of a batch": True,
        "on_batch, a worker's own memory in MiB": False,
        "on_event, a worker's own memory in MiB": True,
    }


def test_latency_and_time_compare_the_time_of_a_batch() -> None:
    latency = part("latency", raw_tws=figures(100), on_batch=figures(120), on_event=figures(121))
    held = {each["name"]: each["holds"] for each in latency.as_dict()["promises"]}
    assert held == {
        "on_batch, time of a batch in ms": True,
        "on_event, time of a batch in ms": True,
        "on_batch, 99th percentile in ms": True,
        "on_event, 99th percentile in ms": True,
        "on_batch / raw_tws, time of a batch": True,
        "on_event / raw_tws, time of a batch": False,
    }
    ttl = part("ttl", on_event=figures(125), on_event_without=figures(100))
    assert [each["holds"] for each in ttl.as_dict()["promises"]] == [True]


def test_what_did_not_run_is_not_compared() -> None:
    assert part("dense", on_batch=figures(100)).results == ()


def test_the_default_sizes_are_those_that_are_promised() -> None:
    known = {each.name: each for each in workloads(Sizes())}
    assert list(known) == ["dense", "dense_1m", "sparse", "latency", "ttl"]
    shapes = {name: {each.label: each.shape for each in work.entries} for name, work in known.items()}
    dense = shapes["dense"]["on_batch"]
    assert (dense.rows, dense.keys, dense.touched, dense.batches) == (100_000, 50_000, None, 52)
    assert shapes["dense_1m"]["sql"].rows == 1_000_000
    many, few = shapes["sparse"]["on_batch"], shapes["sparse"]["on_batch_few"]
    assert (many.keys, few.keys) == (10_000_000, 100_000)
    assert (
        (many.rows, many.touched, many.loaded)
        == (few.rows, few.touched, few.loaded)
        == (100_000, 97_000, True)
    )
    assert shapes["latency"]["raw_tws"].rows == 100
    assert shapes["dense"]["raw_tws"].batches == 7
    timed = {each.label for each in known["ttl"].entries if each.timed}
    assert timed == {"raw_tws", "on_event", "on_batch"}
