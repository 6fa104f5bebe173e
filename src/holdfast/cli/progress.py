"""Progress of a long command: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.cli import output

Advance = Callable[[int, int, str], None]

_STEPS = 4


@contextmanager
def progress(what: str, unit: str) -> Iterator[Advance]:
    """Show how far something is; the body calls `advance(done, total, note)`."""
    if sys.stderr.isatty():
        with _bar(what, unit) as advance:
            yield advance
    else:
        yield _lines(what, unit)


@contextmanager
def _bar(what: str, unit: str) -> Iterator[Advance]:
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

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, note="")
        yield lambda done, total, note: bar.update(task, completed=done, total=total, note=note)


def _lines(what: str, unit: str) -> Advance:
    reached, told = 0, ""

    def advance(done: int, total: int, note: str) -> None:
        nonlocal reached, told
        step = _STEPS * done // max(total, 1)
        if step > reached or note != told:
            reached, told = max(step, reached), note
            output.say(f"{what}: {done:,} of {total:,} {unit}" + (f", {note}" if note else ""))

    return advance
