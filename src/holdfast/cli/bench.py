"""`holdfast bench`: the measurements, which only a checkout has."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Final

import typer

from holdfast.cli import options, output
from holdfast.cli.help_text import examples
from holdfast.errors import Unsupported

# The benches are in a checkout, and in no wheel.
AVAILABLE: Final = find_spec("holdfast_bench") is not None


@examples("", "startup --runs 3")
def bench(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="startup, defaults, operators, keyed, skew, savepoint, state, backends, tables, overhead or"
            " cluster."
            " [the first two; the others take long]",
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            min=1,
            max=100,
            help="Counted runs of each side: 5 by default, 3 of skew, backends, tables and cluster, 1 of"
            " keyed.",
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
        str | None,
        typer.Option(
            "--sides", help="For `keyed`, `skew` and `backends`: some of the sides, as raw_tws,sql."
        ),
    ] = None,
    keys: Annotated[
        int | None,
        typer.Option(
            "--keys",
            min=1,
            help="For `keyed`: keys in the sparse state, ten million by default; for `skew` 20,000, for"
            " `savepoint` and `state` a million, for `backends` 100,000.",
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
            help="Events in a batch, 100,000 by default, 10,000 for `savepoint` and `state`, 20,000 for"
            " `cluster`, 200,000 for `backends`; for `skew` all, two million.",
        ),
    ] = None,
    batches: Annotated[
        int | None,
        typer.Option(
            "--batches",
            min=1,
            help="Counted batches of a run: 50 by default, 10 of operators and cluster, 1 of skew, 5 of"
            " overhead, backends and tables.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure Holdfast against raw PySpark, both sides in one run, and print the medians.

    Broken off by Ctrl-C or SIGTERM, it prints what it has measured so far, and ends with exit code 130.
    """
    _check_installed()
    from holdfast_bench.choices import Choices, measured
    from holdfast_bench.report import show

    sizes = {"keys": keys, "raw_keys": raw_keys, "rows": rows, "batches": batches}
    given = {size: number for size, number in sizes.items() if number is not None}
    found = measured(Choices(name, runs, only, sides, given), output.say)
    if json:
        benches = [result.as_dict() for result in found.results]
        output.emit_json(
            {
                "machine": found.machine,
                "benches": benches,
                **found.others(),
                "broken_off": found.broken_off,
                "so_far": [series.as_dict() for series in found.so_far],
            }
        )
    else:
        show(found)
    if found.broken_off:
        output.say("interrupted")
        raise typer.Exit(130)


def _check_installed() -> None:
    if not AVAILABLE:
        raise Unsupported(
            "the benchmarks are not part of an installed package",
            code="HF-E7040",
            where="holdfast bench",
            expected="a checkout of Holdfast's source, installed as editable",
            hint="clone the repository and run `make bench` in it",
        )
