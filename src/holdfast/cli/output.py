"""Render what commands return: data to standard output, words to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TextIO, TypeVar

from holdfast.cli import standard_streams
from holdfast.errors import HoldfastError


def emit_json(value: Any) -> None:
    """One JSON document, or one line of many."""
    line(json.dumps(value, ensure_ascii=not standard_streams.is_unicode()))


class Shown(Protocol):
    """What a verb has worked out."""

    def as_dict(self) -> Mapping[str, Any]:
        """Plain values for JSON."""


T = TypeVar("T", bound=Shown)


def show(value: T, json: bool, render: Callable[[T], None]) -> None:
    """A value as JSON, or as a person reads it."""
    if json:
        emit_json(value.as_dict())
    else:
        render(value)


def show_plan(plan: T, json: bool, render: Callable[[T], None], *, dry_run: bool = True) -> None:
    """The same of what would be done, or has been done: the JSON says which of both."""
    if json:
        emit_json({"dry_run": dry_run, **plan.as_dict()})
    else:
        render(plan)


def compact(value: Any, longest: int = 200) -> str:
    """A value as JSON in one line, its end left out where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def line(text: str = "") -> None:
    """A line of data."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def say(text: str, stream: TextIO | None = None) -> None:
    """A line of words, on standard error unless another stream is given."""
    standard_streams.say(f"{text}\n", stream)


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Aligned columns; numbers to the right. Empty is not an error: the headers stand alone."""
    body = [[_cell(value) for value in row] for row in rows]
    widths = [max([len(header), *(len(row[i]) for row in body)]) for i, header in enumerate(headers)]
    right = [bool(body) and all(_is_number(row[i]) for row in body) for i in range(len(headers))]
    for row in [list(headers), *body]:
        cells = [
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        ]
        line("  ".join(cells).rstrip())


def fields(pairs: Iterable[tuple[str, Any]], indent: str = "") -> None:
    """Names and values, one a line, the values under each other."""
    listed = [(name, _cell(value)) for name, value in pairs]
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        line(f"{indent}{name.ljust(width)}  {value}".rstrip())


def report_error(error: HoldfastError, *, as_json: bool) -> None:
    """The one shape of an error; with `--json` the same facts stand on standard output too."""
    if as_json:
        emit_json(error.as_dict())
    say(f"error: {error}")


def duration(ms: int | None) -> str:
    """A duration for people; nothing is a dash."""
    from holdfast.config.units import rounded_duration

    return "–" if ms is None else rounded_duration(ms)


def moment(ms: int | None) -> str:
    """An instant in UTC, to the second."""
    import datetime as dt

    if ms is None:
        return "–"
    return dt.datetime.fromtimestamp(ms / 1000, dt.timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").lstrip("-").isdigit() or text == "–"
