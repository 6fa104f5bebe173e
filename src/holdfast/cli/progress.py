"""Progress of a long command: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.cli import output

Advance = Callable[[float, str], None]

_STEPS = 4


@contextmanager
def progress(what: str, unit: str) -> Iterator[Advance]:
    """Show how far something is; the body calls `advance(share, note)` with a share from 0 to 1."""
    if sys.stderr.isatty():
        with _bar(what) as advance:
            yield advance
    else:
        yield _lines(what, unit)


@contextmanager
def _bar(what: str) -> Iterator[Advance]:
    from rich.console import Console  # noqa: PLC0415 - only on a terminal
    from rich.progress import (  # noqa: PLC0415 - only on a terminal
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=1.0, note="")
        yield lambda share, note: bar.update(task, completed=share, note=note)


def _lines(what: str, unit: str) -> Advance:
    reached, told = 0, ""

    def advance(share: float, note: str) -> None:
        nonlocal reached, told
        step = int(share * _STEPS)
        if step > reached or note != told:
            reached, told = max(step, reached), note
            output.say(f"{what}: {share:.0%} of {unit}" + (f", {note}" if note else ""))

    return advance
