"""The elections at an address: in a directory, an object store or ZooKeeper."""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.clock import steady_s
from holdfast.config.policies import ZOOKEEPER, Leading
from holdfast.errors import Unsupported
from holdfast.ownership.checkpoint_lease import can_keep_leases
from holdfast.ownership.election import Election, Now
from holdfast.ownership.storage_election import StorageElection
from holdfast.ownership.zookeeper_election import Ensemble, ZooKeeperElection
from holdfast.storage import open_storage

# The election of a job's leader, by the job's name.
Elections = Callable[[str], Election]


def elections(leading: Leading, now: Now = steady_s) -> Elections:
    """Return the elections at an address. Touches nothing yet.

    Args:
        leading: Where they are held, and the lease.
        now: Seconds on a clock that never goes back.

    Raises:
        Invalid: The address cannot be understood.
        Unsupported: A lease cannot be kept there.
    """
    lease_s = leading.lease_ms / 1000
    if leading.address.startswith(ZOOKEEPER):
        ensemble = Ensemble.of(leading.address)
        return lambda job: ZooKeeperElection(ensemble, job, lease_s, now, time.time)
    if not can_keep_leases(leading.address):
        raise Unsupported(
            "a lease cannot be kept there: of two who write a new file at once, both may believe to have won",
            code="HF-E7093",
            where=leading.address,
            expected="a directory on a shared disk, s3://, webhdfs:// or zookeeper://",
            hint="give --ha such an address",
        )
    storage = open_storage(leading.address, "lease")
    return lambda job: StorageElection(storage, job, lease_s, now, time.time)
