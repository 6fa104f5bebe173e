"""The progress of a long command: a bar on a terminal, otherwise a line per phase; hidden by --quiet."""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from holdfast.cli import output
from holdfast.quantities import counted

Advance = Callable[[int, int, str], None]

STEPS = "steps"
# The unit of each phase that counts other things than the verb, and the words before the amount.
_PHASES: Final = {
    "hashing": ("files", "hashing"),
    "reading files": ("files", "reading"),
    "copying": ("files", "copying"),
    "reading back": ("files", "reading back"),
    "deleting": ("files", "deleting"),
    "writing": ("files", "writing"),
    "reading state": ("stores", "reading state of"),
    "writing state": ("stores", "writing state of"),
    "reading rows": ("stores", "reading rows of"),
    "writing stores": ("stores", "writing"),
    "looking for rows": ("partitions", "searching"),
    "reading batches": ("batches", "reading"),
    "reading partitions": ("partitions", "reading"),
    "searching": ("savepoints", "searching"),
    "erasing": ("savepoints", "erasing from"),
}


@contextmanager
def progress(what: str, unit: str, stream: TextIO | None = None) -> Iterator[Advance]:
    """Show the progress of a verb; the body calls `advance(done, total, note)`.

    Args:
        what: The name of the verb.
        unit: The unit of the count.
        stream: The stream to write to; None for standard error.
    """
    shown = stream or sys.stderr
    if output.quiet():
        yield _nothing
    elif shown.isatty() and os.environ.get("TERM") != "dumb":
        with _bar(what, unit, shown) as advance:
            yield advance
    else:
        yield _lines(what, unit, shown)


def _nothing(_done: int, _total: int, _note: str) -> None:
    """Ignore progress."""


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
    )
    from rich.table import Column
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            things = _unit(task.fields["note"], unit)
            return Text(f"{task.speed:,.0f} {things}/s" if task.speed else "")

    class Left(ProgressColumn):
        def render(self, task: Task) -> Text:
            left = task.time_remaining
            return Text("" if left is None else f"{dt.timedelta(seconds=int(left))} left")

    # Steps differ in length, so a rate and a remaining time would be misleading.
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        *(() if unit == STEPS else (Rate(table_column=Column(no_wrap=True)),)),
        TimeElapsedColumn(),
        *(() if unit == STEPS else (Left(table_column=Column(no_wrap=True)),)),
        TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
    )
    with Progress(*columns, console=Console(file=stream), transient=True) as bar:
        task = bar.add_task(what, total=None, note="")
        yield lambda done, total, note: bar.update(task, completed=done, total=total, note=note)


def _unit(note: str, unit: str) -> str:
    return _PHASES[note][0] if note in _PHASES else unit


def _singular(unit: str) -> str:
    return unit.removesuffix("es") if unit.endswith("ches") else unit.removesuffix("s")


def _lines(what: str, unit: str, stream: TextIO) -> Advance:
    """Return a callback that prints a line at the start of each phase, with its name and amount of work."""
    told: set[str] = set()

    def advance(done: int, total: int, note: str) -> None:
        if note in told:
            return
        told.add(note)
        things = unit if unit == STEPS else _unit(note, unit)
        amount = "" if things == STEPS or total < 1 else counted(total, _singular(things))
        if amount and note in _PHASES:
            text = f"{_PHASES[note][1]} {amount}"
        else:
            if amount and done:
                amount = f"{done:,} of {amount}"  # an event during a phase
            text = ", ".join(part for part in (note, amount) if part) or "started"
        output.say(f"{what}: {text}", stream)

    return advance
