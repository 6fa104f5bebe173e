"""`holdfast status --watch`: a job while it runs, drawn anew on a terminal, line by line elsewhere."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.cli import output
from holdfast.cli.sparkline import sparkline
from holdfast.cli.until_stopped import until_stopped
from holdfast.config.units import counted

if TYPE_CHECKING:
    from rich.text import Text

    from holdfast.jobs.registry.client import JobDetails
    from holdfast.model import BatchProgress
    from holdfast.observe.alerting import Alert

EVERY_S = 1.0
HISTORY = 120
_LEAST_WIDTH = 10
# Room for the names and numbers beside the bars.
_BESIDE = 34


@dataclass(frozen=True, slots=True)
class Look:
    """A job at one moment."""

    details: JobDetails
    alerts: tuple[Alert, ...]


def follow(look: Callable[[], Look], *, json: bool) -> None:
    """Show a job until it ends, or until Ctrl-C."""
    with until_stopped() as stopped:
        if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not json:
            _draw(look, stopped)
        else:
            _lines(look, stopped, json=json)


def _lines(look: Callable[[], Look], stopped: threading.Event, *, json: bool) -> None:
    """A line for each batch, each change of the job's state, and each alert that comes or goes."""
    seen: dict[str, int] = {}
    former: Look | None = None
    while True:
        now = look()
        for change in _changes(former, now, seen):
            if json:
                output.emit_json(change)
            else:
                output.line(str(change["text"]))
        former = now
        if now.details.status.job.state.terminal or stopped.wait(EVERY_S):
            return


def _changes(former: Look | None, now: Look, seen: dict[str, int]) -> Iterable[Mapping[str, Any]]:
    job = now.details.status.job
    if former is None or former.details.status.job.state is not job.state:
        yield {"event": "state", "text": f"{job.name}: {job.state.value}", **now.details.status.as_dict()}
    before = {alert.key: alert for alert in former.alerts} if former is not None else {}
    after = {alert.key: alert for alert in now.alerts}
    for key in after.keys() - before.keys():
        yield _alert("alert", f"{job.name}: alert: {after[key].text}", after[key])
    for key in before.keys() - after.keys():
        yield _alert("cleared", f"{job.name}: alert over: {before[key].text}", before[key])
    batches = now.details.batches if former is not None else now.details.newest()
    for batch in batches:
        if batch.batch_id > seen.get(batch.query, -1):
            seen[batch.query] = batch.batch_id
            yield {"event": "batch", "text": _batch_line(batch), **batch.as_dict()}


def _alert(event: str, text: str, alert: Alert) -> Mapping[str, Any]:
    return {**alert.as_dict(), "event": event, "text": text}


def _batch_line(batch: BatchProgress) -> str:
    from holdfast.config.units import rounded_size
    from holdfast.observe.operator_numbers import state_bytes

    state = f", {batch.state_text}, {rounded_size(state_bytes(batch))}" if batch.operators else ""
    late = f", {batch.late_rows:,} late" if batch.late_rows else ""
    took = output.duration(batch.duration_ms)
    return f"{batch.query} batch {batch.batch_id}: {counted(batch.input_rows, 'row')} in {took}{state}{late}"


def _draw(look: Callable[[], Look], stopped: threading.Event) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            now = look()
            live.update(_text(now, console.width), refresh=True)
            if now.details.status.job.state.terminal or stopped.wait(EVERY_S):
                return


def _text(now: Look, width: int) -> Text:
    from rich.text import Text

    colours = {"alert": "bold red", "bars": "cyan", "name": "bold", "": ""}
    made = Text(no_wrap=True, overflow="ellipsis")
    for line in screen(now, width):
        for style, part in line:
            made.append(part, colours[style])
        made.append("\n")
    return made


def screen(now: Look, width: int) -> list[list[tuple[str, str]]]:
    """What is drawn: lines of parts, each with what it is.

    Args:
        now: The job.
        width: How many characters fit beside each other.
    """
    from holdfast.jobs.registry.client import describe

    job = now.details.status.job
    lines: list[list[tuple[str, str]]] = [[("name", job.name), ("", f"  {describe(now.details.status)}")]]
    room = max(width - _BESIDE, _LEAST_WIDTH)
    for query in now.details.queries:
        history = [earlier for earlier in now.details.batches if earlier.query == query.name]
        lines += [[("", "")], [("name", query.name)]]
        lines += _query(history, room) if history else [[("", "  no batch yet")]]
    if now.alerts:
        lines.append([("", "")])
        lines += [[("alert", f"alert  {alert.text}")] for alert in now.alerts]
    return lines


def _query(history: list[BatchProgress], room: int) -> list[list[tuple[str, str]]]:
    from holdfast.config.units import rounded_size
    from holdfast.observe.operator_numbers import state_bytes

    newest = history[-1]
    rates = [batch.input_rows * 1000 / max(batch.duration_ms, 1) for batch in history]
    rows: list[tuple[str, str, list[float]]] = [
        ("batch", output.duration(newest.duration_ms), [float(batch.duration_ms) for batch in history]),
        ("rows/s", f"{rates[-1]:,.0f}", rates),
    ]
    if newest.operators:
        sizes = [float(state_bytes(batch)) for batch in history]
        rows.append(("state", rounded_size(sizes[-1]), sizes))
        counted = [float(batch.state_rows) for batch in history if batch.state_rows is not None]
        known = "unknown" if newest.state_rows is None else f"{newest.state_rows:,}"
        rows.append(("state rows", known, counted))
    made = [
        [("", f"  {name:<11}{value:>14}  "), ("bars", sparkline(values, room))]
        for name, value, values in rows
    ]
    watermark = f", watermark {newest.watermark}" if newest.watermark else ""
    late = sum(batch.late_rows for batch in history)
    made.append([("", f"  batch {newest.batch_id}, {late:,} late rows{watermark}")])
    return made
