"""The commit log: which batches are done, and which state files they made.

A file is a version line and a line of metadata. Version 2 names the state files of the batch by unique
ids, version 3 adds what is known of the sink.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.formats.names import is_plain
from holdfast.formats.text import compact, damaged, decoded, json_object, version_of, whole_number

VERSIONS: Final = (1, 2, 3)
_WHAT = "the commit log"

# By operator, by partition, by store: in the order in which the operator's metadata names its stores.
StateIds = Mapping[int, tuple[tuple[str, ...], ...]]


@dataclass(frozen=True, slots=True)
class CommitLog:
    """One batch of the commit log.

    Attributes:
        version: 1, 2 or 3.
        fields: The metadata as it stands, newer fields included.
        state_ids: The unique ids of the batch's state files; None under state-checkpoint format 1.
    """

    version: int
    fields: Mapping[str, Any]
    state_ids: StateIds | None

    @property
    def next_watermark_ms(self) -> int:
        """The watermark that the next batch runs under."""
        return int(self.fields.get("nextBatchWatermarkMs", 0))

    def render(self) -> bytes:
        """The file."""
        return f"v{self.version}\n{compact(self.fields)}".encode()


def parse_commit(data: bytes, where: str) -> CommitLog:
    """Read a file of the commit log.

    Raises:
        Corrupt: Spark cannot have written it.
        Unsupported: Its version is newer than what is known here.
    """
    version_line, *lines = decoded(data, _WHAT, where).split("\n")
    version = version_of(version_line.strip(), VERSIONS, _WHAT, where)
    if len(lines) != 1:
        raise damaged(_WHAT, where, f"{len(lines) + 1} lines", "a version and a line of metadata")
    place = f"{where}, line 2"
    fields = json_object(lines[0], _WHAT, place)
    whole_number(fields, "nextBatchWatermarkMs", _WHAT, place, 0)
    given = fields.get("stateUniqueIds")
    return CommitLog(version, fields, None if given is None else _state_ids(given, place))


def _state_ids(given: Any, where: str) -> StateIds:
    try:
        found = {
            int(operator): tuple(tuple(partition) for partition in partitions)
            for operator, partitions in given.items()
        }
        ids = [store_id for parts in found.values() for part in parts for store_id in part]
        # Each is a part of a file's name.
        if all(isinstance(store_id, str) and is_plain(store_id) for store_id in ids):
            return found
    except (AttributeError, TypeError, ValueError):  # none of Spark's
        pass
    raise damaged(_WHAT, where, f"`stateUniqueIds` is {given!r}", "lists of ids by operator")
