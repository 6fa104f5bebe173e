"""`holdfast bench`: the measurements."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import options, output
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from holdfast.bench.keyed_workloads import Part, Result
    from holdfast.bench.measure import Bench

KEYED = "keyed"
OPERATORS = "operators"
RUNS = 5

_KEYED_ONLY = "For `keyed`"
_BOTH = "For `keyed` and `operators`"


def bench(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="startup, defaults, operators or keyed; the first two by default: keyed takes an hour.",
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            min=1,
            max=100,
            help="Counted runs of each side: 5 by default, 1 of keyed.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only", help=f"{_BOTH}: some of dense,dense_1m,sparse,latency,ttl, or of the operators."
        ),
    ] = None,
    sides: Annotated[
        str | None, typer.Option("--sides", help=f"{_KEYED_ONLY}: some of the sides, as raw_tws,sql.")
    ] = None,
    keys: Annotated[
        int | None,
        typer.Option(
            "--keys", min=1, help=f"{_KEYED_ONLY}: keys in the sparse state, ten million by default."
        ),
    ] = None,
    raw_keys: Annotated[
        int | None,
        typer.Option("--raw-keys", min=1, help=f"{_KEYED_ONLY}: the same for the raw side, one million."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option("--rows", min=2, help=f"{_BOTH}: events in a batch, 100,000 by default."),
    ] = None,
    batches: Annotated[
        int | None,
        typer.Option(
            "--batches", min=1, help=f"{_BOTH}: counted batches of a run, 50 by default, 10 of operators."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure Holdfast against raw PySpark, both sides in one run; quote the medians."""
    from holdfast.bench.defaults import defaults  # noqa: PLC0415 - not needed for --help
    from holdfast.bench.measure import load, machine, machine_fields  # noqa: PLC0415 - as above
    from holdfast.bench.startup import startup  # noqa: PLC0415 - as above

    benches = {"startup": startup, "defaults": defaults}
    known = [*benches, OPERATORS, KEYED]
    if name is not None and name not in known:
        raise Invalid("there is no such measurement", found=name, expected=", ".join(known))
    sizes = {"keys": keys, "raw_keys": raw_keys, "rows": rows, "batches": batches}
    given = {each: value for each, value in sizes.items() if value is not None}
    _check_choices(name, {*given, *(["only"] if only is not None else [])}, sides)
    before = load()
    results: list[Bench] = []
    parts: dict[str, Part] = {}
    if name == KEYED:
        parts = _measure_keyed(given, runs or 1, only, sides)
    elif name == OPERATORS:
        results.append(_measure_operators(given, runs or RUNS, only))
    else:
        for each in [name] if name else list(benches):
            output.say(f"measuring {each}, {runs or RUNS} runs of each side …")
            results.append(benches[each](runs or RUNS))
    where = machine_fields(machine(before))
    if json:
        measured = {part: value.as_dict() for part, value in parts.items()}
        output.emit_json({"machine": where, "benches": [each.as_dict() for each in results], **measured})
        return
    output.fields(where.items())
    for result in results:
        _show(result)
    for part in parts.values():
        _show_part(part)


def _check_choices(name: str | None, given: Collection[str], sides: str | None) -> None:
    """Refuse sizes, workloads and sides for a measurement that has none of them."""
    takes = {KEYED: {"keys", "raw_keys", "rows", "batches", "only"}, OPERATORS: {"rows", "batches", "only"}}
    if set(given) <= takes.get(name or "", set()) and (sides is None or name == KEYED):
        return
    shared = set(given) <= takes[OPERATORS] and sides is None
    raise Invalid(
        "sizes, workloads and sides are those of certain measurements",
        found=name or "no name",
        expected=f"{KEYED} or {OPERATORS}" if shared else KEYED,
        hint="holdfast bench keyed …",
    )


def _measure_operators(sizes: Mapping[str, Any], runs: int, only: str | None) -> Bench:
    from holdfast.bench.operators import Sizes, operators  # noqa: PLC0415 - not needed for --help

    return operators(Sizes(**sizes), runs=runs, only=_listed(only), say=output.say)


def _measure_keyed(
    sizes: Mapping[str, Any], rounds: int, only: str | None, sides: str | None
) -> dict[str, Part]:
    from holdfast.bench.keyed import keyed  # noqa: PLC0415 - not needed for --help
    from holdfast.bench.keyed_workloads import Sizes  # noqa: PLC0415 - as above

    return keyed(Sizes(**sizes), rounds=rounds, only=_listed(only), sides=_listed(sides), say=output.say)


def _listed(text: str | None) -> list[str]:
    return [each.strip() for each in text.split(",")] if text is not None else []


def _show(result: Bench) -> None:
    output.line()
    output.line(f"{result.name}: {result.what}")
    output.table(
        ["", "MEDIAN s", "MIN s", "MAX s", "RUNS"],
        [
            (
                each.name,
                f"{each.median:.3f}",
                f"{min(each.seconds):.3f}",
                f"{max(each.seconds):.3f}",
                len(each.seconds),
            )
            for each in result.series
        ],
    )
    for ratio, value in result.ratios.items():
        bound = result.bounds.get(ratio)
        relation = "" if bound is None else f" (promised: at most {bound:.10g}; {_verdict(value <= bound)})"
        digits = 2 if bound is None else 3
        output.line(f"  {ratio} = {value:.{digits}f}{relation}")


def _show_part(part: Part) -> None:
    from holdfast.bench.keyed_figures import MIB  # noqa: PLC0415 - not needed for --help

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
                round(each.events_per_s),
                round(each.median_ms),
                min(each.batch_ms),
                max(each.batch_ms),
                len(each.batch_ms),
                round(each.changelog_bytes / 1000),
                round(each.snapshot_bytes / 1000),
                round(each.worker_bytes / MIB),
                round(each.private_bytes / MIB),
            )
            for label, each in part.figures.items()
        ],
    )
    for result in part.results:
        output.line(f"  {result.comparison.name} = {_value(result.value)}{_promise(result)}")


def _value(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def _promise(result: Result) -> str:
    comparison = result.comparison
    if comparison.bound is None:
        return ""
    relation = "at least" if comparison.at_least else "at most"
    bound = f"{comparison.bound:,.10g}"
    return f" (promised: {relation} {bound}; {_verdict(result.holds)})"


def _verdict(holds: bool | None) -> str:
    return "holds" if holds else "DOES NOT HOLD"
