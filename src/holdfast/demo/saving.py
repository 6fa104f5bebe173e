"""Savepoints of the coffee shop while it runs: taken, restored elsewhere, and put beside each other."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from holdfast import savepoints
from holdfast.errors import Internal

# The query whose state is saved, and Spark's name for the operator in it that counts.
QUERY: Final = "visits"
COUNTING: Final = "stateStoreSave"
# At these shares of all rows: one before the driver is killed, one after.
MOMENTS: Final = (0.25, 0.75)
SAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """A customer whose state differs between the two savepoints."""

    customer: str
    day: str
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class Saved:
    """What became of the savepoints.

    Attributes:
        batches: The batches that they hold.
        bytes: The bytes of the second, and of these the ones that the first had not stored.
        same: Whether the restored checkpoint has the state of the savepoint, key by key.
        first: Customers who came for the first time between the two.
        again: Customers who came once more.
        seen: Some of them.
    """

    batches: tuple[int, int]
    bytes: tuple[int, int]
    same: bool
    first: int
    again: int
    seen: tuple[Seen, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


class Savepoints:
    """Takes savepoints of one query as a run goes on.

    Args:
        folder: The folder of the showing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._taken: list[savepoints.Taken] = []

    def at(self, share: float) -> None:
        """Take the next savepoint if its moment has come; the query runs on meanwhile."""
        number = len(self._taken)
        if number < len(MOMENTS) and share >= MOMENTS[number]:
            catalog = self._folder / "savepoints"
            self._taken.append(savepoints.take(self._folder / "checkpoint" / QUERY, catalog))

    def saved(self) -> Saved:
        """Restore the newest elsewhere, and say what changed from one to the other."""
        if len(self._taken) < len(MOMENTS):
            raise Internal("the day was over before its savepoints were taken")
        one, other = self._taken
        elsewhere = self._folder / "elsewhere" / QUERY
        savepoints.restore(other.uri, elsewhere)
        difference = savepoints.diff(one.uri, other.uri, samples=SAMPLES)
        (counted,) = (each for each in difference.states if each.state.operator.startswith(COUNTING))
        seen = sorted(
            (
                Seen(
                    str(sample.key["customer"]),
                    f"{sample.key['window']['start']:%Y-%m-%d}",
                    None if sample.first is None else int(sample.first["count"]),
                    int(sample.second["count"]),
                )
                for sample in counted.samples
                if sample.second is not None
            ),
            key=lambda each: (each.before is None, each.customer),
        )
        return Saved(
            batches=(one.manifest.batch_id, other.manifest.batch_id),
            bytes=(other.manifest.size_bytes, other.manifest.new_bytes),
            same=savepoints.diff(other.uri, elsewhere).same,
            first=counted.added,
            again=counted.changed,
            seen=tuple(seen),
        )
