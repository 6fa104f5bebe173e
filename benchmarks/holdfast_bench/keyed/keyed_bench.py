"""Keyed state in Python: Holdfast beside raw `transformWithState` and Spark's own aggregate."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from holdfast.errors import Invalid
from holdfast_bench.keyed.keyed_data import Files, Shape, write
from holdfast_bench.keyed.keyed_figures import figures_of
from holdfast_bench.keyed.keyed_process import Measured, Task, measured_from
from holdfast_bench.keyed.keyed_workloads import Entry, Part, Sizes, Workload, workloads
from holdfast_bench.measure import at_its_end, measured_apart, note
from holdfast_bench.turns import in_turn


def keyed(
    sizes: Sizes,
    into: dict[str, Part],
    *,
    rounds: int = 1,
    only: Sequence[str] = (),
    sides: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Measure the workloads; every side of one gets the same events, in a process of its own.

    Takes the better part of an hour with the default sizes and one round, most of it for the raw side.

    Args:
        sizes: How large everything is.
        into: Each workload that has come to its end, by name.
        rounds: How often each side runs. Sides take turns, so that a machine that slows down slows all.
        only: The workloads to run, all by default.
        sides: The sides to run, all by default.
        say: Told what is being measured.

    Raises:
        Invalid: There is no such workload or side.
        Failed: A side did not come to its end.
    """
    chosen = _chosen(workloads(sizes), only, sides)
    for each in chosen:
        into[each.name] = _part(each, rounds, say)
        at_its_end()


def _chosen(known: Sequence[Workload], only: Sequence[str], sides: Sequence[str]) -> list[Workload]:
    names = [each.name for each in known]
    every = list(dict.fromkeys(entry.side for each in known for entry in each.entries))
    for given, allowed, what in ((only, names, "workload"), (sides, every, "side")):
        wrong = [each for each in given if each not in allowed]
        if wrong:
            raise Invalid(f"unknown {what}", found=", ".join(wrong), expected=", ".join(allowed))
    found = [each for each in known if not only or each.name in only]
    return [each.of_sides(sides) for each in found] if sides else found


def _part(workload: Workload, rounds: int, say: Callable[[str], None]) -> Part:
    measured: dict[str, list[Measured]] = {each.label: [] for each in workload.entries}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        files: dict[Shape, Files] = {}
        for entry in workload.entries:
            if entry.shape not in files:
                files[entry.shape] = write(folder / f"events-{len(files)}", entry.shape)
        for number in range(rounds):
            for entry in in_turn(workload.entries, number):
                say(f"measuring keyed, {workload.name}: {entry.label}, round {number + 1} of {rounds} …")
                run = _run(entry, files[entry.shape], folder, workload.snapshots)
                measured[entry.label].append(run)
                note(f"{workload.name}, {entry.label}", *(ms / 1000 for ms in run.trigger_ms))
    return Part(workload, {label: figures_of(runs) for label, runs in measured.items()})


def _run(entry: Entry, files: Files, folder: Path, snapshots: bool) -> Measured:
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as place:
        task = Task(
            entry.side,
            entry.timed,
            tuple(map(str, files.load)),
            tuple(map(str, files.batches)),
            entry.warm_up,
            snapshots,
            place,
        )
        return measured_from(measured_apart("holdfast_bench.keyed.keyed_process", asdict(task), entry.label))
