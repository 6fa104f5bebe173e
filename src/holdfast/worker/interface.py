"""The interface between the state of a partition and the code that runs a processor over it.

The state layer finds the keys that a batch touches and passes them as `Touched`; a `Runner` calls the
processor and returns an `Outcome`, which the state layer then stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


VALUE_PREFIX = "s:"
STAMP_PREFIX = "t:"
SLOT_PREFIX = "n:"
TIMERS = "timers"
DUE_EVENT = "due:event"
DUE_PROCESSING = "due:processing"


@dataclass(frozen=True, slots=True)
class Elements:
    """All live elements of one list or map, of all touched keys.

    Attributes:
        starts: One more than there are keys: the elements of key i are the rows starts[i] to
            starts[i + 1], in slot order.
        rows: Columns `slot`, `k` (of a map), `v`, `t` (with a TTL).
    """

    starts: NDArray[np.int64]
    rows: pa.Table


class Touched(Protocol):
    """The keys that one pass touches, in a fixed order, with their stored state."""

    @property
    def size(self) -> int:
        """The number of keys."""
        ...

    @property
    def keys(self) -> pa.Table:
        """The key columns under the user's names, one row a key."""
        ...

    def stored(self, column: str) -> pa.Array:
        """Return a column of the row table, one cell per key, null without a value."""
        ...

    def elements(self, state: str) -> Elements:
        """Return all live elements of a list or map; the first call reads them."""
        ...


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The events of one stream in one pass, in the order of arrival, without late ones.

    Attributes:
        events: The columns of the stream.
        position: The touched key of each event.
    """

    events: pa.Table
    position: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a pass.

    Attributes:
        now_ms: The batch's processing time in epoch milliseconds, constant within a batch; 0 if unknown.
        watermark_ms: The batch's watermark in epoch milliseconds, or None without one.
        batch_id: The id of the batch, or None if unknown.
        timed: True if the processing time is known.
    """

    now_ms: int
    watermark_ms: int | None
    batch_id: int | None
    timed: bool = True

    @property
    def event_time_ms(self) -> int | None:
        """The event time: the watermark, or None without one, which Spark reports as 0."""
        return self.watermark_ms or None


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """An event that was set aside after an error.

    Attributes:
        stream: The name of its stream.
        event: Its columns as plain Python values.
        error: The error, in one line.
    """

    stream: str
    event: dict[str, Any]
    error: str


@dataclass(slots=True)
class Outcome:
    """The result of a pass.

    Attributes:
        columns: The changed columns of the row table, one cell for each touched key; a missing column did
            not change.
        elements: The writes to the side table of each list or map: columns `position`, `slot`, `dead`,
            `k` (of a map), `v`, `t` (with a TTL). A slot is written at most once.
        output: The output rows, in the output's schema.
        failed: The events set aside.
    """

    columns: dict[str, pa.Array]
    elements: dict[str, pa.Table]
    output: pa.Table
    failed: list[FailedEvent] = field(default_factory=list)


class Shared(Protocol):
    """The rows of a broadcast stream as the handlers read them."""

    @property
    def by_key(self) -> Mapping[Any, Any]:
        """The rows by key."""
        ...

    @property
    def table(self) -> pa.Table:
        """All rows, in the order of their first arrival."""
        ...


class Placing(Protocol):
    """A placement of keys into groups by a function instead of their hash."""

    def moved(self, keys: pa.Table, h: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the hashes of keys, each moved into the range of the key's group."""
        ...

    def check(self, keys: pa.Table, h: NDArray[np.uint64]) -> None:
        """Check that the placement still assigns keys to the group that stores them."""
        ...


class Runner(Protocol):
    """A runner of one processor over the passes of a task."""

    def share(self, rows: Shared) -> None:
        """Set the rows of the broadcast stream for the handlers of later passes."""
        ...

    def run(self, arrivals: Sequence[Arrivals], touched: Touched, moment: Moment) -> Outcome:
        """Fire due timers, process the events of every stream, and return the changes.

        `arrivals` has one entry per stream, in the order in which the streams are connected. The result
        depends on the arguments only: a runner reads no clock, environment or randomness.
        """
        ...
