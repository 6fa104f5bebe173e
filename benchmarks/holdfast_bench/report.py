"""The figures of `holdfast bench`, for people."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast_bench.backends.backends_bench import RECOVERED
from holdfast_bench.keyed.keyed_figures import MIB
from holdfast_bench.measure import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast_bench.backends.backends_bench import Backends
    from holdfast_bench.choices import Figures
    from holdfast_bench.keyed.keyed_workloads import Part
    from holdfast_bench.measure import Bench, Result, Series
    from holdfast_bench.skew.skew_bench import Skew


def show(found: Figures) -> None:
    """Print what was measured, and whether it is as promised."""
    output.fields(found.machine.items())
    for result in found.results:
        _show(result)
    for part in found.parts.values():
        _show_part(part)
    if found.hot is not None:
        _show_skew(found.hot)
    if found.backends is not None:
        _show_backends(found.backends)
    if found.broken_off:
        output.line()
        if found.so_far:
            output.line("broken off; of what was not at its end it had measured so far:")
            _show_series(found.so_far)
        else:
            output.line("broken off; of what was not at its end it had measured nothing yet")


def _show_skew(hot: Skew) -> None:
    output.line()
    output.line(
        f"skew: {hot.sizes.rows:,} events over {hot.sizes.tasks} tasks; one key has half, but for even"
    )
    output.table(
        ["", "BATCH EVENTS", "BATCH ms", "SLOWEST TASK ms", "BATCHES", "ROWS"],
        [
            (
                name,
                hot.batch_events(name),
                round(hot.median(name, "ms")),
                round(hot.median(name, "slowest_ms")),
                sum(len(run.ms) for run in runs),
                runs[0].rows,
            )
            for name, runs in hot.runs.items()
        ],
    )
    for result in hot.results:
        within = ""
        if result.within is not None:
            least, most = result.within
            within = f" ({least:.2f} to {most:.2f} by {len(result.pairs)} pairs)"
        output.line(
            f"  {result.comparison.name} = {result.value:.2f}{within}{_promise(result, told=result.told)}"
        )
    output.line(f"  results identical: {'yes' if hot.identical else 'NO'}")


def _show_backends(found: Backends) -> None:
    sizes = found.sizes
    output.line()
    output.line(
        f"backends: {sizes.rows:,} rows a batch into a count and a sum of {sizes.keys:,} keys; recovery is"
        " the first batch of a restarted query whose executors hold no state"
    )
    columns = ["", "BATCH ms", "ROWS/S", "COMMIT ms", "GET us p50", "p99", "PUT us p50", "p99", "BYTES/KEY"]
    output.table(
        [*columns, *(f"RECOVERY ms, {keys:,}" for keys in RECOVERED)],
        [
            (
                side,
                round(median(each.batch_s) * 1000),
                round(sizes.rows / median(each.batch_s)),
                round(median(each.commit_s) * 1000),
                *(
                    f"{percentile(us, share):.1f}"
                    for us in (each.get_us, each.put_us)
                    for share in (0.5, 0.99)
                ),
                round(each.state_bytes / sizes.keys),
                *(round(median(each.recovery_s[str(keys)]) * 1000) for keys in RECOVERED),
            )
            for side, each in found.sides.items()
        ],
    )
    for result in found.results:
        output.line(f"  {result.comparison.name} = {result.value:.2f}{_promise(result)}")


def _show_series(all_series: Sequence[Series]) -> None:
    output.table(
        ["", "MEDIAN s", "MIN s", "MAX s", "RUNS"],
        [
            (
                series.name,
                f"{series.median:.3f}",
                f"{min(series.seconds):.3f}",
                f"{max(series.seconds):.3f}",
                len(series.seconds),
            )
            for series in all_series
        ],
    )


def _show(result: Bench) -> None:
    output.line()
    output.line(f"{result.name}: {result.what}")
    _show_series(result.series)
    for ratio, value in result.ratios.items():
        bound = result.bounds.get(ratio)
        digits = 2 if bound is None else 3
        held = _kept(bound, bound is None or value <= bound, at_least=False)
        output.line(f"  {ratio} = {value:.{digits}f}{held}")


def _show_part(part: Part) -> None:
    output.line()
    output.line(f"{part.workload.name}: {part.workload.what}")
    output.table(
        [
            "",
            "EVENTS/S",
            "MEDIAN ms",
            "MIN ms",
            "MAX ms",
            "BATCHES",
            "LOG KB",
            "SNAPSHOT KB",
            "WORKER MiB",
            "OWN MiB",
        ],
        [
            (
                label,
                round(figures.events_per_s),
                round(figures.median_ms),
                min(figures.batch_ms),
                max(figures.batch_ms),
                len(figures.batch_ms),
                round(figures.changelog_bytes / 1000),
                round(figures.snapshot_bytes / 1000),
                round(figures.worker_bytes / MIB),
                round(figures.private_bytes / MIB),
            )
            for label, figures in part.figures.items()
        ],
    )
    for result in part.results:
        output.line(f"  {result.comparison.name} = {_value(result.value)}{_promise(result)}")


def _value(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def _promise(result: Result, *, told: bool = True) -> str:
    return _kept(result.comparison.bound, result.holds, at_least=result.comparison.at_least, told=told)


def _kept(bound: float | None, kept: bool | None, *, at_least: bool, told: bool = True) -> str:
    if bound is None:
        return ""
    relation = "at least" if at_least else "at most"
    word = "holds" if kept else "DOES NOT HOLD" if told else "too few pairs to tell, take more --runs"
    return f" (promised: {relation} {bound:,.10g}; {word})"
