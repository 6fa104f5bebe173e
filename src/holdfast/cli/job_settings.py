"""The settings of a job as a table: the name, the value and the effect of each."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Final

from holdfast.cli import output
from holdfast.jobs.loader import settings_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.config.setting_report import SettingReport
    from holdfast.jobs.definition import Job

_HEADERS: Final = ("SETTING", "VALUE", "EFFECT")
# The minimum width of the effects; a narrower terminal shows names and values below each other.
_LEAST: Final = 20
# The place between two assignments of Spark settings.
_NEXT_ASSIGNMENT: Final = re.compile(r", (?=spark\.)")


def setting_names(job: Job) -> list[str]:
    """Return the dotted names of a job's settings, such as `checkpoint.retain`, in the order of its reports.

    Names that are dotted already, such as those of Flink, stay as they are.
    """
    return [
        knob.name if "." in knob.name else f"{group}.{knob.name}"
        for group, knobs in settings_of(job).items()
        for knob in knobs
    ]


def effect(knob: SettingReport) -> str:
    """Return the effect of a setting: a Spark setting with its value, a rule, or `no effect`."""
    return knob.becomes or "no effect"


def show_settings(named: Iterable[tuple[str, SettingReport]]) -> None:
    """Print a table of settings; an effect that does not fit is printed below its row, its names unbroken."""
    rows = [(name, knob.value, effect(knob)) for name, knob in named]
    room = output.width()
    names, values = (max(len(row[place]) for row in (_HEADERS, *rows)) for place in (0, 1))
    beside = 0 if room is None else room - names - values - 4
    if room is None or beside < _LEAST:
        output.table(_HEADERS, rows)
        return
    for name, value, text in (_HEADERS, *rows):
        head = f"{name.ljust(names)}  {value.ljust(values)}"
        if max(map(len, text.split())) <= beside:
            for number, part in enumerate(textwrap.wrap(text, beside)):
                output.whole(f"{' ' * len(head) if number else head}  {part}")
        else:
            output.whole(head.rstrip())
            for assignment in _NEXT_ASSIGNMENT.split(text):
                for part in output.broken(assignment, room, "  ", "    "):
                    output.whole(part)
