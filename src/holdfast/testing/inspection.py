"""What a harness has stored, for tests that look below states and timers: groups, blobs, counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.worker.declarations.processor import Definition
from holdfast.worker.interface import Moment
from holdfast.worker.lane import Lane
from holdfast.worker.state.partition import Partition
from holdfast.worker.state.store import MemoryStore


@dataclass(frozen=True, slots=True)
class Inspection:
    """A harness as it stands after its last batch.

    Attributes:
        store: The records and blobs of all key groups. A change to it is a change to the harness's state.
        lane: How events travel to the state, and the layout of the state.
        definition: What the processor declares.
        moment: The clocks and the number of the next batch.
        partition: Makes the partition that the next batch would work on; no group of it is open.
    """

    store: MemoryStore
    lane: Lane
    definition: Definition
    moment: Moment
    partition: Callable[[], Partition]
