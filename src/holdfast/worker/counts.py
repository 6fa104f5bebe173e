"""The counts of a keyed operator's tasks, and their names in a query's progress."""

from __future__ import annotations

from holdfast.formats.access_times import KEYED_BUCKETS

# The counts of an operator, each summed over the tasks of a batch. First the work of a pass …
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
    *KEYED_BUCKETS,
)
# … then the contents of the partition at the task's end, and the number of its key groups not included …
TOTALS = ("total_keys", "total_timers", "total_bytes", "uncounted_groups")
# … and for each state the values removed after expiry, and the contents of the partition.
EXPIRED, ENTRIES, BYTES = "expired", "entries", "bytes"
# The column of the observed metric with the counts of a batch, a map by name.
COLUMN = "counts"
# States with this prefix are internal and are not reported.
OWN_PREFIX = "holdfast_"


def count_of(state: str, what: str) -> str:
    """Return the metric name of a state's count, for example `state.visits.entries`."""
    return f"state.{state}.{what}"
