"""Savepoints of the coffee shop while it runs: taken, restored elsewhere, and put next to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast import savepoints
from holdfast.savepoints.key_diff import KEYED

# The query whose state is saved: what is known of each customer.
QUERY: Final = "regulars"
# At these shares of its rows, so that there is something between the two.
MOMENTS: Final = (0.25, 0.75)
SAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class Known:
    """The values of a customer.

    Attributes:
        visits: How often he came.
        cents: What he spent.
    """

    visits: int
    cents: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A customer whose state is not the same in both savepoints; None where there is none.

    Attributes:
        customer: The customer.
        before: What was known of him in the first; None where nothing was.
        after: What is known of him in the second; None where nothing is.
    """

    customer: str
    before: Known | None
    after: Known | None


@dataclass(frozen=True, slots=True)
class Saved:
    """The saved savepoints, and how the two differ.

    Attributes:
        batches: The batches that they hold.
        size_bytes: The bytes of the second.
        new_bytes: Of these, the ones that the first had not stored.
        same: Whether the restored checkpoint has the state of the savepoint, key by key.
        added: Customers who came for the first time between the two.
        changed: Customers of whom more is known in the second.
        removed: Customers of whom nothing is known any more.
        seen: Some of them.
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
    """Takes savepoints of one query as a run continues.

    Args:
        folder: The folder of the showing.
        events: How many rows the query reads in all.
    """

    def __init__(self, folder: Path, events: int) -> None:
        self._folder = folder
        self._events = events
        self._rows = 0
        self._taken: list[savepoints.Taken] = []

    def hear(self, query: str, rows: int) -> None:
        """Take the next savepoint if its moment has come with this batch; the query runs on meanwhile."""
        if query != QUERY:
            return
        self._rows += rows
        number = len(self._taken)
        if number < len(MOMENTS) and self._rows >= MOMENTS[number] * self._events:
            self._take()

    def saved(self) -> Saved:
        """Restore the newest elsewhere, and say what changed from one to the other."""
        while len(self._taken) < len(MOMENTS):
            self._take()  # a driver that was killed may not have told of its last batch
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
