"""`holdfast list`: the jobs of a state home."""

from __future__ import annotations

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.help_text import examples


@examples("", "--home .holdfast --json")
def list_jobs(home: options.Home = None, json: options.Json = False) -> None:
    """List the jobs of the state home.

    Queries under `hf.watch` and `hf.guard` are in the list, and those that a running `holdfast serve` serves.
    """
    jobs = hf.jobs.list(home=home)
    if json:
        output.emit_json({"jobs": [job.as_dict() for job in jobs]})
        return
    kinds = {status.job.kind.value for status in jobs}
    rows = [
        (
            status.job.name,
            status.job.kind.value,
            status.word,
            output.moment(status.job.started_ms),
            status.job.checkpoint,
        )
        for status in jobs
    ]
    if kinds <= {"job"}:
        output.table(
            ["JOB", "STATE", "STARTED", "CHECKPOINT"],
            [(name, *rest) for name, _, *rest in rows],
            empty="no jobs in this state home",
        )
    else:
        output.table(["JOB", "KIND", "STATE", "STARTED", "CHECKPOINT"], rows)
    if jobs:
        next_step.say(json, "status", jobs[0].job.name, *next_step.home_words(home))
