"""The lease next to a checkpoint that is not on a local disk.

The owner renews the lease in a directory next to the checkpoint. Other processes watch whether the lease
changes, for its duration on their own clocks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from holdfast import layout
from holdfast.clock import steady_s
from holdfast.config.checks import local_path
from holdfast.json_shapes import JsonShape
from holdfast.ownership.election import Now
from holdfast.ownership.lease import LEASE_S
from holdfast.ownership.storage_election import StorageElection
from holdfast.quantities import rounded_duration
from holdfast.storage import open_storage
from holdfast.storage.port import Storage
from holdfast.storage.successors import first_address

# Storages that refuse the second of two writers of a new file.
_OBJECTS: Final = ("s3://", "s3a://", "webhdfs://", "gs://", "abfss://", "abfs://")


@dataclass(frozen=True, slots=True)
class LeaseNote(JsonShape):
    """The lease next to a checkpoint, as found by one read.

    Attributes:
        holder: The owner: host, process and purpose.
        lease_ms: The time in milliseconds for which the lease lasts without a renewal.
    """

    holder: str
    lease_ms: int

    def __str__(self) -> str:
        lease = rounded_duration(self.lease_ms)
        return f"the lease next to it is held by {self.holder} and ends {lease} after its last renewal"


def can_keep_leases(address: str) -> bool:
    """Return whether the storage refuses the second of two concurrent writers of a new file."""
    return local_path(address) is not None or address.startswith(_OBJECTS)


def can_have_successors(address: str) -> bool:
    """Return whether a checkpoint that is not on a local disk can be replaced by a successor next to it."""
    remote = local_path(address) is None
    return remote and can_keep_leases(address) and lease_place(address) is not None


def lease_place(checkpoint: str) -> tuple[str, str] | None:
    """Return the directory and the name of a checkpoint's lease; None for the root of a bucket.

    Args:
        checkpoint: The checkpoint's canonical URI.
    """
    above, _, name = checkpoint.rstrip("/").rpartition("/")
    if not name or above.endswith(":/"):
        return None
    # The directory of `file:///name` is the root of the disk.
    return above if above.strip("/").partition(":")[2] else f"{above}/", layout.lease_beside(name)


def lease_of(
    checkpoint: str,
    holder: str | None = None,
    lease_s: float = LEASE_S,
    now: Now = steady_s,
    elected_at: str = "",
) -> StorageElection | None:
    """Return a candidate in the election of a checkpoint's owner; None without lease support.

    This call reads and writes nothing.

    Args:
        checkpoint: The checkpoint's canonical URI.
        holder: The name of this candidate for other processes; by default its host and process.
        lease_s: The duration of the lease in seconds.
        now: The clock of the candidate.
        elected_at: The election in which the candidate became the leader of its job; empty without one.

    Raises:
        Unsupported: The library for this kind of storage is not installed.
    """
    place = lease_place(checkpoint)
    if place is None or not can_keep_leases(checkpoint):
        return None
    beside = open_storage(place[0], "lease")
    return StorageElection(beside, place[1], lease_s, now, time.time, holder, elected_at)


def has_lease(checkpoint: str) -> bool:
    """Return whether a checkpoint has ever had an owner with a lease.

    Cost: lists one directory.
    """
    place = lease_place(checkpoint)
    if place is None or not can_keep_leases(checkpoint):
        return False
    return bool(open_storage(place[0], "lease").list(place[1]).names)


def lease_note(checkpoint: Storage) -> LeaseNote | None:
    """Return the holder of the lease next to a checkpoint; None if it was released, or never held.

    Cost: lists one directory, and reads two small files if there is a lease. Does not wait.
    """
    first = first_address(checkpoint.uri)
    election = lease_of(first) if has_lease(first) else None
    incumbent = None if election is None else election.incumbent()
    return None if incumbent is None else LeaseNote(incumbent.holder, int(incumbent.lease_s * 1000))
