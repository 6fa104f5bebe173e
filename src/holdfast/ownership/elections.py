"""Creation of the elections at an address: a directory, an object store or ZooKeeper."""

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

# The election of a job's leader, by the name of the job.
Elections = Callable[[str], Election]


def elections(leading: Leading, now: Now = steady_s) -> Elections:
    """Return the elections at an address, without connecting.

    Args:
        leading: The election address and the lease.
        now: The function that returns seconds on a monotonic clock.

    Raises:
        Invalid: The address is not valid.
        Unsupported: The storage does not support leases.
    """
    lease_s = leading.lease_ms / 1000
    if leading.address.startswith(ZOOKEEPER):
        ensemble = Ensemble.of(leading.address)
        return lambda job: ZooKeeperElection(ensemble, job, lease_s, now, time.time)
    if not can_keep_leases(leading.address):
        raise Unsupported(
            "this storage supports no lease: two concurrent writers of a new file may both succeed",
            code="HF-E7093",
            where=leading.address,
            expected="a directory on a shared disk, s3://, gs://, abfss://, webhdfs:// or zookeeper://",
            hint="give an address that supports leases",
        )
    storage = open_storage(leading.address, "lease")
    return lambda job: StorageElection(storage, job, lease_s, now, time.time)
