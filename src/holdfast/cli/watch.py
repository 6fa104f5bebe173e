"""`holdfast watch`: record and measure a query that runs elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.alerts import spoken as alert_line
from holdfast.cli.arguments import Checkpoint, checkpoint_of
from holdfast.cli.help_text import examples
from holdfast.cli.stop import until_stopped
from holdfast.clock import now_ms
from holdfast.config.checks import place_word
from holdfast.errors import Conflict, Corrupt, HoldfastError, Invalid, Unavailable
from holdfast.quantities import counted

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.checkpoints.record import Noting, Recorder
    from holdfast.config.alert_settings import Alerts
    from holdfast.jobs.checkpoint_watch import CheckpointWatch
    from holdfast.observe.alerting import AlertEvent
    from holdfast.storage.port import Storage


@examples("checkpoints/visits --once", "checkpoints/visits --metrics-port 9400 --alert state_size=50g")
def watch(
    checkpoint: Checkpoint,
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="The interval between checks for new batches.")
    ] = "1s",
    once: Annotated[bool, typer.Option("--once", help="Record what is committed now, then exit.")] = False,
    anew: Annotated[
        bool,
        typer.Option("--reset", help="Discard the existing record and start one from the present files."),
    ] = False,
    metrics_port: options.MetricsPort = None,
    alert: Annotated[
        list[str] | None,
        typer.Option(
            "--alert", metavar="KEY=VALUE", help="An alert threshold or address, such as state_size=5g."
        ),
    ] = None,
    name: options.QueryName = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Write an integrity record of a checkpoint as batches commit, for `holdfast checkpoint verify`.

    The record has the hash of each file. Alerts that files can show are reported: size and growth of state,
    skew, the format. Ends with Ctrl-C. Jobs under `holdfast run` are recorded and watched without this.
    """
    from holdfast.checkpoints.record import Recorder, RecordFile, in_use, record_path
    from holdfast.config.units import parse_duration
    from holdfast.storage import open_storage

    every_ms = parse_duration(every, "--every")
    alerts = alerts_of(alert)
    storage = open_storage(checkpoint_of(checkpoint, home))
    _require_checkpoint(storage)
    place = options.settings(home).ensure_home().resolve()
    file = RecordFile(record_path(place, storage.uri))
    if not file.lock():
        raise in_use(file.path)
    try:
        recorder = Recorder(storage, file)
        _begin(recorder, storage, anew=anew)
        _tell(storage, recorder.look(), json, first=True)
        if not once:
            with measured(storage, place, name, alerts, metrics_port, json) as watched:
                _follow(recorder, storage, every_ms / 1000, json, watched)
    finally:
        file.unlock()
    homes = next_step.home_words(home)
    next_step.say_looked_up(json, lambda: ("checkpoint", "verify", next_step.typed(storage.uri), *homes))


def _require_checkpoint(storage: Storage) -> None:
    from holdfast import layout
    from holdfast.checkpoints.problems import no_checkpoint

    if storage.size(layout.METADATA) is None and not storage.list(layout.OFFSETS).names:
        raise no_checkpoint(storage)


def _begin(recorder: Recorder, storage: Storage, *, anew: bool) -> None:
    """Continue the record, or start a new one if the checkpoint is undamaged."""
    from holdfast.checkpoints.verification.verifying import verify

    if recorder.begin(anew=anew):
        return
    problems = verify(storage).problems
    if problems:
        recorder.discard()
        raise Corrupt(
            "the checkpoint is damaged, so no integrity record was started",
            code="HF-E6017",
            where=f"{storage.uri}/{problems[0].file}",
            found=problems[0].what,
            hint=f"list all damage with `holdfast checkpoint verify {place_word(storage.uri)}`",
        )


def alerts_of(given: list[str] | None) -> Alerts:
    """Parse the alert thresholds and receivers on the command line.

    Raises:
        Invalid: A name is unknown, or a value is not valid.
    """
    wanted = options.pairs("--alert", given)
    known = list(hf.Alerts().as_dict())
    if wrong := [name for name in wanted if name not in known]:
        raise Invalid(
            "unknown alert",
            code="HF-E2155",
            where="--alert",
            found=", ".join(wrong),
            expected=", ".join(known),
            hint="write --alert KEY=VALUE, such as state_size=5g",
        )
    values: dict[str, Any] = dict(wanted)
    if "job_failed" in values:
        values["job_failed"] = values["job_failed"].lower() not in ("off", "false")
    return hf.Alerts(**values)


@contextmanager
def measured(
    storage: Storage, home: Path, name: str | None, alerts: Alerts, port: int | None, json: bool
) -> Iterator[CheckpointWatch]:
    """Serve metrics while the verb runs; the body calls `say_alerts` regularly."""
    from holdfast.jobs.checkpoint_watch import CheckpointWatch
    from holdfast.observe.prometheus import MetricsServer

    called = name or storage.uri.rstrip("/").rsplit("/", 1)[-1]
    watched = CheckpointWatch(storage, called, alerts, home, now_ms)
    server = None if port is None else MetricsServer(watched.samples, port)
    if server is not None:
        if json:
            output.emit_json({"event": "serving", "url": server.url})
        output.say(f"serving metrics at {server.url}")

    try:
        say_alerts(watched, json)
        yield watched
    finally:
        _tell_alerts(watched.close(), json)
        if server is not None:
            server.close()


def say_alerts(watched: CheckpointWatch, json: bool) -> None:
    """Look at the checkpoint's files, and print the alerts that begin or end."""
    _tell_alerts(watched.look(), json)
    for notice in watched.heard():
        output.insist(f"error: {notice.text}")


def _tell_alerts(events: Iterable[AlertEvent], json: bool) -> None:
    for event in events:
        if json:
            output.emit_json({**event.as_dict(), "text": alert_line(event)})
        else:
            output.line(alert_line(event))


def _follow(
    recorder: Recorder, storage: Storage, every_s: float, json: bool, watched: CheckpointWatch
) -> None:
    told: str | None = None
    with until_stopped() as stopped:
        while not stopped.wait(every_s):
            try:
                _tell(storage, recorder.look(), json)
                say_alerts(watched, json)
                told = None
            except (Unavailable, Corrupt, Conflict) as error:  # noqa: PERF203 - the wait is longer
                told = say_error(error, told, json)


def _tell(storage: Storage, noting: Noting, json: bool, *, first: bool = False) -> None:
    if not (noting.files or noting.batches or first):
        return
    if json:
        output.emit_json({"event": "noted", "checkpoint": storage.uri, **noting.as_dict()})
    elif noting.batch_id is None:
        output.line("no batch committed yet")
    elif noting.behind:
        output.line(
            f"batch {noting.batch_id}: the commit log ends before the record; nothing is recorded until the"
            " next commit"
        )
    else:
        output.line(
            f"batch {noting.batch_id}: {counted(noting.files, 'file')} recorded, {noting.size_bytes:,} bytes"
        )


def say_error(error: HoldfastError, told: str | None, json: bool) -> str:
    """Print an error unless it equals the last one printed; return its text."""
    text = str(error)
    if text != told:
        if json:
            output.emit_json({"event": "error", **error.as_dict()})
        output.insist(f"error: {text}")
    return text
