"""What batches leave in a checkpoint's state directory."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

# `7.changelog`, `7_<id>.changelog`, and the checksum beside it, `.7_<id>.changelog.crc`, and that one's own.
_CHANGELOG = re.compile(r"\.?(\d+)(?:_[^.]*)?\.changelog(?:\.crc)*")
_SNAPSHOT = re.compile(r"(\d+)(?:_[^.]*)?\.zip")


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes written for some batches.

    Attributes:
        changelog: In the changelogs of these batches.
        snapshot: In all else that was written meanwhile: snapshots and what belongs to them.
        snapshots: How many snapshots that were.
    """

    changelog: int
    snapshot: int
    snapshots: int


def written(state: Path, versions: Collection[int], since: float) -> Written:
    """Add up what the batches of these state versions wrote; `since` is when the first one began.

    A changelog belongs to its version. Snapshots are written in the background and contain what many
    batches changed, so they count by their time.
    """
    changelog = snapshot = snapshots = 0
    for path in state.rglob("*"):
        if not path.is_file():
            continue
        found = _CHANGELOG.fullmatch(path.name)
        stat = path.stat()
        if found:
            changelog += stat.st_size if int(found[1]) in versions else 0
        elif stat.st_mtime >= since:
            snapshot += stat.st_size
            snapshots += bool(_SNAPSHOT.fullmatch(path.name))
    return Written(changelog, snapshot, snapshots)


def oldest_snapshot(state: Path) -> int:
    """The version up to which every store has a snapshot; 0 where one has none."""
    newest: dict[Path, int] = {}
    for path in state.rglob("*"):
        if _CHANGELOG.fullmatch(path.name):
            newest.setdefault(path.parent, 0)
        elif found := _SNAPSHOT.fullmatch(path.name):
            newest[path.parent] = max(int(found[1]), newest.get(path.parent, 0))
    return min(newest.values(), default=0)
