"""What drills have measured, beside the savepoints that they were made with.

A drill is a file of its own in the catalog, `drills/<moment>-<chance>.json`: it is there whole or not at all,
two drills at the same time do not get into each other's way, and object stores, which cannot append, keep it
too.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.errors import NotFound
from holdfast.formats.text import foreign_json
from holdfast.json_shapes import JsonShape, in_json, json_as
from holdfast.storage.port import Storage

DRILLS: Final = "drills"
# A drill is slow if it took so many times the median of the ones before it, of which so many count.
GROWTH: Final = 1.5
COMPARED: Final = 5
_NAME = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[0-9a-f]{8}\.json")


@dataclass(frozen=True, slots=True)
class Drill(JsonShape):
    """One drill.

    Attributes:
        at_ms: When it was made.
        savepoint: The savepoint.
        query_id: Its query.
        size_bytes: The bytes of the savepoint.
        job: The job that was started on it; None where files alone were looked at.
        empty: Whether the first batch had to do without input.
        phases_ms: What each phase took, in their order; recovery is the sum of them.
        load_ms: What the tasks of the first batch took together to load state; a part of it.
    """

    at_ms: int
    savepoint: str
    query_id: str
    size_bytes: int = field(metadata=json_as(formerly="bytes"))
    job: str | None
    empty: bool
    phases_ms: Mapping[str, int]
    load_ms: int | None = field(metadata=json_as(formerly="state_load_ms"))

    @property
    @in_json
    def recovery_ms(self) -> int:
        """From the decision to recover to the first committed batch."""
        return sum(self.phases_ms.values())

    def is_like(self, other: Drill) -> bool:
        """Whether the two measured the same: the same query, with the same job or both without one."""
        return (self.query_id, self.job) == (other.query_id, other.job)


def note(catalog: Storage, drill: Drill, chance: bytes) -> None:
    """Write a drill down.

    Args:
        catalog: The catalog.
        drill: The drill.
        chance: Four random bytes or more, for drills of the same millisecond.

    Raises:
        Unavailable: The catalog cannot be written.
    """
    moment = dt.datetime.fromtimestamp(drill.at_ms / 1000, dt.timezone.utc)
    stamp = f"{moment:%Y%m%dT%H%M%S}.{drill.at_ms % 1000:03}Z"
    catalog.write(f"{DRILLS}/{stamp}-{chance[:4].hex()}.json", json.dumps(drill.as_dict()).encode())


def drills(catalog: Storage) -> tuple[Drill, ...]:
    """All drills of a catalog, oldest first; a file that cannot be read as one is passed over.

    Raises:
        Unavailable: The catalog does not answer.
    """
    names = sorted(name for name in catalog.list(DRILLS).names if _NAME.fullmatch(name))
    found = (_read(catalog, name) for name in names)
    return tuple(drill for drill in found if drill is not None)


def usual_ms(earlier: Iterable[Drill], drill: Drill) -> int | None:
    """What the drills before a drill took, in the median of the last few like it; None if there were none."""
    alike = [former.recovery_ms for former in earlier if former.is_like(drill)]
    return int(statistics.median(alike[-COMPARED:])) if alike else None


def has_grown(earlier: Sequence[Drill], drill: Drill) -> bool:
    """Whether recovery takes much longer than it did."""
    usual = usual_ms(earlier, drill)
    return usual is not None and drill.recovery_ms > GROWTH * usual


def _read(catalog: Storage, name: str) -> Drill | None:
    try:
        given = foreign_json(catalog.read(f"{DRILLS}/{name}"))
        return Drill(
            at_ms=int(given["at_ms"]),
            savepoint=str(given["savepoint"]),
            query_id=str(given["query_id"]),
            size_bytes=int(given["bytes"]),
            job=given["job"],
            empty=bool(given["empty"]),
            phases_ms={str(phase): int(ms) for phase, ms in given["phases_ms"].items()},
            load_ms=given["state_load_ms"],
        )
    except (NotFound, ValueError, TypeError, KeyError, AttributeError):
        return None
