"""The rescale that a leader has begun, as its record names it for later leaders of the job.

The leader records the new checkpoints before it creates them, and once more when all of them are whole: with
this second record, the rescale is decided. A record counts only if no later leader was elected before it was
written, so every later leader reads the decision if the leader that wrote it may act on it. It finishes a
decided rescale and discards any other. See docs/decisions/rescale-by-record.md.

A suspended leader may act on its decision at any later moment. On S3 and HDFS the publication succeeds once.
On a shared disk each leader first renames the new directory to a name with its own term, and exchanges by
this name only, so that an earlier leader finds nothing to exchange.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.checkpoints.checkpoint import read
from holdfast.config.checks import local_path
from holdfast.errors import Conflict, HoldfastError, Internal, NotFound
from holdfast.ownership.election import LeadershipLost
from holdfast.savepoints.restoring import withdraw
from holdfast.storage import open_storage
from holdfast.storage.atomic_swap import exchange
from holdfast.storage.local import flush_folder
from holdfast.storage.successors import (
    is_published,
    parse_successor,
    publish_successor,
    retire,
    void_successor,
)

VERB: Final = "rescale"
_TERM: Final = re.compile(r"\.t[0-9]{20}")
# A listing may miss a directory that an earlier leader renames meanwhile, which it does once.
_LOOKS: Final = 3


@dataclass(frozen=True, slots=True)
class CheckpointMove:
    """One query's checkpoint and the one that replaces it.

    Attributes:
        query: The query.
        checkpoint: The address of its checkpoint in the job.
        made: The directory where the new one is created; on a local disk the two are exchanged.
        kept: The directory where the old one is kept.
        partitions: The number of partitions of the new one.
    """

    query: str
    checkpoint: str
    made: str
    kept: str
    partitions: int


@dataclass(frozen=True, slots=True)
class CheckpointMark:
    """The two checkpoints of a move at the decision.

    Attributes:
        batch: The newest committed batch of both.
        old: The inode number of the old directory; 0 on remote storage.
        new: The inode number of the new directory; 0 on remote storage.
    """

    batch: int
    old: int = 0
    new: int = 0


@dataclass(frozen=True, slots=True)
class PendingRescale:
    """A rescale that a leader has begun and not finished.

    Attributes:
        moves: The checkpoints to replace.
        marks: The checkpoints at the decision, by query; None until the rescale is decided.
    """

    moves: tuple[CheckpointMove, ...]
    marks: Mapping[str, CheckpointMark] | None = None

    def decided(self) -> PendingRescale:
        """Return the rescale as decided; all new checkpoints are whole."""
        return PendingRescale(self.moves, {move.query: _mark(move) for move in self.moves})


def place_of(uri: str) -> Path:
    """Return the directory of a local checkpoint.

    Raises:
        Internal: The checkpoint is not on a local disk.
    """
    place = local_path(uri)
    if place is None:
        raise Internal(
            "the checkpoint is not on a local disk", code="HF-E9023", where=uri, hint="please report this"
        )
    return place


def inode_of(place: Path) -> int:
    """Return the number of a directory, which moves with it."""
    return os.stat(place).st_ino  # noqa: PTH116 - a path's own way says the same


def is_consistent(pending: PendingRescale) -> bool:
    """Return whether all directories of a rescale are next to their checkpoints; a record may be forged."""
    return all(_is_beside(move) for move in pending.moves)


def _is_beside(move: CheckpointMove) -> bool:
    here, made, kept = (local_path(each) for each in (move.checkpoint, move.made, move.kept))
    if here is None or made is None or kept is None:
        first, number = parse_successor(move.made)
        return here is made is kept is None and bool(number) and parse_successor(move.checkpoint)[0] == first
    names = made.name.startswith(f"{here.name}.rescale-") and kept.name.startswith(f"{here.name}.before-")
    return names and made.parent == here.parent == kept.parent


def put_in_place(pending: PendingRescale, term: int) -> None:
    """Replace the checkpoints of a decided rescale. A second call, or one of a later leader, finishes it.

    A checkpoint that was changed after the decision is not replaced.

    Args:
        pending: The decided rescale.
        term: The term of this leader.

    Raises:
        LeadershipLost: A later leader finishes it.
        Unavailable: The storage does not answer.
    """
    for move in pending.moves:
        mark = (pending.marks or {})[move.query]
        if local_path(move.checkpoint) is None:
            _publish(move, mark)
        else:
            _exchange(move, mark, term)


def discard(moves: Iterable[CheckpointMove]) -> None:
    """Delete the new checkpoints of a rescale that is not decided."""
    for move in moves:
        if local_path(move.made) is None:
            with suppress(HoldfastError):  # what is left is not used: the next one gets a new directory
                if void_successor(*parse_successor(move.made)):
                    withdraw(open_storage(move.made))
            continue
        for place in _names_of(place_of(move.made)):
            shutil.rmtree(place, ignore_errors=True)


def result_of(moves: Iterable[CheckpointMove]) -> bool | None:
    """Return True if all checkpoints were replaced, False if not; None while a leader may still decide."""
    results = [_result(move) for move in moves]
    return None if None in results else all(results)


def _result(move: CheckpointMove) -> bool | None:
    if local_path(move.made) is None:
        return is_published(*parse_successor(move.made))
    if place_of(move.kept).exists():
        return True
    return None if _names_of(place_of(move.made)) else False


def _mark(move: CheckpointMove) -> CheckpointMark:
    batch = _batch_of(move.checkpoint)
    if local_path(move.checkpoint) is None:
        return CheckpointMark(batch)
    return CheckpointMark(batch, inode_of(place_of(move.checkpoint)), inode_of(place_of(move.made)))


def _batch_of(checkpoint: str) -> int:
    batch = read(open_storage(checkpoint)).batch_id
    return -1 if batch is None else batch


def _publish(move: CheckpointMove, mark: CheckpointMark) -> None:
    first, number = parse_successor(move.made)
    try:
        if is_published(first, number) is None:
            if _batch_of(move.checkpoint) == mark.batch:
                publish_successor(first, number, VERB)
            else:
                void_successor(first, number)
    except Conflict:  # a different leader was quicker: the number is used, or the old checkpoint is retired
        if is_published(first, number) is None:
            raise
    if is_published(first, number):
        retire(open_storage(move.checkpoint), move.made)


def _exchange(move: CheckpointMove, mark: CheckpointMark, term: int) -> None:
    here, kept = place_of(move.checkpoint), place_of(move.kept)
    own = _take(place_of(move.made), kept, term)
    if own is None:
        return
    try:
        number = inode_of(here)
        if number == mark.old and _batch_of(move.checkpoint) == mark.batch:
            exchange(here, own)
        elif number != mark.new:
            shutil.rmtree(own, ignore_errors=True)
            return
        own.rename(kept)
    except (NotFound, FileNotFoundError) as error:
        raise _taken(own) from error
    flush_folder(kept.parent)


def _take(made: Path, kept: Path, term: int) -> Path | None:
    """Rename the new directory to the name of this leader; None if an earlier leader has finished the move.

    Raises:
        LeadershipLost: A later leader has renamed it.
    """
    own = made.with_name(f"{made.name}.t{term:020}")
    looks = 0
    while looks < _LOOKS and not kept.exists():
        names = _names_of(made)
        looks = 0 if names else looks + 1
        if not names:
            continue
        name = names[-1]
        if name == own:
            return own
        if name.name > own.name:
            raise _taken(name)
        with suppress(FileNotFoundError):  # an earlier leader is not suspended, and goes on
            name.rename(own)
            flush_folder(own.parent)
            return own
    return None


def _names_of(made: Path) -> list[Path]:
    """Return the existing names of a new directory, that of the latest leader last."""
    first = [made] if made.exists() else []  # looked at before the listing, since it may be renamed meanwhile
    head = len(made.name)
    beside = [path for path in made.parent.iterdir() if path.name.startswith(made.name)]
    return first + sorted(path for path in beside if _TERM.fullmatch(path.name[head:]))


def _taken(place: Path) -> LeadershipLost:
    return LeadershipLost(
        "a later leader finishes the rescale",
        code="HF-E4095",
        where=str(place),
        hint="see the leader of the job with `holdfast status JOB`",
    )
