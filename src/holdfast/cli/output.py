"""Render what commands return: data to standard output, words to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TextIO, TypeVar

from holdfast.cli import standard_streams, tables
from holdfast.errors import HoldfastError


def emit_json(value: Any) -> None:
    """One JSON document, or one line of many; what is not seen is escaped as JSON has it."""
    text = json.dumps(value, ensure_ascii=not standard_streams.is_unicode())
    whole(tables.visible(text, escape=lambda sign: json.dumps(sign)[1:-1]))


class Shown(Protocol):
    """What a verb has worked out."""

    def as_dict(self) -> Mapping[str, Any]:
        """Plain values for JSON."""


# What text of several lines holds, and moves the cursor only forward.
_IN_TEXT: Final = "\n\t"
_quiet = False

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


def compact(value: Any, longest: int | None = 200) -> str:
    """A value as JSON in one line, its end left out where it is longer than that; with None it is whole."""
    text = json.dumps(value, ensure_ascii=False)
    return text if longest is None or len(text) <= longest else f"{text[: longest - 1]}{tables.CUT}"


def whole(text: str) -> None:
    """A line that stays in one piece: a file's name, a command to be copied, a line of a file, JSON."""
    sys.stdout.write(f"{tables.visible(text, _IN_TEXT)}\n")
    sys.stdout.flush()


def line(text: str = "") -> None:
    """A line of the answer, broken between words where the terminal ends."""
    for part in tables.broken_text(tables.visible(text, _IN_TEXT), tables.width()):
        whole(part)


def prose(text: str, indent: str = "") -> None:
    """A sentence of the answer that goes on with an indent where the terminal ends."""
    for part in tables.broken(tables.visible(text, _IN_TEXT), tables.width(), indent, f"{indent}  "):
        whole(part)


def say(text: str, stream: TextIO | None = None) -> None:
    """A line of words, on standard error unless another stream is given; not with --quiet."""
    if not quiet():
        insist(text, stream)


def insist(text: str, stream: TextIO | None = None) -> None:
    """The same of what even --quiet does not silence: errors, warnings, and what a question is about."""
    lines = tables.broken_text(tables.visible(text, _IN_TEXT), tables.width(stream or sys.stderr))
    standard_streams.say("\n".join([*lines, ""]), stream)


def quiet() -> bool:
    """Whether this call was given --quiet."""
    return _quiet


def be_quiet(wanted: bool) -> None:
    """Note whether this call was given --quiet."""
    global _quiet  # noqa: PLW0603 - as standard error is one for the process, so is this
    _quiet = wanted


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[Any]],
    ids: Mapping[str, int] | None = None,
    spare: Sequence[str] = (),
    below: Sequence[str] = (),
    *,
    empty: str | None = None,
) -> None:
    """A table as `tables` lays it out. Empty is not an error.

    Args:
        headers: The names of the columns.
        rows: The values.
        ids: Columns of ids, each with the fewest characters that are to be shown of one.
        spare: Columns that several rows do without where there is little room, the first one first.
        below: Columns whose values go on in lines below instead of being cut.
        empty: What stands for the headers where there is no row, but in a pipe.
    """
    listed = list(rows)
    room = tables.width()
    if empty is not None and not listed and room is not None:
        line(empty)
        return
    for text in tables.table_lines(headers, listed, room, ids, spare, below):
        whole(text)


def fields(pairs: Iterable[tuple[str, Any]], indent: str = "") -> None:
    """Names and values, one a line, the values under each other."""
    for text in tables.field_lines(pairs, tables.width(), indent):
        whole(text)


def report_error(error: HoldfastError, *, as_json: bool) -> None:
    """The one shape of an error; with `--json` the same facts stand on standard output too."""
    if as_json:
        emit_json(error.as_dict())
    insist(f"error: {error}")


def duration(ms: int | None) -> str:
    """A duration for people; nothing is a dash."""
    from holdfast.config.units import rounded_duration

    return tables.NOTHING if ms is None else tables.Whole(rounded_duration(ms))


def moment(ms: int | None, *, in_utc: bool = False) -> str:
    """An instant to the second, in local time with its offset from UTC; `Z` stands for no offset.

    Args:
        ms: Since 1970; None is a dash.
        in_utc: Whether it is to stand there in UTC as well.
    """
    import datetime as dt

    if ms is None:
        return tables.NOTHING
    try:
        utc = dt.datetime.fromtimestamp(ms / 1000, dt.timezone.utc)
        local = utc.astimezone()
    except (OverflowError, ValueError, OSError):
        return f"{ms:,} ms since 1970"  # before the year 1 or after 9999, such as Spark's greatest time
    if not local.utcoffset():
        return tables.Whole(f"{utc:%Y-%m-%d %H:%M:%S}Z")
    offset = local.strftime("%z")
    text = f"{local:%Y-%m-%d %H:%M:%S}{offset[:3]}" + (f":{offset[3:5]}" if offset[3:5] != "00" else "")
    return tables.Whole(f"{text} ({utc:%Y-%m-%d %H:%M:%S}Z)" if in_utc else text)
