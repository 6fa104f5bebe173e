"""What the state of a job's query costs: its checkpoint, with what the registry knows of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.advice.cost.cost_api import cost
from holdfast.config.units import Duration
from holdfast.jobs.registry.client import JobDetails

if TYPE_CHECKING:
    from holdfast.advice.cost.prices import Prices
    from holdfast.advice.cost.report import CostReport


def job_cost(
    details: JobDetails,
    checkpoint: str,
    *,
    prices: Prices | str | os.PathLike[str] | None = None,
    interval: Duration | None = None,
    savepoints: Sequence[str] | None = None,
) -> CostReport:
    """Return what `hf.cost` does, with the memory of the newest batch and the savepoints of all directories.

    Args:
        details: The job.
        checkpoint: The checkpoint of one of its queries.
        prices: As `hf.cost` takes them.
        interval: As `hf.cost` takes it.
        savepoints: The directories of savepoints; None for those that the job's savepoints went to, and the
            one beside the checkpoint.

    Raises:
        HoldfastError: As `hf.cost`.
    """
    query = next((query.name for query in details.queries if query.checkpoint == checkpoint), None)
    newest = next((batch for batch in details.newest() if batch.query == query), None)
    memory = (
        None
        if newest is None
        else {each.display_name or each.name: each.memory_bytes for each in newest.operators}
    )
    catalogs = details.known_catalogs(checkpoint) if savepoints is None else savepoints
    return cost(checkpoint, prices=prices, interval=interval, savepoints=catalogs, memory=memory)
