"""Progress of a long command: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from holdfast.cli import output

Advance = Callable[[int, int, str], None]

_LINES = 4
STEPS = "steps"


@contextmanager
def progress(what: str, unit: str, stream: TextIO | None = None) -> Iterator[Advance]:
    """Show how far something is; the body calls `advance(done, total, note)`.

    Args:
        what: The verb.
        unit: What is counted.
        stream: Where to show it, where it is not standard error.
    """
    shown = stream or sys.stderr
    if shown.isatty():
        with _bar(what, unit, shown) as advance:
            yield advance
    else:
        yield _lines(what, unit, shown)


@contextmanager
def _bar(what: str, unit: str, stream: TextIO) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f} {unit}/s" if task.speed else "")

    # Steps differ in length, so neither their rate nor the time that is left says anything.
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        *(() if unit == STEPS else (Rate(),)),
        TimeElapsedColumn(),
        *(() if unit == STEPS else (TimeRemainingColumn(),)),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(file=stream), transient=True) as bar:
        task = bar.add_task(what, total=None, note="")
        yield lambda done, total, note: bar.update(task, completed=done, total=total, note=note)


def _lines(what: str, unit: str, stream: TextIO) -> Advance:
    reached, told = 0, ""

    def advance(done: int, total: int, note: str) -> None:
        nonlocal reached, told
        step = _LINES * done // max(total, 1)
        if step > reached or note != told:
            reached, told = max(step, reached), note
            output.say(f"{what}: {done:,} of {total:,} {unit}" + (f", {note}" if note else ""), stream)

    return advance
