"""`holdfast mirror`: keep savepoints of a query elsewhere, of every batch if possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import Checkpoint, checkpoint_of
from holdfast.cli.help_text import examples
from holdfast.cli.stop import until_stopped
from holdfast.cli.watch import alerts_of, measured, say_alerts, say_error
from holdfast.clock import now_ms
from holdfast.errors import HoldfastError
from holdfast.quantities import counted

if TYPE_CHECKING:
    from holdfast.savepoints.periodic import PeriodicTake

LABEL: Final = "mirror"


@examples("checkpoints/visits mirrored --once", "checkpoints/visits s3://backups/visits --retain 30d")
def mirror(
    checkpoint: Checkpoint,
    catalog: Annotated[
        str, typer.Argument(metavar="DIR", help="The directory of the mirror, a path or URI.")
    ],
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="The interval between checks for new batches.")
    ] = "10s",
    retain: Annotated[
        str,
        typer.Option(
            "--retain",
            metavar="TIME",
            help="The age up to which savepoints are kept: all of an hour, then one for each hour of a"
            " day, then one for each day.",
        ),
    ] = "7d",
    once: Annotated[bool, typer.Option("--once", help="Copy what is committed now, then exit.")] = False,
    metrics_port: options.MetricsPort = None,
    alert: Annotated[
        list[str] | None,
        typer.Option(
            "--alert", metavar="KEY=VALUE", help="An alert threshold or address, such as mirror_age=1m."
        ),
    ] = None,
    name: options.QueryName = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Copy each new batch of a checkpoint to a different storage, as savepoints that share their files.

    Only new files are copied, and the query is not paused. `holdfast restore DIR@latest`, or
    `DIR@2026-03-05T08:00` for a time in UTC, creates a checkpoint again. The metric
    `holdfast_mirror_age_seconds` is the time that a loss of the checkpoint would cost now. Ends with Ctrl-C;
    a running copy is finished.
    """
    from holdfast.config.units import parse_duration
    from holdfast.storage import open_storage

    every_ms = parse_duration(every, "--every")
    alerts = alerts_of(alert)
    place = checkpoint_of(checkpoint, home)

    def copy() -> int:
        began_ms = now_ms()
        found = hf.savepoints.take_and_retain(place, catalog, retain=retain, label=LABEL, home=home)
        output.show(found, json, _show)
        return began_ms

    # What cannot be mirrored at all is an error; later failures are reported, and tried again.
    copied_ms = copy()
    if not once:
        settings = options.settings(home).ensure_home().resolve()
        with (
            measured(open_storage(place), settings, name, alerts, metrics_port, json) as watched,
            until_stopped() as stopped,
        ):
            told: str | None = None
            watched.mirrored_ms = copied_ms
            while not stopped.wait(every_ms / 1000):
                try:
                    watched.mirrored_ms = copy()
                    told = None
                except HoldfastError as error:
                    told = say_error(error, told, json)
                try:
                    say_alerts(watched, json)
                except HoldfastError as error:
                    told = say_error(error, told, json)
    next_step.say_looked_up(json, lambda: ("savepoint", "list", next_step.typed(catalog)))


def _show(found: PeriodicTake) -> None:
    if found.taken is None:
        output.say(f"batch {found.batch_id}: nothing new")
        return
    manifest = found.taken.manifest
    gone = f"; {counted(len(found.removed), 'older savepoint')} deleted" if found.removed else ""
    copied = f"{manifest.new_bytes:,} of {manifest.size_bytes:,} bytes new"
    output.line(f"batch {manifest.batch_id}: mirrored, {copied}{gone}")
    if found.left is not None:
        output.insist(f"cannot delete older savepoints: {found.left}")
