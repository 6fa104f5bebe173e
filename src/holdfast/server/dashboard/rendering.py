"""Rendering of views as HTML."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from holdfast.server.dashboard import chart_drawing, charts, figures
from holdfast.server.dashboard.chart_drawing import HoverArea
from holdfast.server.dashboard.charts import Chart, chart_table
from holdfast.server.dashboard.job_pages import short_address
from holdfast.server.dashboard.state_pages import shown_offset

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

_WINDOW: Final = {"start", "end"}
_TIMER: Final = {"name", "clock", "at_ms"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages load."""

    body: bytes
    media_type: str


@cache
def assets() -> Mapping[str, Asset]:
    """Return every file that pages load, by name."""
    folder = resources.files("holdfast.server.dashboard") / "static"
    return {
        file.name: Asset(file.read_bytes(), _TYPES[suffix])
        for file in folder.iterdir()
        if (suffix := file.name.rpartition(".")[2]) in _TYPES
    }


@cache
def assets_digest() -> str:
    """Return the digest in the addresses of assets, which lets browsers cache them forever."""
    digest = hashlib.sha256()
    for name, asset in sorted(assets().items()):
        digest.update(f"{name} {len(asset.body)}\n".encode() + asset.body)
    return digest.hexdigest()[:16]


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("holdfast.server.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    numbers = ("size", "count", "exact", "rate", "duration", "money", "share", "instant")
    made.filters.update({name: getattr(figures, name) for name in numbers})
    made.filters.update(
        segment=segment,
        plain=plain_text,
        offset=shown_offset,
        short=short_address,
        marked=marked,
    )
    made.globals.update(
        ago=ago,
        moment=moment,
        drawing=chart_drawing.drawing,
        hover_areas=hover_areas,
        chart_rows=chart_rows,
        spark=chart_drawing.spark,
        ranges=charts.RANGES,
        job_path=job_path,
        query=query_text,
        in_unit=in_unit,
        static=f"/static/{assets_digest()}",
    )
    return made


def render(template: str, **values: Any) -> str:
    """Render a page; all values are escaped."""
    return _environment().get_template(template).render(**values)


def segment(text: str) -> str:
    """Quote a text as one segment of a URL path."""
    return quote(text, safe="")


def job_path(job: Any, page: str = "") -> str:
    """Return the path of a job's page; a job whose name ends in `.json` is addressed by its id."""
    name = job.job_id if job.name.endswith(".json") else job.name
    return f"/ui/jobs/{segment(name)}{page}"


def query_text(**values: Any) -> str:
    """Return a query string with its question mark; None values are omitted."""
    given = {key: value for key, value in values.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def ago(at_ms: int | None, now_ms: int) -> Markup:
    """Render a relative time with the exact time as tooltip; scripts update the relative time."""
    if at_ms is None:
        return Markup(figures.NOTHING)  # noqa: S704 - our own
    return Markup('<time datetime="{}" title="{}" data-ms="{}">{}</time>').format(
        figures.machine_time(at_ms),
        figures.instant(at_ms),
        at_ms,
        figures.ago(at_ms, now_ms),
    )


def moment(at_ms: int | None) -> Markup:
    """Render a time; scripts convert it to the reader's time zone, with UTC as tooltip."""
    if at_ms is None:
        return Markup(figures.NOTHING)  # noqa: S704 - our own
    return Markup('<time datetime="{}" title="{}" data-ms="{}" data-clock>{} UTC</time>').format(
        figures.machine_time(at_ms), figures.instant(at_ms), at_ms, figures.clock(at_ms)
    )


# A page has thousands of these elements; joining texts takes a fifth of a template's time.
def hover_areas(areas: Iterable[HoverArea]) -> Markup:
    """Render the hover areas of a chart."""
    rects = (
        f'<rect class="hit" x="{area.x:g}" width="{area.width:g}" height="120" data-ms="{area.at_ms}">'
        f"<title>{escape(area.text)} · {figures.clock(area.at_ms)} UTC</title></rect>"
        for area in areas
    )
    return Markup("\n".join(rects))  # noqa: S704 - texts are escaped, all else are numbers


def chart_rows(shown: Sequence[Chart], time: str) -> Markup:
    """Render the rows of the table of all charts; empty without points.

    Args:
        shown: Charts with the same timeline.
        time: The name of the column of times.
    """
    labels = [f'<td class="n" data-label="{escape(each.title)}">' for each in shown]
    time_label = f'<td class="n" data-label="{escape(time)}">'
    rows = []
    for row in chart_table(shown):
        cells = "".join(
            f"{label}{escape(value)}</td>" for label, value in zip(labels, row.values, strict=True)
        )
        rows.append(
            f'<tr><th scope="row">{escape(row.batches)}</th>{time_label}{moment(row.at_ms)}</td>{cells}</tr>'
        )
    return Markup("\n".join(rows))  # noqa: S704 - every part is escaped


def marked(text: str) -> Markup:
    """Render a sentence with an initial capital and with text in backticks as code."""
    parts = text.split("`")
    parts[0] = parts[0][:1].upper() + parts[0][1:]
    if len(parts) % 2 == 0:
        return escape(text)
    shown = (
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )
    return Markup("").join(shown)


def plain_text(value: Any) -> str:
    """Format a value: text unchanged, a window by its ends, a timer with its time, others as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and set(value) == _WINDOW:
        return f"{_short_time(value['start'])} – {_short_time(value['end'])}"
    timers = value if isinstance(value, list) else [value]
    if timers and all(isinstance(timer, Mapping) and set(timer) == _TIMER for timer in timers):
        return ", ".join(
            f"{timer['name'] or 'timer'} due {figures.instant(timer['at_ms'])} ({timer['clock']} time)"
            for timer in timers
        )
    return json.dumps(value, ensure_ascii=False, default=str)


def _short_time(text: Any) -> str:
    """Shorten a UTC time in state by omitting trailing parts that are zero."""
    short = re.sub(r"[+]00:00$", "", str(text)).replace("T", " ")
    return re.sub(r":00$", "", short)


def in_unit(value: float | None, unit: str) -> str:
    """Format a number in the unit of a chart."""
    return figures.NOTHING if value is None else figures.BY_UNIT[unit](value)
