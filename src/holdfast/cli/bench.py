"""`holdfast bench`: the benchmarks, which only a source checkout contains."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Final

import typer

from holdfast.cli import options, output
from holdfast.cli.help_text import examples
from holdfast.errors import Unsupported

# The benchmarks are in a source checkout but not in a wheel.
AVAILABLE: Final = find_spec("holdfast_bench") is not None


@examples("", "startup --runs 3")
def bench(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="The benchmark: startup, defaults, operators, keyed, latency, skew, savepoint, state,"
            " backends, tables, history, overhead, cluster, recovery, peers or nexmark."
            " [startup and defaults; the others take long]",
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            min=1,
            max=100,
            help="Measured runs of each side. [latency, skew, backends, tables, history, cluster, peers,"
            " nexmark: 3; keyed: 1; recovery: 20 kills; others: 5]",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            help="Parts, separated by commas: dense,dense_1m,sparse,latency,ttl of `keyed`; operators of"
            " `operators`; queries of `nexmark`, such as q4,q9.",
        ),
    ] = None,
    sides: Annotated[
        str | None,
        typer.Option(
            "--sides",
            help="Sides of `keyed`, `latency`, `skew`, `backends`, `recovery`, `peers` and `nexmark`,"
            " separated by commas, such as raw_tws,sql.",
        ),
    ] = None,
    keys: Annotated[
        int | None,
        typer.Option(
            "--keys",
            min=1,
            help="Number of keys. [keyed (sparse state): 10,000,000; latency: 50,000; skew: 20,000;"
            " savepoint, state, recovery: 1,000,000; backends: 100,000]",
        ),
    ] = None,
    raw_keys: Annotated[
        int | None,
        typer.Option("--raw-keys", min=1, help="Number of keys on the raw side of `keyed`. [1,000,000]"),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows",
            min=2,
            help="Events per batch, for latency and recovery per second. [latency, recovery: 1,000;"
            " savepoint, state: 10,000; cluster, history: 20,000; backends: 200,000; skew: 2,000,000 in"
            " total; others: 100,000]",
        ),
    ] = None,
    batches: Annotated[
        int | None,
        typer.Option(
            "--batches",
            min=1,
            help="Measured batches per run. [operators, cluster, peers: 10; nexmark: 20; overhead, backends,"
            " tables: 5; skew: 1; history: 100; others: 50]",
        ),
    ] = None,
    seconds: Annotated[
        int | None,
        typer.Option("--seconds", min=1, help="Measured seconds of each run of `latency`. [60]"),
    ] = None,
    warm_up: Annotated[
        int | None,
        typer.Option(
            "--warm-up", min=0, help="Seconds of events before the measured ones, for `latency`. [30]"
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure Holdfast against raw PySpark, both sides in one run, and print the medians.

    The benchmarks `peers` and `nexmark` also measure other stream engines, which `make peers` installs.

    On Ctrl-C or SIGTERM it prints the results so far and ends with exit code 130.
    """
    _check_installed()
    from holdfast_bench.choices import Choices, measured
    from holdfast_bench.report import show

    sizes = {
        "keys": keys,
        "raw_keys": raw_keys,
        "rows": rows,
        "batches": batches,
        "seconds": seconds,
        "warm_up": warm_up,
    }
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
    found.require_answers()


def _check_installed() -> None:
    if not AVAILABLE:
        raise Unsupported(
            "the benchmarks are not part of an installed package",
            code="HF-E7040",
            where="holdfast bench",
            expected="a checkout of Holdfast's source, installed as editable",
            hint="clone the repository and run `make bench` in it",
        )
