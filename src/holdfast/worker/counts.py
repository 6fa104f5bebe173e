"""The counts of a keyed operator's tasks, and their names in a query's progress."""

from __future__ import annotations

# What an operator counts; each is summed over the tasks of a batch. First what a pass has done …
COUNTS = (
    "events",
    "late",
    "failed",
    "keys",
    "loaded_groups",
    "folded_groups",
    "change_bytes",
    "base_bytes",
    "keys_added",
    "keys_removed",
    "keys_written",
    "read_us",
    "write_us",
)
# … then what the partition holds at the task's end, and how many of its key groups are not counted in it …
TOTALS = ("total_keys", "total_timers", "total_bytes", "uncounted_groups")
# … and of each state what has expired and was removed, and what the partition holds.
EXPIRED, ENTRIES, BYTES = "expired", "entries", "bytes"
# States with this prefix are internal and are not reported.
OWN_PREFIX = "holdfast_"


def count_of(state: str, what: str) -> str:
    """Return the name of a state's count: `state.visits.entries`."""
    return f"state.{state}.{what}"
