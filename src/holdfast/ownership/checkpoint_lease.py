"""The lease next to a checkpoint, and its renewal.

On a local disk the lock beside the checkpoint says that (`engine.state.ownership`). Elsewhere the owner
renews a lease in a folder beside the checkpoint, and everybody else looks whether it moves: by their own
clocks, for as long as the lease says.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from holdfast import layout
from holdfast.clock import steady_s
from holdfast.config.checks import local_path
from holdfast.config.units import rounded_duration
from holdfast.json_shapes import JsonShape
from holdfast.ownership.election import Now
from holdfast.ownership.lease import LEASE_S
from holdfast.ownership.storage_election import StorageElection
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

# What puts a new file only where none is, in one step.
_OBJECTS: Final = ("s3://", "s3a://", "webhdfs://")


@dataclass(frozen=True, slots=True)
class LeaseNote(JsonShape):
    """The lease beside a checkpoint, as far as one look tells.

    Attributes:
        holder: Who has it: host, process, and what that does.
        lease_ms: How long it lasts without a sign of life.
    """

    holder: str
    lease_ms: int

    def __str__(self) -> str:
        lease = rounded_duration(self.lease_ms)
        return f"the lease beside it is held by {self.holder}, unless that has ended: it lasts {lease}"


def can_keep_leases(address: str) -> bool:
    """Return whether the storage refuses the second of two writers of a new file."""
    return local_path(address) is not None or address.startswith(_OBJECTS)


def lease_place(checkpoint: str) -> tuple[str, str] | None:
    """The directory and the name of a checkpoint's lease; None of a whole bucket: nothing is beside it.

    Args:
        checkpoint: Its canonical URI.
    """
    above, _, name = checkpoint.rstrip("/").rpartition("/")
    if not name or above.endswith(":/"):
        return None
    # That of `file:///name` is the root of the disk.
    return above if above.strip("/").partition(":")[2] else f"{above}/", layout.lease_beside(name)


def lease_of(
    checkpoint: str,
    holder: str | None = None,
    lease_s: float = LEASE_S,
    now: Now = steady_s,
    elected_at: str = "",
) -> StorageElection | None:
    """The lease beside a checkpoint, as one candidate for it sees it; None where none can be kept.

    Touches nothing yet.

    Args:
        checkpoint: Its canonical URI.
        holder: How others see this candidate; by default its host and process.
        lease_s: How long it is to last.
        now: The clock of the candidate.
        elected_at: Names the elections that have made the candidate the leader of its job, if there are any.

    Raises:
        Unsupported: The library for this kind of storage is not installed.
    """
    place = lease_place(checkpoint)
    if place is None or not can_keep_leases(checkpoint):
        return None
    beside = open_storage(place[0], "lease")
    return StorageElection(beside, place[1], lease_s, now, time.time, holder, elected_at)


def has_lease(checkpoint: str) -> bool:
    """Return whether a checkpoint has ever had an owner by the lease next to it.

    Cost: one listing.
    """
    place = lease_place(checkpoint)
    if place is None or not can_keep_leases(checkpoint):
        return False
    return bool(open_storage(place[0], "lease").list(place[1]).names)


def lease_note(checkpoint: Storage) -> LeaseNote | None:
    """Return the holder of the lease next to a checkpoint; None if it was released, or never held.

    Cost: a listing, and two small files where there is one. Nothing is waited for.
    """
    election = lease_of(checkpoint.uri) if has_lease(checkpoint.uri) else None
    incumbent = None if election is None else election.incumbent()
    return None if incumbent is None else LeaseNote(incumbent.holder, int(incumbent.lease_s * 1000))
