"""What the leader of a job puts down for its successors, at the place of the elections.

Supervisors on several machines need no disk in common for it. It is small, and says only what another state
home could not know: whether the job has begun or ended, what it was asked for, and where its checkpoints are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from holdfast.checkpoints.guard.machine import ProcessIdentity
from holdfast.errors import Unsupported
from holdfast.formats.text import foreign_json
from holdfast.model import JobState, QueryStarted
from holdfast.plain_values import from_known

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class QueryPlace:
    """Where a query keeps its state.

    Attributes:
        checkpoint: The address of its checkpoint.
        query_id: The id that Spark has written there.
    """

    checkpoint: str
    query_id: str


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """A job as its leader knows it.

    Attributes:
        holder: The supervisor that wrote it: host and process.
        checkpoint: The job's checkpoint.
        begun_ms: When the job was begun, by this leader or one before it.
        ran: Whether its queries have started since. If so, their checkpoints have been made.
        queries: Where each query keeps its state, by name.
        driver: The driver that this leader started last.
        request: `stop` or `cancel`, once somebody has asked for that.
        resigned: Whether the leader has given the job up by itself.
        state: How the job has ended; None while it has not.
        reason: Why it has ended.
    """

    holder: str
    checkpoint: str
    begun_ms: int
    ran: bool = False
    queries: Mapping[str, QueryPlace] = field(default_factory=dict)
    driver: ProcessIdentity | None = None
    request: str | None = None
    resigned: bool = False
    state: JobState | None = None
    reason: str | None = None

    def render(self) -> bytes:
        """For the place of the elections."""
        return json.dumps({"format": FORMAT, **asdict(self)}).encode()

    @classmethod
    def parse(cls, data: bytes, where: str) -> LeaderRecord:
        """What `render` wrote. Fields that a later version has added are passed over.

        Raises:
            Unsupported: A later version of Holdfast wrote it in a way that this one cannot read.
        """
        try:
            values: dict[str, Any] = foreign_json(data)
            if values["format"] != FORMAT:
                raise ValueError(f"format {values['format']}")
            return from_known(cls, values)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Unsupported(
                "what the job's leader has put down for its successors cannot be read",
                where=where,
                found=str(error),
                expected=f"format {FORMAT}",
                hint="run the same version of Holdfast everywhere",
            ) from error


def places_of(queries: Sequence[QueryStarted]) -> dict[str, QueryPlace]:
    """Where queries that have been started keep their state."""
    return {query.name: QueryPlace(query.checkpoint, query.query_id) for query in queries}
