"""Changes of keyed state: of a key, and of the key groups that hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoints.keyed.key_groups import KeyGroup
from holdfast.checkpoints.keyed.key_rows import KeyTimer


@dataclass(frozen=True, slots=True)
class KeyChange:
    """The change of one key.

    Attributes:
        key: The key: by column, in the order of the columns, or the value of the only one.
        states: New values by state: a list whole, a map as a dictionary or pairs; None takes a state away.
            States that are not named stay as they are. Of an aggregating state it is the accumulator.
        stamps: When values with a time to live were written, in the shape of the value, in milliseconds. By
            default a value, and an entry or place that was there, keeps its stamp unless that has run out,
            and what is new gets the time of the batch.
        timers: The key's timers from now on; None leaves them as they are.
        remove: Take away the key with everything.
    """

    key: Any
    states: Mapping[str, Any] = field(default_factory=dict)
    stamps: Mapping[str, Any] = field(default_factory=dict)
    timers: Sequence[KeyTimer] | None = None
    remove: bool = False


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A key group that is written anew.

    Attributes:
        before: What it was; None for one that had no state.
        after: What it is to be; None for one that is to be gone.
    """

    before: KeyGroup | None
    after: KeyGroup | None
