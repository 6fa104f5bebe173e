"""`holdfast status`: one job in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import options, output

if TYPE_CHECKING:
    from holdfast.jobs.control import JobDetails


def status(job: options.JobName, home: options.Home = None, json: options.Json = False) -> None:
    """Show a job: state, queries, newest batches, savepoints, attempts and recovery times."""
    details = options.control(home).details(job)
    if json:
        output.emit_json(details.as_dict())
    else:
        _render(details)


def _state(details: JobDetails) -> str:
    from holdfast.jobs.control import describe  # noqa: PLC0415 - not needed for --help

    word, reason = describe(details.status), details.status.job.reason
    return f"{word}: {reason}" if reason and reason != word.lower() else word


def _render(details: JobDetails) -> None:
    job = details.status.job
    output.fields(
        [
            ("job", job.name),
            ("id", job.job_id),
            ("state", _state(details)),
            ("file", job.target),
            ("checkpoint", job.checkpoint),
            ("started", output.moment(job.started_ms)),
            ("ended", output.moment(job.ended_ms)),
            ("late rows", details.late_rows),
        ]
    )
    if details.queries:
        output.line()
        newest = {batch.query: batch for batch in details.newest()}
        output.table(
            ["QUERY", "BATCH", "ROWS", "TOOK", "STATE ROWS", "WATERMARK", "PROMISE"],
            [
                (
                    query.name,
                    batch.batch_id if (batch := newest.get(query.name)) else None,
                    batch.input_rows if batch else None,
                    output.duration(batch.duration_ms) if batch else None,
                    batch.state_rows if batch else None,
                    batch.watermark if batch else None,
                    query.promise.split(":")[0],
                )
                for query in details.queries
            ],
        )
    if details.savepoints:
        output.line()
        output.table(
            ["SAVEPOINT", "QUERY", "BATCH", "NEW BYTES", "WHERE"],
            [
                (
                    output.moment(each.at_ms),
                    each.query,
                    each.batch_id,
                    each.new_bytes,
                    each.uri or each.problem,
                )
                for each in details.savepoints[-5:]
            ],
        )
    if details.attempts:
        output.line()
        output.table(
            ["ATTEMPT", "BEGAN", "TO FIRST COMMIT", "ENDING", "WHY"],
            [
                (
                    each.number,
                    output.moment(each.began_ms),
                    output.duration(each.first_commit_ms - each.began_ms) if each.first_commit_ms else None,
                    each.ending or "running",
                    str(each.failure) if each.failure else "",
                )
                for each in details.attempts[-10:]
            ],
        )
