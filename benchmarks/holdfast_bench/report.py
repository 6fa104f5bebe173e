"""The figures of `holdfast bench`, for people."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast_bench.backends.backends_bench import RECOVERED
from holdfast_bench.keyed.keyed_figures import MIB
from holdfast_bench.measure import percentile
from holdfast_bench.nexmark.holdfast_queries import HOLDFAST, PYSPARK
from holdfast_bench.nexmark.nexmark_bench import FLINK, can_say
from holdfast_bench.peers.peers_bench import CORES
from holdfast_bench.peers.spark_sides import SQL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast_bench.backends.backends_bench import Backends
    from holdfast_bench.choices import Figures
    from holdfast_bench.keyed.keyed_workloads import Part
    from holdfast_bench.latency.latency_bench import Latency
    from holdfast_bench.measure import Bench, Result, Series
    from holdfast_bench.nexmark.nexmark_bench import Nexmark
    from holdfast_bench.peers.peers_bench import Peers
    from holdfast_bench.skew.skew_bench import Skew


def show(found: Figures) -> None:
    """Print what was measured, and whether it is as promised."""
    output.fields(found.machine.items())
    for result in found.results:
        _show(result)
    for part in found.parts.values():
        _show_part(part)
    if found.latency is not None:
        _show_latency(found.latency)
    if found.hot is not None:
        _show_skew(found.hot)
    if found.backends is not None:
        _show_backends(found.backends)
    if found.peers is not None:
        _show_peers(found.peers)
    if found.nexmark is not None:
        _show_nexmark(found.nexmark)
    if found.broken_off:
        output.line()
        if found.so_far:
            output.line("broken off; of what was not at its end it had measured so far:")
            _show_series(found.so_far)
        else:
            output.line("broken off; of what was not at its end it had measured nothing yet")


def _show_latency(found: Latency) -> None:
    sizes = found.sizes
    output.line()
    output.line(
        f"latency: {sizes.rows:,} events a second of {sizes.keys:,} keys, from topic to topic;"
        f" {sizes.warm_up} s of warm-up, then {sizes.seconds} s that count"
    )
    columns = [
        "",
        "BATCHES",
        "BATCH ms",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "MAX ms",
        "p50 OF RUNS",
        "p99 OF RUNS",
    ]
    output.table(
        [*columns, "EVENTS"],
        [
            (
                side,
                len(figures.batch_ms),
                round(median(figures.batch_ms)),
                *(round(percentile(latency, share)) for share in (0.5, 0.95, 0.99)),
                max(latency),
                *(" to ".join(map(str, figures.spread(share))) for share in (0.5, 0.99)),
                len(latency),
            )
            for side, figures in found.sides.items()
            if (latency := figures.latency_ms)
        ],
    )
    output.line("  an event's latency: the output record's CreateTime minus the event's time of sending")
    output.line("  every output record was compared with the events that were sent: no difference")


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
    _show_results(hot.results, "by {} pairs")
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
    _show_results(found.results, "")


def _show_peers(found: Peers) -> None:
    sizes = found.sizes
    output.line()
    output.line(
        f"peers: a running average per user with alerts, {sizes.batches} times {sizes.rows:,} events after"
        f" the warm-up; {found.expected:,} alerts expected"
    )
    output.table(
        ["", "EVENTS/S", "PER CORE", "MIN", "MAX", "CORE s/MILLION", "ALERTS", "RUNS"],
        [
            (
                side,
                round(median(speeds)),
                round(median(speeds) / CORES),
                round(min(speeds)),
                round(max(speeds)),
                f"{found.core_seconds(side):.2f}",
                "none by design" if runs[0].alerts is None else runs[0].alerts,
                len(runs),
            )
            for side, runs in found.runs.items()
            if side not in found.failed and (speeds := found.speeds(side))
        ],
    )
    if any(side in found.runs for side in SQL):
        output.line(f"  {' and '.join(SQL)}: count and sum per user only, a different result, as a floor")
    _show_absent(found)


def _show_nexmark(found: Nexmark) -> None:
    sizes = found.sizes
    output.line()
    output.line(
        f"nexmark: {sizes.batches} times {sizes.rows:,} events after the warm-up, of which each query counts"
        " those that it reads"
    )
    output.table(
        ["QUERY", "SIDE", "EVENTS/S", "PER CORE", "MIN", "MAX", "CORE s/MILLION", "RUNS"],
        [
            (
                query,
                side,
                round(median(speeds)),
                round(median(speeds) / CORES),
                round(min(speeds)),
                round(max(speeds)),
                f"{found.core_seconds(query, side):.2f}",
                len(speeds),
            )
            for query, side in found.runs
            if (speeds := found.speeds(query, side))
        ],
    )
    _show_results(found.results, "in {} rounds")
    for side in (PYSPARK, FLINK):
        if cannot := [query for query, of in found.runs if of == HOLDFAST and not can_say(side, query)]:
            output.line(f"  {side}: has no {', '.join(cannot)} (see docs/guides/nexmark.md)")
    _show_absent(found)


def _show_absent(found: Peers | Nexmark) -> None:
    for side, reason in found.missing.items():
        output.line(f"  {side}: {reason}")
    for side, reason in found.failed.items():
        output.line(f"  {side}: FAILED: {reason}")


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
            "SPREAD",
            "P99 ms",
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
                f"{figures.spread:.0%}" if len(figures.rounds) > 1 else "",
                round(figures.p99_ms),
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
    if part.workload.latency:
        phases = list(dict.fromkeys(phase for each in part.figures.values() for phase in each.phase_ms))
        output.table(
            ["", *(f"{phase} ms" for phase in phases)],
            [
                (label, *(round(figures.phase_ms.get(phase, 0)) for phase in phases))
                for label, figures in part.figures.items()
            ],
        )
    _show_results(part.results, "in {} rounds")


def _show_results(results: Iterable[Result], pairs: str) -> None:
    """Print each comparison with the limits of the true value; `pairs` tells what they were found by."""
    for result in results:
        within = ""
        if result.within is not None and len(result.pairs) > 1:
            least, most = map(_value, result.within)
            within = f" ({least} to {most} {pairs.format(len(result.pairs))})"
        output.line(f"  {result.comparison.name} = {_value(result.value)}{within}{_promise(result)}")


def _value(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def _promise(result: Result) -> str:
    return _kept(result.comparison.bound, result.holds, at_least=result.comparison.at_least, told=result.told)


def _kept(bound: float | None, kept: bool | None, *, at_least: bool, told: bool = True) -> str:
    if bound is None:
        return ""
    relation = "at least" if at_least else "at most"
    word = "holds" if kept else "DOES NOT HOLD" if told else "too noisy to tell, take more --runs"
    return f" (promised: {relation} {bound:,.10g}; {word})"
