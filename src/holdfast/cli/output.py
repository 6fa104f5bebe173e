"""The rendering of results: data on standard output, messages on standard error.

On a terminal, or with COLUMNS set, a table is fitted to the width: ids are cut to their shortest unambiguous
prefix, columns without a value are left out, and other values that do not fit are cut at their end. A number
is never cut. A single row, and rows whose words do not fit, are printed as names and values instead, with
nothing cut. In a pipe or a file, all columns and all values are printed.

Sentences are wrapped between words. Paths, addresses, commands in backticks and keys in quotes are never
split, so that they can be copied; one that is wider than the terminal is printed on its own line.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, Protocol, TextIO, TypeVar

from holdfast.cli import standard_streams
from holdfast.errors import HoldfastError

NOTHING: Final = "–"
CUT: Final = "…"
_BETWEEN: Final = 2
# The minimum width of a cut column; less of a value is not informative.
_LEAST: Final = 10
# The minimum width of a column that continues below.
_LEAST_BELOW: Final = 20
_USUAL_WIDTH: Final = 80
# A space at which lines are not broken, and the text that contains such spaces: commands and keys.
_STAYS: Final = "\x00"
_COPIED: Final = re.compile(r"`[^`]*`|(?<!\w)'[^']*'(?!\w)")
# The mark before a sentence, such as `ok`, under whose end the sentence continues.
_HEAD: Final = re.compile(r"\s*(?:(?:error|hint|note|warning|WARNING): |\S+ {2,})?")
# The minimum number of shown characters of an id: the second in a savepoint's id, eight digits of a UUID.
SAVEPOINT_ID: Final = len("20260305T080000")
UUID: Final = 8
SHA256: Final = 12


# Control characters, format characters (such as those that reverse text), line and paragraph separators, and
# lone surrogates.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape").decode()


class WholeText(str):
    """Text that is never cut, such as a time."""

    __slots__ = ()


def width(stream: TextIO | None = None) -> int | None:
    """Return the width of the terminal; None if nothing is cut.

    Args:
        stream: The stream to measure; None for standard output.
    """
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and int(given) > 0:
        return int(given)
    shown = stream or sys.stdout
    if not shown.isatty():
        return None
    try:
        return os.get_terminal_size(shown.fileno()).columns or _USUAL_WIDTH
    except OSError:
        return _USUAL_WIDTH


class _Column:
    """A column of a table, as text.

    Args:
        name: The heading.
        cells: The values.
        stays: Whether its values must not be cut.
    """

    def __init__(self, name: str, cells: list[str], stays: bool) -> None:
        self.name = name
        self.cells = cells
        self.is_empty = all(text in {"", NOTHING} for text in cells)
        self.is_number = bool(cells) and all(map(_is_number, cells))
        self.width = max(map(_width, (name, *cells)))
        # The minimum width of the column.
        self.least = self.width if stays or self.is_number else min(self.width, max(_width(name), _LEAST))

    @cached_property
    def longest_word(self) -> int:
        """Return the width of the longest word, which is not split if the values continue below."""
        words = (word for text in (self.name, *self.cells) for word in _joined(text).split())
        return max(map(_width, words), default=0)


def table_lines(
    headers: Sequence[str],
    rows: Iterable[Sequence[Any]],
    room: int | None,
    ids: Mapping[str, int] | None = None,
    spare: Sequence[str] = (),
    below: Sequence[str] = (),
) -> list[str]:
    """Return the lines of a table; numbers are right-aligned.

    Args:
        headers: The names of the columns.
        rows: The values.
        room: The maximum width; None for no limit.
        ids: Columns of ids, each with the minimum number of characters to show.
        spare: Columns that are omitted from a table of several rows if space is short, in this order.
        below: Columns whose values continue on the next line instead of being cut.
    """
    given = [list(row) for row in rows]
    columns = [
        _column(name, [row[place] for row in given], None if room is None else (ids or {}).get(name))
        for place, name in enumerate(headers)
    ]
    if room is None or not given:
        return _grid(columns, [column.width for column in columns])
    shown = columns = [column for column in columns if not column.is_empty]
    left_out: list[str] = []
    waiting = list(spare)
    while _total(column.width for column in shown) > room:
        if not waiting or len(given) == 1:
            if len(given) == 1 or _total(_least(column, below) for column in shown) > room:
                return _records(columns, room)
            break
        spared = waiting.pop(0)
        left_out += [column.name for column in shown if column.name == spared]
        shown = [column for column in shown if column.name != spared]
    note = broken(f"(columns hidden for lack of space: {', '.join(left_out)})", room) if left_out else []
    return [*_grid(shown, _fitted(shown, room, below), below), *note]


def broken(text: str, room: int | None, indent: str = "", below: str = "") -> list[str]:
    """Wrap a sentence into lines without splitting words or text in quotes or backticks.

    Args:
        text: The sentence.
        room: The maximum length of a line; None for no limit.
        indent: The indent of the first line.
        below: The indent of each further line.
    """
    if room is None:
        return [f"{indent}{text}"]
    parts = textwrap.wrap(
        _joined(text),
        max(room, len(indent) + _LEAST),
        initial_indent=indent,
        subsequent_indent=below,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [part.replace(_STAYS, " ") for part in parts] or [""]


def _joined(text: str) -> str:
    """Return a text with the spaces replaced at which it is not wrapped."""
    return _COPIED.sub(lambda copied: copied[0].replace(" ", _STAYS), text)


def broken_text(text: str, room: int | None) -> list[str]:
    """Wrap each line of a text; continuation lines keep the indent of their line."""
    lines: list[str] = []
    for line in text.split("\n"):
        if room is None or _width(line) <= room:
            lines.append(line)
            continue
        head = _HEAD.match(line)
        begun = head[0] if head and len(head[0]) <= room // 2 else ""
        below = " " * (len(begun) + (0 if begun.strip() else _BETWEEN))
        lines += broken(line[len(begun) :], room, begun, below)
    return lines


def field_lines(pairs: Iterable[tuple[str, Any]], room: int | None, indent: str = "") -> list[str]:
    """Return aligned lines of names and values; a long value continues below its start."""
    listed = [(name, cell(value)) for name, value in pairs]
    longest = max((_width(name) for name, _ in listed), default=0)
    lines = []
    for name, value in listed:
        head = f"{indent}{_padded(name, longest)}  "
        parts = [value]
        if room is not None and room - len(head) > _LEAST:
            parts = broken(value, room - len(head))
        lines += [f"{head if first else ' ' * len(head)}{part}".rstrip() for first, part in _marked(parts)]
    return lines


def cell(value: Any) -> str:
    """Return a value as one line of text."""
    if value is None:
        return NOTHING
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return visible(str(value))


def visible(text: str, keep: str = "", escape: Callable[[str], str] = _escape) -> str:
    """Escape invisible characters in text: those that move the cursor, or reverse or hide text.

    Args:
        text: The text.
        keep: Characters that are not escaped, such as line ends.
        escape: The function that returns the escape of a character.
    """
    if text.isprintable():
        return text
    return "".join(
        escape(sign) if unicodedata.category(sign) in _UNSEEN and sign not in keep else sign for sign in text
    )


def _marked(parts: list[str]) -> Iterable[tuple[bool, str]]:
    return ((number == 0, part) for number, part in enumerate(parts))


def _column(name: str, values: list[Any], shortest: int | None) -> _Column:
    cells = [cell(value) for value in values]
    if shortest is not None and cells:
        cells = shortened(cells, shortest)
    return _Column(name, cells, shortest is not None or any(isinstance(value, WholeText) for value in values))


def shortened(ids: list[str], least: int) -> list[str]:
    """Return the shortest prefixes that distinguish the ids."""
    whole = set(ids)
    longest = max(map(len, whole))
    length = next(
        (length for length in range(least, longest) if len({text[:length] for text in whole}) == len(whole)),
        longest,
    )
    return [text[:length] for text in ids]


def _least(column: _Column, below: Sequence[str]) -> int:
    if column.name not in below:
        return column.least
    return min(column.width, max(_LEAST_BELOW, column.longest_word))


def _fitted(columns: list[_Column], room: int, below: Sequence[str]) -> list[int]:
    """Return the column widths with which a table fits, by narrowing the widest text columns."""
    widths, least = [column.width for column in columns], [_least(column, below) for column in columns]
    while _total(widths) > room:
        wider = (place for place in range(len(widths)) if widths[place] > least[place])
        widths[max(wider, key=widths.__getitem__)] -= 1
    return widths


def _grid(columns: list[_Column], widths: list[int], below: Sequence[str] = ()) -> list[str]:
    lines = []
    for row in zip(*((column.name, *column.cells) for column in columns), strict=True):
        parts = [
            broken(text, width) if column.name in below and _width(text) > width else [_cut(text, width)]
            for text, column, width in zip(row, columns, widths, strict=True)
        ]
        for several in itertools.zip_longest(*parts, fillvalue=""):
            cells = (
                _padded(text, width, right=column.is_number)
                for text, column, width in zip(several, columns, widths, strict=True)
            )
            lines.append((" " * _BETWEEN).join(cells).rstrip())
    return lines


def _records(columns: list[_Column], room: int) -> list[str]:
    lines: list[str] = []
    for row in zip(*(column.cells for column in columns), strict=True):
        lines += [""] if lines else []
        lines += field_lines(zip((column.name for column in columns), row, strict=True), room)
    return lines


def _total(widths: Iterable[int]) -> int:
    listed = list(widths)
    return sum(listed) + _BETWEEN * (len(listed) - 1)


def _padded(text: str, most: int, *, right: bool = False) -> str:
    blank = " " * (most - _width(text))
    return blank + text if right else text + blank


def _cut(text: str, most: int) -> str:
    if _width(text) <= most:
        return text
    text = text[:most]
    while _width(text) >= most:
        text = text[:-1]
    return f"{text}{CUT}"


def _width(text: str) -> int:
    """Return the width of a text on a terminal: two per East Asian character, zero per combining accent."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in text
    )


def _is_number(text: str) -> bool:
    digits = text.replace(",", "").replace(".", "").lstrip("-").removesuffix("%")
    return digits.isdigit() or text == NOTHING


_documents: list[Any] | None = None


@contextmanager
def collected() -> Iterator[list[Any]]:
    """Collect the JSON documents that verbs inside this block would print."""
    global _documents  # noqa: PLW0603 - one value per process, like standard output
    before, documents = _documents, list[Any]()
    _documents = documents
    try:
        yield documents
    finally:
        _documents = before


def emit_json(value: Any) -> None:
    """Print a JSON document on one line; invisible characters are escaped as in JSON."""
    if _documents is not None:
        _documents.append(value)
        return
    text = json.dumps(value, ensure_ascii=not standard_streams.is_unicode())
    whole(visible(text, escape=lambda sign: json.dumps(sign)[1:-1]))


class VerbOutput(Protocol):
    """The result of a verb."""

    def as_dict(self) -> Mapping[str, Any]:
        """Return the result as plain values for JSON."""


# Characters that are kept in text of several lines, because they move the cursor only forward.
_IN_TEXT: Final = "\n\t"
_quiet = False

T = TypeVar("T", bound=VerbOutput)


def show(value: T, json: bool, render: Callable[[T], None]) -> None:
    """Print a value as JSON or as text."""
    if json:
        emit_json(value.as_dict())
    else:
        render(value)


def show_plan(plan: T, json: bool, render: Callable[[T], None], *, dry_run: bool = True) -> None:
    """Print a plan or its result; the JSON field `dry_run` distinguishes the two."""
    if json:
        emit_json({"dry_run": dry_run, **plan.as_dict()})
    else:
        render(plan)


def compact(value: Any, longest: int | None = 200) -> str:
    """Return a value as JSON on one line, cut to `longest` characters unless that is None."""
    text = json.dumps(value, ensure_ascii=False)
    return text if longest is None or len(text) <= longest else f"{text[: longest - 1]}{CUT}"


def whole(text: str) -> None:
    """Print a line without wrapping, such as a file name, a command or JSON."""
    sys.stdout.write(f"{visible(text, _IN_TEXT)}\n")
    sys.stdout.flush()


def line(text: str = "") -> None:
    """Print a line of the result, wrapped between words at the terminal's width."""
    for part in broken_text(visible(text, _IN_TEXT), width()):
        whole(part)


def prose(text: str, indent: str = "") -> None:
    """Print a sentence of the result; further lines are indented."""
    for part in broken(visible(text, _IN_TEXT), width(), indent, f"{indent}  "):
        whole(part)


def say(text: str, stream: TextIO | None = None) -> None:
    """Print a message unless --quiet is set, by default on standard error."""
    if not quiet():
        insist(text, stream)


def insist(text: str, stream: TextIO | None = None) -> None:
    """Print a message even if --quiet is set: an error, a warning, or the subject of a question."""
    lines = broken_text(visible(text, _IN_TEXT), width(stream or sys.stderr))
    standard_streams.say("\n".join([*lines, ""]), stream)


def quiet() -> bool:
    """Return whether --quiet is set."""
    return _quiet


def be_quiet(wanted: bool) -> None:
    """Turn --quiet on or off."""
    global _quiet  # noqa: PLW0603 - one value per process, like standard error
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
    """Print a table; if there are no rows, print only the headers or `empty`.

    Args:
        headers: The names of the columns.
        rows: The values.
        ids: Columns of ids, each with the minimum number of characters to show.
        spare: Columns that are omitted from a table of several rows if space is short, in this order.
        below: Columns whose values continue on the next line instead of being cut.
        empty: The text printed instead of the headers if there are no rows, except in a pipe.
    """
    listed = list(rows)
    room = width()
    if empty is not None and not listed and room is not None:
        line(empty)
        return
    for text in table_lines(headers, listed, room, ids, spare, below):
        whole(text)


def fields(pairs: Iterable[tuple[str, Any]], indent: str = "") -> None:
    """Print aligned lines of names and values."""
    for text in field_lines(pairs, width(), indent):
        whole(text)


def report_error(error: HoldfastError, *, as_json: bool) -> None:
    """Print an error on standard error, and with `--json` also on standard output."""
    if as_json:
        emit_json(error.as_dict())
    insist(f"error: {error}")


def duration(ms: int | None) -> str:
    """Return a duration as text, or a dash for None."""
    from holdfast.quantities import rounded_duration

    return NOTHING if ms is None else WholeText(rounded_duration(ms))


def moment(ms: int | None, *, in_utc: bool = False) -> str:
    """Return an instant to the second, in local time with its UTC offset; `Z` is UTC.

    Args:
        ms: The instant in epoch milliseconds; None is shown as a dash.
        in_utc: Whether to add the UTC time.
    """
    import datetime as dt

    if ms is None:
        return NOTHING
    try:
        utc = dt.datetime.fromtimestamp(ms / 1000, dt.timezone.utc)
        local = utc.astimezone()
    except (OverflowError, ValueError, OSError):
        return f"{ms:,} ms since 1970"  # before year 1 or after year 9999, such as Spark's maximum time
    if not local.utcoffset():
        return WholeText(f"{utc:%Y-%m-%d %H:%M:%S}Z")
    offset = local.strftime("%z")
    text = f"{local:%Y-%m-%d %H:%M:%S}{offset[:3]}" + (f":{offset[3:5]}" if offset[3:5] != "00" else "")
    return WholeText(f"{text} ({utc:%Y-%m-%d %H:%M:%S}Z)" if in_utc else text)
