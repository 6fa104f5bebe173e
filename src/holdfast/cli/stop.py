"""`holdfast stop`: end a job after its batch."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import options, output

Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for it.")]


def stop(
    job: options.JobName,
    timeout: Timeout = 300.0,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Stop a job after the batch that runs. It can be run again and goes on where it stopped."""
    jobs = options.control(home)
    status = jobs.running(job) if dry_run else jobs.stop(job, timeout)
    if json:
        output.emit_json({"dry_run": dry_run, **status.as_dict()})
    elif dry_run:
        output.line(f"{status.job.name}: {status.job.state.value}, would stop after the batch that runs")
    else:
        output.line(f"{status.job.name}: {status.job.state.value}")
