"""What a rescale of a running job moves where, and how others see that it is under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.config.locations import local_path
from holdfast.errors import Internal, Unsupported
from holdfast.jobs.operations.operation_context import no_such_query
from holdfast.jobs.processes.child_spec import ChildSpec
from holdfast.model import QueryStarted
from holdfast.storage.file_lock import FileLock


@dataclass(frozen=True, slots=True)
class Move:
    """One query's checkpoint, and the one that takes its place.

    Attributes:
        query: The query.
        checkpoint: Its checkpoint, where the job looks for it.
        made: Where the new one is made; the two change places, and the old one is here for a moment.
        kept: Where the old one stays.
        partitions: How many partitions the new one has.
    """

    query: str
    checkpoint: str
    made: str
    kept: str
    partitions: int


@dataclass(frozen=True, slots=True)
class RescaleSpec(ChildSpec):
    """What the process that rescales does.

    Attributes:
        job: The job.
        moves: What it makes.
        log: The file for what Spark says.
        master: Where Spark runs.
    """

    job: str
    moves: tuple[Move, ...]
    log: str
    master: str | None


def moves_of(
    operation_id: str, wanted: Mapping[str, int], queries: Mapping[str, QueryStarted]
) -> tuple[Move, ...]:
    """Where everything goes. Names hold the operation, so that nobody else's are taken for them.

    Raises:
        Invalid: A query is named that the job does not have.
        Unsupported: A checkpoint is not on a local disk.
    """
    moves = []
    for query, partitions in wanted.items():
        if query not in queries:
            raise no_such_query(query, queries)
        place = local_path(queries[query].checkpoint)
        if place is None:
            raise Unsupported(
                "a running job is rescaled only where its checkpoint is on a local disk",
                where=queries[query].checkpoint,
                found=queries[query].checkpoint.partition(":")[0],
                expected="file",
                hint="stop the job, rescale its checkpoint with `holdfast rescale --stopped`, and run it"
                " on that",
            )
        mark = operation_id[:12]
        moves.append(
            Move(
                query,
                f"file://{place}",
                f"file://{place.with_name(f'{place.name}.rescale-{mark}')}",
                f"file://{place.with_name(f'{place.name}.before-{mark}')}",
                partitions,
            )
        )
    return tuple(moves)


def moves_from(steps: Mapping[str, Any]) -> tuple[Move, ...]:
    """The moves that an operation has noted."""
    return tuple(Move(**move) for move in steps.get("moves", ()))


def life_of(home: Path, job: str) -> FileLock:
    """What a job's rescaling process holds as long as it lives."""
    return FileLock(home / "jobs" / job / "rescale.lock")


def place_of(uri: str) -> Path:
    """A local checkpoint's directory.

    Raises:
        Internal: It is on no local disk, which was checked when the rescale was asked for.
    """
    place = local_path(uri)
    if place is None:
        raise Internal("this checkpoint is not on a local disk", where=uri)
    return place
