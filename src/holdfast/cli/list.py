"""`holdfast list`: the jobs of a state home."""

from __future__ import annotations

from holdfast.cli import options, output


def list_jobs(home: options.Home = None, json: options.Json = False) -> None:
    """List the jobs of the state home."""
    jobs = options.control(home).jobs()
    if json:
        output.emit_json({"jobs": [job.as_dict() for job in jobs]})
        return
    from holdfast.jobs.registry.client import describe

    output.table(
        ["JOB", "STATE", "STARTED", "CHECKPOINT"],
        [
            (each.job.name, describe(each), output.moment(each.job.started_ms), each.job.checkpoint)
            for each in jobs
        ],
    )
