"""`holdfast list`: the jobs of a state home."""

from __future__ import annotations

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.help_text import examples


@examples("", "--home .holdfast --json")
def list_jobs(home: options.Home = None, json: options.Json = False) -> None:
    """List the jobs of the state home."""
    jobs = hf.jobs.list(home=home)
    if json:
        output.emit_json({"jobs": [job.as_dict() for job in jobs]})
        return
    output.table(
        ["JOB", "STATE", "STARTED", "CHECKPOINT"],
        [
            (status.job.name, status.word, output.moment(status.job.started_ms), status.job.checkpoint)
            for status in jobs
        ],
        empty="no jobs in this state home",
    )
    if jobs:
        next_step.say(json, "status", jobs[0].job.name, *next_step.home_words(home))
