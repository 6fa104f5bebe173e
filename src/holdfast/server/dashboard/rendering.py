"""Views as HTML."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from holdfast.server.dashboard import figures
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
    """Every file that pages load, by name."""
    folder = resources.files("holdfast.server.dashboard") / "static"
    return {
        file.name: Asset(file.read_bytes(), _TYPES[suffix])
        for file in folder.iterdir()
        if (suffix := file.name.rpartition(".")[2]) in _TYPES
    }


@cache
def assets_digest() -> str:
    """Return the digest in the addresses of these files, which lets a browser keep them for good."""
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
        drawing=figures.drawing,
        spark=figures.spark,
        job_path=job_path,
        query=query_text,
        tell_unit=tell_unit,
        static=f"/static/{assets_digest()}",
    )
    return made


def render(template: str, **values: Any) -> str:
    """A page. What is put into it is escaped, whoever it came from."""
    return _environment().get_template(template).render(**values)


def segment(text: str) -> str:
    """A text as one part of a path."""
    return quote(text, safe="")


def job_path(job: Any, page: str = "") -> str:
    """The address of a page of a job; the id represents a name that would be read as a wish for JSON."""
    name = job.job_id if job.name.endswith(".json") else job.name
    return f"/ui/jobs/{segment(name)}{page}"


def query_text(**values: Any) -> str:
    """The part of an address behind the question mark, with it; what is None is left out."""
    given = {key: value for key, value in values.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def ago(at_ms: int | None, now_ms: int) -> Markup:
    """A time as it is told: how long ago, with the instant behind it; scripts keep it true."""
    if at_ms is None:
        return Markup(figures.NOTHING)  # noqa: S704 - our own
    return Markup('<time datetime="{}" title="{}" data-ms="{}">{}</time>').format(
        figures.machine_time(at_ms),
        figures.instant(at_ms),
        at_ms,
        figures.ago(at_ms, now_ms),
    )


def moment(at_ms: int | None) -> Markup:
    """An instant; scripts tell it in the reader's zone, and UTC stays behind it."""
    if at_ms is None:
        return Markup(figures.NOTHING)  # noqa: S704 - our own
    return Markup('<time datetime="{}" title="{}" data-ms="{}" data-clock>{} UTC</time>').format(
        figures.machine_time(at_ms), figures.instant(at_ms), at_ms, figures.clock(at_ms)
    )


def marked(text: str) -> Markup:
    """A sentence with what stands between backticks set as code, and a capital at its start."""
    parts = text.split("`")
    parts[0] = parts[0][:1].upper() + parts[0][1:]
    if len(parts) % 2 == 0:
        return escape(text)
    shown = (
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )
    return Markup("").join(shown)


def plain_text(value: Any) -> str:
    """A value as people read it: a text as it is, a window by its ends, a timer with its time, else JSON."""
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
    """A time of state, which is in UTC, without what is nought."""
    short = re.sub(r"[+]00:00$", "", str(text)).replace("T", " ")
    return re.sub(r":00$", "", short)


def tell_unit(value: float | None, unit: str) -> str:
    """A number in the unit of a chart."""
    return figures.NOTHING if value is None else figures.BY_UNIT[unit](value)
