"""Defects of Spark's RocksDB state store, and the releases that have them.

The releases were read from the sources of each release of `spark-sql` from 3.4.0 to 4.2.0, and from the
classes of 3.5.9, 4.0.5, 4.1.4, 4.2.0 and 4.3.0. Holdfast's jobs require a Spark without these defects; a
program with its own session, and a checkpoint at rest, may have them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Damage(str, Enum):
    """The damage that a defect leaves in a checkpoint.

    `MIXED`: a snapshot names a data file of a different RocksDB session. `DELETED`: a snapshot names a data
    file that has been deleted. `WRONG`: the commit log may name a wrong state file. `NONE`: tasks fail, and
    the checkpoint stays whole.
    """

    MIXED = "mixed"
    DELETED = "deleted"
    WRONG = "wrong"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SparkDefect:
    """A defect of Spark's RocksDB state store.

    Attributes:
        issue: Spark's issue.
        change: The pull request that fixed it.
        first: The first release with the defect; None if no release has it, only previews.
        fixed: The first release without it.
        changelogs: Whether it occurs only with changelogs.
        damage: What it leaves in a checkpoint.
        text: What happens, and when.
    """

    issue: str
    change: str
    first: str | None
    fixed: str
    changelogs: bool
    damage: Damage
    text: str

    def affects(self, release: str) -> bool:
        """Return whether a release has the defect; a release without its third number has it if any of its
        patch releases has.
        """
        if self.first is None:
            return False
        numbers = _numbers(release)
        oldest, newest = (*numbers, 0)[:3], (*numbers, 1 << 30)[:3]
        return _numbers(self.first) <= newest and oldest < _numbers(self.fixed)

    @property
    def releases(self) -> str:
        """Return the releases with the defect as text."""
        if self.first is None:
            return f"no release, only previews of {self.fixed}"
        return f"{self.first} and later, fixed in {self.fixed}"


SPARK_DEFECTS: Final = (
    SparkDefect(
        "SPARK-49770",
        "apache/spark#47875",
        "3.5.1",
        "4.0.0",
        True,
        Damage.MIXED,
        "after a batch fails and runs again, the snapshot of a version is uploaded a second time, and names"
        " data files of the first upload",
    ),
    SparkDefect(
        "SPARK-51573",
        "apache/spark#50344",
        None,
        "4.0.0",
        False,
        Damage.WRONG,
        "with state format 2 a task reports the checkpoint ID of a different commit, so the commit log may"
        " name the wrong state file",
    ),
    SparkDefect(
        "SPARK-51717",
        "apache/spark#50512",
        None,
        "4.0.0",
        True,
        Damage.MIXED,
        "if a batch of a new query fails before the first snapshot is uploaded, the second snapshot names"
        " data files of the first",
    ),
    SparkDefect(
        "SPARK-52637",
        "apache/spark#51340",
        "4.0.0",
        "4.1.0",
        False,
        Damage.MIXED,
        "after a compaction, and a batch that fails and runs again, a snapshot names data files of the"
        " failed run",
    ),
    SparkDefect(
        "SPARK-54389",
        "apache/spark#53101",
        "4.1.0",
        "4.2.0",
        False,
        Damage.NONE,
        "a task that is marked as failed while it opens its state fails with an invalid stamp, which hides"
        " the first error",
    ),
    SparkDefect(
        "SPARK-55892",
        "apache/spark#54697",
        "3.5.2",
        "4.2.0",
        True,
        Damage.DELETED,
        "a snapshot that is uploaded late names data files of older snapshots that a different executor has"
        " deleted meanwhile",
    ),
    SparkDefect(
        "SPARK-56476",
        "apache/spark#55341",
        "4.1.0",
        "4.2.0",
        False,
        Damage.NONE,
        "a task of a streaming aggregation fails with an invalid stamp if its store is unloaded between"
        " reading and writing",
    ),
)


def defects_of(releases: Iterable[str], *, changelogs: bool) -> tuple[SparkDefect, ...]:
    """Return the defects that a query with state in RocksDB may meet.

    Args:
        releases: The Spark releases that may run the query, each with two or three numbers.
        changelogs: Whether changelogs are on.
    """
    known = tuple(releases)
    return tuple(
        defect
        for defect in SPARK_DEFECTS
        if (changelogs or not defect.changelogs) and any(map(defect.affects, known))
    )


def causes(damage: Damage, releases: Iterable[str]) -> str:
    """Return a sentence about the defects that leave this damage; empty if no release has one."""
    known = tuple(releases)
    found = [each for each in SPARK_DEFECTS if each.damage is damage and any(map(each.affects, known))]
    if not found:
        return ""
    named = " or ".join(f"{each.issue}, fixed in Spark {each.fixed}" for each in found)
    return f"a defect of Spark may have left this: {named}"


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in release.split(".")[:3])
