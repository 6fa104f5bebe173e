"""`holdfast alerts`: the alerts of jobs, and the alert rules for Prometheus and Grafana."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.help_text import examples
from holdfast.errors import Conflict, Invalid

if TYPE_CHECKING:
    from holdfast.jobs import JobAlerts
    from holdfast.observe.alerting import AlertEvent

app = options.group("List alerts of jobs, or export the alert rules.")

_SHOWN = 20


@app.command("list", short_help="List active alerts and the newest alert events.")
@examples("", "visits --last 5")
def list_alerts(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="A job's name. [all jobs]")] = None,
    last: Annotated[
        int, typer.Option("--last", min=0, max=1000, help="Number of newest events to show.")
    ] = _SHOWN,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """List active alerts and the newest alert events.

    Supervisors and `hf.watch` record them; this command does not inspect any job.
    """
    found = hf.jobs.alerts(job, last=last, home=home)
    output.show(found, json, _show)
    next_step.say_looked_up(json, lambda: _after_alerts(found, home))


@app.command("export", short_help="Write alert rules for Prometheus and a dashboard for Grafana.")
@examples("", "--output monitoring")
def export(
    to: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="DIR",
            help="The directory to write the files to. [print the rules]",
            callback=options.on_this_machine,
        ),
    ] = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Write alert rules for Prometheus and a dashboard for Grafana.

    The rules contain no thresholds: each job exports its own as a metric. Files of an earlier export are
    replaced.
    """
    from holdfast.observe.grafana import DASHBOARD_FILE, UID
    from holdfast.observe.prometheus import HEAD, RULE_FILE

    exported = hf.jobs.alert_rules()
    if to is None:
        if json:
            output.emit_json(exported.as_dict())
        else:
            output.whole(exported.rules.rstrip("\n"))
        return
    files = {RULE_FILE: (exported.rules, HEAD), DASHBOARD_FILE: (exported.dashboard, f'"uid": "{UID}"')}
    if to.exists() and not to.is_dir():
        raise Conflict(
            "the path is a file, not a directory",
            code="HF-E4006",
            where=str(to),
            hint="name a different directory with --output",
        )
    for name, (_, mark) in files.items():
        _check(to / name, mark)
    if not dry_run:
        _write(to, {name: text for name, (text, _) in files.items()})
    if json:
        output.emit_json({"dry_run": dry_run, "files": [str(to / name) for name in files]})
        return
    for name in files:
        output.line(f"{'would write' if dry_run else 'wrote'} {to / name}")
    if dry_run:
        next_step.say_for_real(json)


def _after_alerts(found: JobAlerts, home: str | None) -> tuple[str, ...]:
    """Return the arguments that show the job of the first alert; empty for a query that is only watched."""
    if not found.alerts:
        return ()
    name = found.alerts[0].job
    known = any(status.job.name == name for status in hf.jobs.list(home=home))
    return ("status", name, *next_step.home_words(home)) if known else ()


def spoken(event: AlertEvent) -> str:
    """Return an event as one line of text."""
    return f"{event.alert.job}: {'alert' if event.kind == 'firing' else 'alert resolved'}: {event.alert.text}"


def _show(found: JobAlerts) -> None:
    if found.alerts:
        output.line("active alerts:")
    output.table(
        ["JOB", "ALERT", "SEVERITY", "STATE", "SINCE", "SUMMARY"],
        [
            (
                alert.job,
                alert.rule,
                alert.as_dict()["severity"],
                alert.phase,
                output.moment(alert.since_ms),
                alert.text,
            )
            for alert in found.alerts
        ],
        below=["SUMMARY"],
        empty="no active alerts",
    )
    if found.events:
        output.line()
        output.line("newest events:")
        output.table(
            ["TIME", "JOB", "ALERT", "EVENT", "SUMMARY"],
            [
                (
                    output.moment(noted.event.at_ms),
                    noted.event.alert.job,
                    noted.event.alert.rule,
                    noted.event.kind,
                    noted.event.alert.text,
                )
                for noted in reversed(found.events)
            ],
            below=["SUMMARY"],
        )


def _check(path: Path, mark: str) -> None:
    """Check that a file to replace was written by `alerts export`."""
    try:
        ours = mark in path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError):
        ours = False
    if not ours:
        raise Conflict(
            "refusing to overwrite a file",
            code="HF-E4007",
            where=str(path),
            found="a file that `holdfast alerts export` did not write",
            hint="move the file, or name a different directory with --output",
        )


def _write(folder: Path, files: dict[str, str]) -> None:
    from holdfast.storage.local import LocalStorage

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(
            "the directory cannot be created",
            code="HF-E2114",
            where=str(folder),
            found=error.strerror or str(error),
            hint="name a different directory with --output",
        ) from error
    storage = LocalStorage(folder.resolve())
    for name, text in files.items():
        storage.write(name, text.encode(), replace=True)
