"""The interface between the state of a partition and the code that runs a processor over it.

The state layer reads the keys that a batch touches and passes them as `Touched`. A `Runner` calls the
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
    """The live elements of one list or map state, for all touched keys.

    Attributes:
        starts: The start of each key's elements, followed by the total: the elements of key i are the rows
            from starts[i] to starts[i + 1], in slot order.
        rows: A table with the columns `slot`, `k` (for a map), `v`, and `t` (with a TTL).
    """

    starts: NDArray[np.int64]
    rows: pa.Table


class Touched(Protocol):
    """The keys that one pass touches, in a fixed order, with their stored state."""

    @property
    def size(self) -> int:
        """Return the number of keys."""
        ...

    @property
    def keys(self) -> pa.Table:
        """Return the key columns under the user's names, one row per key."""
        ...

    def stored(self, column: str) -> pa.Array:
        """Return a column of the row table, one cell per key; null for a key without a value."""
        ...

    def elements(self, state: str) -> Elements:
        """Return the live elements of a list or map state; the first call reads them from the store."""
        ...


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The events of one stream in one pass, in the order of arrival, without late ones.

    Attributes:
        events: The events, with the columns of the stream.
        position: The index of each event's key among the touched keys.
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
        timed: Whether the processing time is known.
        replay: For a history, the event time that the watermark reaches after the last event of each key;
            None in a stream, where the watermark is that of the batch. See `Replay`.
    """

    now_ms: int
    watermark_ms: int | None
    batch_id: int | None
    timed: bool = True
    replay: int | None = None

    @property
    def event_time_ms(self) -> int | None:
        """Return the watermark, or None without one; Spark reports a missing watermark as 0."""
        return self.watermark_ms or None


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """An event that was set aside because its handler raised an error.

    Attributes:
        stream: The name of the event's stream.
        event: The columns of the event as plain Python values.
        error: The error message, on one line.
    """

    stream: str
    event: dict[str, Any]
    error: str


@dataclass(slots=True)
class Outcome:
    """The result of a pass: changes of state, output rows and failed events.

    Attributes:
        columns: The changed columns of the row table, one cell per touched key; a column that is absent did
            not change.
        elements: The writes to the side table of each list or map, with the columns `position`, `slot`,
            `dead`, `k` (for a map), `v`, and `t` (with a TTL). A slot is written at most once.
        output: The output rows, in the output's schema.
        failed: The events that were set aside.
    """

    columns: dict[str, pa.Array]
    elements: dict[str, pa.Table]
    output: pa.Table
    failed: list[FailedEvent] = field(default_factory=list)


class Shared(Protocol):
    """The rows of a broadcast stream, as handlers read them."""

    @property
    def by_key(self) -> Mapping[Any, Any]:
        """Return the rows by key."""
        ...

    @property
    def table(self) -> pa.Table:
        """Return all rows as a table, in the order of their first arrival."""
        ...


class Placing(Protocol):
    """A function that places keys into key groups, instead of their hash."""

    def moved(self, keys: pa.Table, h: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the hash of each key, moved into the range of the key's group."""
        ...

    def check(self, keys: pa.Table, h: NDArray[np.uint64]) -> None:
        """Check that the function still places keys into the groups in which they are stored."""
        ...


class Runner(Protocol):
    """A runner of one processor for the passes of a task."""

    def share(self, rows: Shared) -> None:
        """Set the rows of the broadcast stream that handlers read in later passes."""
        ...

    def run(self, arrivals: Sequence[Arrivals], touched: Touched, moment: Moment) -> Outcome:
        """Fire due timers, process the events of every stream, and return the changes of state and the
        output.

        `arrivals` has one entry per stream, in the order in which the streams are connected. The result
        depends on the arguments only: a runner does not read a clock or the environment and is not random.
        """
        ...
