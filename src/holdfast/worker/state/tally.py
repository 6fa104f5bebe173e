"""What a task did to a partition's state."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """What one task did, by the names that lanes have for it, but that times are in nanoseconds.

    Attributes:
        keys: Keys that were looked up.
        keys_added: Keys that have a row now and had none.
        keys_removed: Keys that had a row and have none now.
        keys_written: Keys whose rows were written, bases left out.
        expired: Values and elements whose time had run out, by state, as they were removed or replaced.
        read_ns: How long looking up keys took, with what had to be loaded for it.
        write_ns: How long keeping and writing what changed took.
    """

    keys: int = 0
    loaded_groups: int = 0
    folded_groups: int = 0
    change_bytes: int = 0
    base_bytes: int = 0
    keys_added: int = 0
    keys_removed: int = 0
    keys_written: int = 0
    expired: Counter[str] = field(default_factory=Counter)
    read_ns: int = 0
    write_ns: int = 0
