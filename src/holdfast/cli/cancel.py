"""`holdfast cancel`: end a job at once."""

from __future__ import annotations

from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import JobName
from holdfast.cli.asking import confirm
from holdfast.cli.examples import examples
from holdfast.cli.stop import Timeout


@examples("visits --dry-run", "visits")
def cancel(
    job: JobName,
    timeout: Timeout = 60.0,
    yes: options.Yes = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """End a job's driver at once. Its checkpoint stays unless the job says `on_cancel="delete"`."""
    jobs = options.control(home)
    status = jobs.running(job)
    deletes = status.job.on_cancel == "delete"
    fate = f"{'delete' if deletes else 'keep'} its checkpoint {status.job.checkpoint}"
    if not dry_run:
        if deletes and not yes:
            confirm(f"Cancel {status.job.name} and {fate}?")
        status = jobs.cancel(status.job.name, timeout)
    if json:
        output.emit_json({"dry_run": dry_run, "deletes_checkpoint": deletes, **status.as_dict()})
    elif dry_run:
        output.line(f"{status.job.name}: {status.job.state.value}, would be ended at once and {fate}")
    else:
        output.line(f"{status.job.name}: {status.job.state.value}")
    if dry_run:
        next_step.say_for_real(json)
    elif not deletes:
        next_step.say_looked_up(json, lambda: next_step.run_words(status.job.target, home))
