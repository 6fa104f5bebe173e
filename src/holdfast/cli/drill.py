"""`holdfast drill`: measure the time of a recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import holdfast as hf
from holdfast.cli import options, output
from holdfast.cli.arguments import catalog_of, whole_address_or_directory
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress

if TYPE_CHECKING:
    from holdfast.jobs.trials.drill import DrillReport

# Maximum number of earlier drills to show.
_SHOWN = 5


@examples("savepoints --job visits.py --max 2m", "savepoints/20260305T080000")
def drill(
    savepoint: Annotated[
        str,
        typer.Argument(
            metavar="SP|DIR|JOB",
            help="A savepoint, or a directory or a job for its newest savepoint.",
            callback=whole_address_or_directory,
        ),
    ],
    job: Annotated[
        str | None,
        typer.Option(
            "--job", metavar="FILE.py[:JOB]", help="The job to start from it. [none: restore the files only]"
        ),
    ] = None,
    max_: Annotated[
        str,
        typer.Option("--max", metavar="TIME", help="The maximum recovery time; exit code 1 if exceeded."),
    ] = "5m",
    query: options.Query = None,
    set_: options.Pairs = None,
    conf: options.Conf = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Restore a savepoint in a sandbox, run its job to the first batch, and measure the recovery time.

    The savepoint is not changed, and nothing is written to the job's sink. Each drill is recorded in the
    directory of savepoints and shown with the earlier ones.
    """
    from holdfast.config.units import parse_duration

    longest_ms = parse_duration(max_, "--max")
    address = catalog_of(savepoint, home)
    with progress("drill", "steps") as tell:
        drilled = hf.drill(
            address,
            job=job,
            query=query,
            overrides=options.pairs("--set", set_),
            conf=options.pairs("--conf", conf),
            longest=longest_ms,
            home=home,
            tell=tell,
        )
    output.show(drilled, json, _show)
    if not drilled.ok:
        raise typer.Exit(1)


def _show(drilled: DrillReport) -> None:
    found = drilled.drill
    output.fields(
        [
            ("savepoint", found.savepoint),
            ("size", f"{found.size_bytes:,} bytes"),
            *((phase, output.duration(ms)) for phase, ms in found.phases_ms.items()),
            ("recovery" if found.job else "files", output.duration(found.recovery_ms)),
        ]
    )
    if found.load_ms is not None:
        output.line(
            f"loading state took {output.duration(found.load_ms)} in total over the tasks of the first batch"
        )
    if drilled.earlier:
        output.line()
        output.table(
            ["EARLIER", "SAVEPOINT", "BYTES", "RECOVERY"],
            [
                (
                    output.moment(earlier.at_ms),
                    earlier.savepoint.rpartition("/")[2],
                    earlier.size_bytes,
                    output.duration(earlier.recovery_ms),
                )
                for earlier in drilled.earlier[-_SHOWN:]
            ],
        )
    for warning in drilled.warnings:
        output.insist(f"warning: {warning}")
