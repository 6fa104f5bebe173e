"""HTML of results for notebooks: tables, verdict colours and sparklines, without scripts or links.

Every value is escaped, so text from a checkpoint is never interpreted as HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from html import escape
from typing import Any, Final

from holdfast.quantities import rounded_duration, rounded_size

# The maximum number of rows of a table, and of characters of a value.
_MOST_ROWS: Final = 20
_MOST_CHARACTERS: Final = 200
# The minimum number of values of a sparkline.
_LEAST_POINTS: Final = 3
_WIDTH, _HEIGHT = 160, 24
_GOOD, _DOUBTFUL, _BAD = "#1a7f37", "#9a6700", "#cf222e"
# Words that are coloured as a verdict if they are a whole value.
_COLOURS: Final[Mapping[Any, str]] = {
    True: _GOOD,
    False: _BAD,
    "error": _BAD,
    "warning": _DOUBTFUL,
    "note": "inherit",
    "yes": _GOOD,
    "no": _BAD,
}
# The names of lists that are drawn as a sparkline.
_SERIES: Final = ("_ms", "_bytes", "rows")
# A number of milliseconds above this (2001) is a time and not a duration.
_FIRST_MOMENT_MS: Final = 1_000_000_000_000
_VERDICTS: Final = ("ok", "severity", "verdict")
# Values that are omitted.
_NOTHING: Final[tuple[Any, ...]] = (None, [], {}, "")
_CELL: Final = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"
_CELL_HTML: Final = f'<td style="{_CELL}">{{}}</td>'


def page(title: str, *parts: str) -> str:
    """Return HTML with a heading followed by the given parts."""
    return f'<div style="font-size:13px"><b>{escape(title)}</b>{"".join(parts)}</div>'


def of_document(name: str, document: Mapping[str, Any]) -> str:
    """Return the HTML of a result: its fields, then a table for each list of results that it contains.

    Args:
        name: The name of the class of the result.
        document: The JSON of the result.
    """
    simple = {key: value for key, value in document.items() if not _is_records(value)}
    parts = [fields(simple)]
    for key, value in document.items():
        if _is_records(value):
            parts += [f"<div style='margin-top:8px'>{escape(_words(key))}</div>", table(value)]
    return page(_words(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()), *parts)


def fields(document: Mapping[str, Any]) -> str:
    """Return a table of names and values."""
    rows = (
        _row((escape(_words(name)), _cell(name, value)))
        for name, value in document.items()
        if value not in _NOTHING
    )
    return f"<table>{''.join(rows)}</table>"


def table(records: Sequence[Mapping[str, Any]], *, columns: bool = False) -> str:
    """Return a table with a row for each record; columns without any value are left out.

    Args:
        records: The records.
        columns: Whether the names are columns of data, which are shown unchanged.
    """
    names = list(dict.fromkeys(name for record in records for name in record))
    names = [name for name in names if any(record.get(name) not in _NOTHING for record in records)]
    shown = names if columns else map(_words, names)
    head = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in shown)
    rows = (
        _row(
            escape(_shortened(record.get(name))) if columns else _cell(name, record.get(name))
            for name in names
        )
        for record in records[:_MOST_ROWS]
    )
    rest = len(records) - _MOST_ROWS
    more = f"<div>{rest:,} more</div>" if rest > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{more}"


def sparkline(values: Iterable[float], label: str) -> str:
    """Return a line chart of the values as SVG; empty for fewer than three values.

    Args:
        values: The values, oldest first.
        label: The description of the values for screen readers.
    """
    points = list(values)
    if len(points) < _LEAST_POINTS:
        return ""
    least, most = min(points), max(points)
    height = (most - least) or 1
    step = _WIDTH / (len(points) - 1)
    line = " ".join(
        f"{number * step:.1f},{_HEIGHT - 1 - (value - least) / height * (_HEIGHT - 2):.1f}"
        for number, value in enumerate(points)
    )
    text = escape(f"{label}: {least:,.6g} to {most:,.6g}")
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{text}"><title>{text}</title>'
        f'<polyline points="{line}" fill="none" stroke="currentColor"/></svg>'
    )


def _row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(map(_CELL_HTML.format, cells))}</tr>"


def _is_records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(part, dict) for part in value)


def _words(name: str) -> str:
    """Return the name of a field as words, without its unit, which the value shows; other names unchanged."""
    if not name.islower():
        return name
    for suffix in ("_ms", "_bytes"):
        name = name.removesuffix(suffix)
    return name.replace("_", " ").strip().capitalize()


def _cell(name: str, value: Any) -> str:
    if name in _VERDICTS and isinstance(value, (bool, str)) and value in _COLOURS:
        return f'<b style="color:{_COLOURS[value]}">{escape(_text(name, value))}</b>'
    if isinstance(value, dict) and all(isinstance(part, str) for part in value.values()):
        return escape(_shortened([f"{key} {part}" for key, part in value.items()]))
    if isinstance(value, dict):
        return fields(value)
    if _is_records(value):
        return table(value)
    if isinstance(value, list) and len(value) >= _LEAST_POINTS and name.endswith(_SERIES):
        return f"{sparkline(value, _words(name))} {escape(_text(name, value[-1]))}"
    return escape(_text(name, value))


def _text(name: str, value: Any) -> str:
    """Return a value with its unit; ids and batch numbers have no thousands separators."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif number and name.endswith("_bytes"):
        text = rounded_size(value)
    elif number and name.endswith("_ms"):
        text = _moment(value) if value > _FIRST_MOMENT_MS else rounded_duration(value)
    elif isinstance(value, int) and not name.endswith(("_id", "batch", "restorable")):
        text = f"{value:,}"
    elif isinstance(value, float):
        text = f"{value:,.6g}"
    else:
        text = _shortened(value)
    return text


def _moment(epoch_ms: float) -> str:
    return f"{datetime.fromtimestamp(epoch_ms // 1000, timezone.utc):%Y-%m-%d %H:%M:%S}Z"


def _shortened(value: Any) -> str:
    if value is None:
        return ""
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
