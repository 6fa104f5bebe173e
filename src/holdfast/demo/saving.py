"""The savepoints of the running demo, which are taken, restored to a different directory, and compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast import savepoints
from holdfast.savepoints.key_diff import KEYED

# The query whose state is saved: one row per customer.
QUERY: Final = "regulars"
# The shares of its rows at which savepoints are taken.
MOMENTS: Final = (0.25, 0.75)
SAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class Known:
    """The state of a customer.

    Attributes:
        visits: The number of visits.
        cents: The amount spent, in cents.
    """

    visits: int
    cents: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A customer whose state differs between the savepoints.

    Attributes:
        customer: The customer.
        before: The state in the first savepoint; None without state.
        after: The state in the second savepoint; None without state.
    """

    customer: str
    before: Known | None
    after: Known | None


@dataclass(frozen=True, slots=True)
class Saved:
    """The two savepoints and their difference.

    Attributes:
        batches: The batches of the savepoints.
        size_bytes: The size of the second savepoint, in bytes.
        new_bytes: The bytes that the second savepoint does not share with the first.
        same: Whether the restored checkpoint has the same state as the savepoint, for each key.
        added: The number of customers only in the second savepoint.
        changed: The number of customers with different state.
        removed: The number of customers only in the first savepoint.
        seen: A sample of the customers that differ.
    """

    batches: tuple[int, int]
    size_bytes: int
    new_bytes: int
    same: bool
    added: int
    changed: int
    removed: int
    seen: tuple[Seen, ...]


class DemoSavepoints:
    """The savepoints of the query `QUERY`, each taken when it has read a share of its rows in `MOMENTS`.

    Args:
        folder: The directory of the demo.
        events: The number of rows that the query reads in total.
    """

    def __init__(self, folder: Path, events: int) -> None:
        self._folder = folder
        self._events = events
        self._rows = 0
        self._taken: list[savepoints.Taken] = []

    def hear(self, query: str, rows: int) -> None:
        """Take the next savepoint if this batch reaches its share of rows; the query keeps running."""
        if query != QUERY:
            return
        self._rows += rows
        number = len(self._taken)
        if number < len(MOMENTS) and self._rows >= MOMENTS[number] * self._events:
            self._take()

    def saved(self) -> Saved:
        """Restore the newest savepoint to a different directory, and compare the two savepoints."""
        while len(self._taken) < len(MOMENTS):
            self._take()  # a killed driver may not have reported its last batch
        one, other = self._taken
        elsewhere = self._folder / "elsewhere" / QUERY
        savepoints.restore(other.uri, elsewhere)
        difference = savepoints.diff(one.uri, other.uri, samples=SAMPLES)
        (customers,) = (state for state in difference.states if state.state.family == KEYED)
        changed = [key for key in customers.samples if key.change == "changed"]
        return Saved(
            batches=(one.manifest.batch_id, other.manifest.batch_id),
            size_bytes=other.manifest.size_bytes,
            new_bytes=other.manifest.new_bytes,
            same=savepoints.diff(other.uri, elsewhere).same,
            added=customers.added,
            changed=customers.changed,
            removed=customers.removed,
            seen=tuple(
                Seen(str(key.key), _parse_known(key.first), _parse_known(key.second))
                for key in changed or customers.samples[:SAMPLES]
            ),
        )

    def _take(self) -> None:
        checkpoint = self._folder / "checkpoint" / QUERY
        self._taken.append(savepoints.take(checkpoint, self._folder / "savepoints"))


def _parse_known(state: Mapping[str, Any] | None) -> Known | None:
    if state is None:
        return None
    days = state.get("days", {}).values()
    return Known(sum(day["visits"] for day in days), sum(day["cents"] for day in days))
