"""`holdfast bench`: the measurements, which only a checkout has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import options, output
from holdfast.errors import Invalid, Unsupported

if TYPE_CHECKING:
    from holdfast_bench.keyed.keyed_workloads import Part
    from holdfast_bench.measure import Bench, Result
    from holdfast_bench.skew.skew_bench import Skew

KEYED = "keyed"
OPERATORS = "operators"
SKEW = "skew"
SAVEPOINT = "savepoint"
OVERHEAD = "overhead"
STATE = "state"
RUNS = 5
SKEW_RUNS = 3

# Which measurement takes which choices.
_TAKES = {
    KEYED: frozenset({"only", "sides", "keys", "raw_keys", "rows", "batches"}),
    OPERATORS: frozenset({"only", "rows", "batches"}),
    OVERHEAD: frozenset({"rows", "batches"}),
    SAVEPOINT: frozenset({"keys", "rows"}),
    STATE: frozenset({"keys", "rows"}),
    SKEW: frozenset({"sides", "keys", "rows", "batches"}),
}


def bench(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="startup, defaults, operators, keyed, skew, savepoint, state or overhead. [the first two;"
            " the others take long]",
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            min=1,
            max=100,
            help="Counted runs of each side: 5 by default, 3 of skew, 1 of keyed.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            help="For `keyed`: some of dense,dense_1m,sparse,latency,ttl; for `operators`: some of them.",
        ),
    ] = None,
    sides: Annotated[
        str | None, typer.Option("--sides", help="For `keyed` and `skew`: some of the sides, as raw_tws,sql.")
    ] = None,
    keys: Annotated[
        int | None,
        typer.Option(
            "--keys",
            min=1,
            help="For `keyed`: keys in the sparse state, ten million by default; for `skew` 20,000, for"
            " `savepoint` and `state` a million.",
        ),
    ] = None,
    raw_keys: Annotated[
        int | None,
        typer.Option("--raw-keys", min=1, help="For `keyed`: the same for the raw side, one million."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows",
            min=2,
            help="Events in a batch, 100,000 by default, 10,000 for `savepoint` and `state`; for `skew` all,"
            " two million.",
        ),
    ] = None,
    batches: Annotated[
        int | None,
        typer.Option(
            "--batches",
            min=1,
            help="Counted batches of a run: 50 by default, 10 of operators, 1 of skew, 5 of overhead.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure Holdfast against raw PySpark, both sides in one run, and print the medians."""
    _check_installed()
    from holdfast_bench.defaults import defaults
    from holdfast_bench.measure import load, machine, machine_fields
    from holdfast_bench.startup import startup

    benches = {"startup": startup, "defaults": defaults}
    names = [*benches, OPERATORS, KEYED, SKEW, SAVEPOINT, STATE, OVERHEAD]
    if name is not None and name not in names:
        raise Invalid("there is no such measurement", found=name, expected=", ".join(names))
    sizes = {"keys": keys, "raw_keys": raw_keys, "rows": rows, "batches": batches}
    given = {each: value for each, value in sizes.items() if value is not None}
    words = {each for each, value in (("only", only), ("sides", sides)) if value is not None}
    _check_options(name, {*given, *words})
    before = load()
    results: list[Bench] = []
    parts: dict[str, Part] = {}
    hot: Skew | None = None
    if name == KEYED:
        parts = _measure_keyed(given, runs or 1, only, sides)
    elif name == OPERATORS:
        results.append(_measure_operators(given, runs or RUNS, only))
    elif name is not None and name in _OTHERS:
        results.append(_OTHERS[name](given, runs or RUNS))
    elif name == SKEW:
        hot = _measure_skew(given, runs or SKEW_RUNS, sides)
    else:
        for bench_name in [name] if name else list(benches):
            output.say(f"measuring {bench_name}, {runs or RUNS} runs of each side …")
            results.append(benches[bench_name](runs or RUNS))
    where = machine_fields(machine(before))
    if json:
        measured = {part: value.as_dict() for part, value in parts.items()}
        if hot is not None:
            measured[SKEW] = hot.as_dict()
        output.emit_json({"machine": where, "benches": [result.as_dict() for result in results], **measured})
        return
    output.fields(where.items())
    for result in results:
        _show(result)
    for part in parts.values():
        _show_part(part)
    if hot is not None:
        _show_skew(hot)


def _check_installed() -> None:
    if find_spec("holdfast_bench") is None:
        raise Unsupported(
            "the benchmarks are not part of an installed package",
            where="holdfast bench",
            expected="a checkout of Holdfast's source, installed as editable",
            hint="clone the repository and run `make bench` in it",
        )


def _check_options(name: str | None, given: Collection[str]) -> None:
    """Refuse a size, workload or side of another measurement."""
    wrong = sorted(set(given) - _TAKES.get(name or "", frozenset()))
    if not wrong:
        return
    able = [each for each, takes in _TAKES.items() if takes >= set(wrong)]
    raise Invalid(
        "sizes, workloads and sides are those of certain measurements",
        found=f"{', '.join('--' + option.replace('_', '-') for option in wrong)} with {name or 'no name'}",
        expected=" or ".join(able),
        hint=f"holdfast bench {able[0]} …",
    )


def _measure_operators(sizes: Mapping[str, Any], runs: int, only: str | None) -> Bench:
    from holdfast_bench.operators.operators_bench import Sizes, operators

    return operators(Sizes(**sizes), runs=runs, only=_listed(only), say=output.say)


def _measure_savepoint(sizes: Mapping[str, Any], runs: int) -> Bench:
    from holdfast_bench.at_rest.savepoint_bench import Sizes, savepoint

    return savepoint(Sizes(**sizes), runs=runs, say=output.say)


def _measure_overhead(sizes: Mapping[str, Any], runs: int) -> Bench:
    from holdfast_bench.overhead import Sizes, overhead

    return overhead(Sizes(**sizes), runs=runs, say=output.say)


def _measure_state(sizes: Mapping[str, Any], runs: int) -> Bench:
    from holdfast_bench.at_rest.state_bench import Sizes, state

    return state(Sizes(**sizes), runs=runs, say=output.say)


_OTHERS: Mapping[str, Callable[[Mapping[str, Any], int], Bench]] = {
    SAVEPOINT: _measure_savepoint,
    STATE: _measure_state,
    OVERHEAD: _measure_overhead,
}


def _measure_skew(sizes: Mapping[str, Any], rounds: int, sides: str | None) -> Skew:
    from holdfast_bench.skew.skew_bench import Sizes, skew

    return skew(Sizes(**sizes), rounds=rounds, sides=_listed(sides), say=output.say)


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


def _measure_keyed(
    sizes: Mapping[str, Any], rounds: int, only: str | None, sides: str | None
) -> dict[str, Part]:
    from holdfast_bench.keyed.keyed_bench import keyed
    from holdfast_bench.keyed.keyed_workloads import Sizes

    return keyed(Sizes(**sizes), rounds=rounds, only=_listed(only), sides=_listed(sides), say=output.say)


def _listed(text: str | None) -> list[str]:
    return [word.strip() for word in text.split(",")] if text is not None else []


def _show(result: Bench) -> None:
    output.line()
    output.line(f"{result.name}: {result.what}")
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
            for series in result.series
        ],
    )
    for ratio, value in result.ratios.items():
        bound = result.bounds.get(ratio)
        digits = 2 if bound is None else 3
        held = _kept(bound, bound is None or value <= bound, at_least=False)
        output.line(f"  {ratio} = {value:.{digits}f}{held}")


def _show_part(part: Part) -> None:
    from holdfast_bench.keyed.keyed_figures import MIB

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
