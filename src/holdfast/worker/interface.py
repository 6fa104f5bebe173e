"""The interface between the state of a partition and the code that runs a processor over it.

The state layer finds the keys that a batch touches and shows them as `Touched`; a `Runner` calls the
processor and returns an `Outcome`, which the state layer then keeps. Neither knows how the other works.
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
    """The keys that one pass touches, in a fixed order, and what is stored for them."""

    @property
    def size(self) -> int:
        """The number of keys."""
        ...

    @property
    def keys(self) -> pa.Table:
        """The key columns under the user's names, one row a key."""
        ...

    def stored(self, column: str) -> pa.Array:
        """A column of the row table, one cell a key, null where there is none."""
        ...

    def elements(self, state: str) -> Elements:
        """All live elements of a list or map; the first call reads them."""
        ...


@dataclass(frozen=True, slots=True)
class Arrivals:
    """One stream's events in one pass, in the order of arrival, without those that came late.

    Attributes:
        events: The user's columns.
        position: Which touched key each event belongs to.
    """

    events: pa.Table
    position: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a pass.

    Attributes:
        now_ms: The batch's processing time, one value for the whole batch; 0 where it is not known.
        watermark_ms: The batch's watermark, or None where the stream has none.
        batch_id: Spark's number of the batch, where it is known.
        timed: Whether the processing time is known.
    """

    now_ms: int
    watermark_ms: int | None
    batch_id: int | None
    timed: bool = True

    @property
    def event_time_ms(self) -> int | None:
        """The event time: the watermark, or None as long as there is none, which Spark gives as 0."""
        return self.watermark_ms or None


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """An event that was set aside because the processor could not take it.

    Attributes:
        stream: The name of the stream that it came in.
        event: Its columns as plain Python values.
        error: What went wrong, in one line.
    """

    stream: str
    event: dict[str, Any]
    error: str


@dataclass(slots=True)
class Outcome:
    """The result of a pass.

    Attributes:
        columns: The changed columns of the row table, one cell for each touched key; a column that
            is left out did not change.
        elements: Per list or map the writes to its side table: columns `position`, `slot`, `dead`,
            `k` (of a map), `v`, `t` (with a TTL). A slot is written at most once.
        output: The rows for downstream, in the output's schema.
        failed: Events set aside.
    """

    columns: dict[str, pa.Array]
    elements: dict[str, pa.Table]
    output: pa.Table
    failed: list[FailedEvent] = field(default_factory=list)


class Shared(Protocol):
    """The rows of a broadcast stream as the handlers read them."""

    @property
    def by_key(self) -> Mapping[Any, Any]:
        """Each row by its key."""
        ...

    @property
    def table(self) -> pa.Table:
        """All rows, in the order of their first arrival."""
        ...


class Placing(Protocol):
    """A placement of keys into groups by something other than their hash."""

    def moved(self, keys: pa.Table, h: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The hashes of keys, each brought into the range of the group where the key is to be."""
        ...

    def check(self, keys: pa.Table, h: NDArray[np.uint64]) -> None:
        """Refuse keys that are in another group than they would be placed in now."""
        ...


class Runner(Protocol):
    """Runs one processor over one pass after another of the same task."""

    def share(self, rows: Shared) -> None:
        """Let the handlers of the passes from now on read these rows of the broadcast stream."""
        ...

    def run(self, arrivals: Sequence[Arrivals], touched: Touched, moment: Moment) -> Outcome:
        """Fire what is due, take in the events of every stream, return what changed.

        `arrivals` has one entry a stream, in the order in which the streams are connected. The same
        arguments give the same outcome: a runner reads no clock, environment or randomness.
        """
        ...
