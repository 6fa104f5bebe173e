"""What fixes an operator's state: its states and their tables, its key groups, and what a worker may use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.worker.state.group_numbers import EVEN, Numbering

if TYPE_CHECKING:
    from holdfast.worker.declarations.state_descriptors import State
    from holdfast.worker.interface import Placing
    from holdfast.worker.state.blob_schema import BlobSchema


_TTL = ("ttl_ms", "clock", "on_disable")


@dataclass(frozen=True, slots=True)
class Period:
    """A time through which an operator's state had one form. A form that comes back has another period.

    Attributes:
        mark: The form's fingerprint, as text.
        since_ms: When the first run with it began; None where nobody noted it.
        states: What the form's states were declared as.
    """

    mark: str
    since_ms: int | None
    states: Mapping[str, Mapping[str, Any]] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Layout:
    """What fixes an operator's state.

    Attributes:
        operator: The user's name of it.
        key_groups: How many groups there are.
        states: Today's states, with that of a broadcast stream.
        form: Their tables.
        key_names: The user's names of the key columns.
        drop: Former states that may be thrown away; "timers" for the timers of a processor that has none.
        started_ms: When this run of the query began, from which values without a stamp are counted.
        memory_bytes: What a worker may use for one pass, about.
        placement: What decides a key's group, where its hash does not.
        numbering: How the groups are stored.
        periods: The forms that its state has had, today's last; empty where nobody noted them.
    """

    operator: str
    key_groups: int
    states: tuple[State, ...]
    form: BlobSchema
    key_names: tuple[str, ...]
    drop: tuple[str, ...] = ()
    started_ms: int = 0
    memory_bytes: int = 256 << 20
    placement: Placing | None = None
    numbering: Numbering = EVEN
    periods: tuple[Period, ...] = ()


def continued(periods: Sequence[Period], layout: Layout) -> tuple[Period, ...]:
    """The periods once there was a start with this layout."""
    mark = layout.form.fingerprint.hex()
    if periods and periods[-1].mark == mark:
        return tuple(periods)
    return (*periods, Period(mark, layout.started_ms, layout.form.states))


def periods_as_text(periods: Sequence[Period]) -> str:
    """Periods with what is said of times to live, for `periods_from_text`."""
    return json.dumps(
        [
            (
                period.mark,
                period.since_ms,
                {
                    name: {word: declared[word] for word in _TTL if word in declared}
                    for name, declared in period.states.items()
                },
            )
            for period in periods
        ]
    )


def periods_from_text(text: str) -> tuple[Period, ...]:
    """Read back what `periods_as_text` wrote."""
    return tuple(Period(*fields) for fields in json.loads(text))
