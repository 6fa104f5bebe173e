"""What fixes an operator's state: its states and their tables, its key groups, and what a worker may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.worker.state.group_numbers import EVEN, Numbering

if TYPE_CHECKING:
    from holdfast.worker.declarations.state_descriptors import State
    from holdfast.worker.interface import Placing
    from holdfast.worker.state.blob_schema import BlobSchema


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
