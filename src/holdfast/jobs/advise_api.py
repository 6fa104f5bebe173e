"""`hf.advise`: what would be better for a checkpoint or a job, or for a job that is still a plan."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.checks import SCHEME, canonical_uri, parse_storage
from holdfast.config.settings import Settings
from holdfast.config.units import Duration
from holdfast.errors import HoldfastError, Invalid
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome
from holdfast.model import BatchProgress

if TYPE_CHECKING:
    from holdfast.advice.advice import AdviceReport

# As many of a query's newest batches as are looked at.
_BATCHES = 200


def advise(
    checkpoint: str | os.PathLike[str] | None = None,
    *,
    topics: Iterable[str] = (),
    rate: float | None = None,
    keys: int | None = None,
    value_bytes: int | None = None,
    latency: Duration | None = None,
    cores: int | None = None,
    shared: bool = False,
    conf: Mapping[str, str] | None = None,
    prices: str | os.PathLike[str] | None = None,
    measured: str | os.PathLike[str] | None = None,
    home: str | os.PathLike[str] | None = None,
) -> AdviceReport:
    """Say what would be better for a checkpoint, or for a job that is still a plan, the worst first.

    Each piece of advice has what was seen, what it costs to leave it, what to do, and how sure it is. Of a
    checkpoint its logs and the names and sizes of its files are read, while the query runs or not; nothing
    of the state is, and no Spark is started. Where a state home has a job with this checkpoint,
    what it remembers of the job's batches counts too. What cannot be told is named in `not_told`.

    Args:
        checkpoint: The address of a checkpoint. None for a plan, which has `rate` and `keys`.
        topics: Some of `backend`, `checkpoint`, `partitions` and `memory`; all by default.
        rate: Of a plan: rows a second.
        keys: Of a plan: keys in its state.
        value_bytes: Of a plan: the bytes of each key's value; 100 by default.
        latency: How late a result may be.
        cores: The cores that run tasks.
        shared: Whether other services are to read the state.
        conf: Settings of the session that a checkpoint does not fix, such as RocksDB's memory.
        prices: A file of prices, as `holdfast cost --prices` reads it.
        measured: What `holdfast bench backends --json` has printed on this machine, in a file.
        home: The state home; by default the one that holds here.

    Raises:
        Invalid: Both or neither of a checkpoint and a plan, a topic that there is not, or a wrong number.
        NotFound: The checkpoint or file does not exist.
        Corrupt: A file of the checkpoint is damaged.
        Unavailable: The storage does not answer.
        Unsupported: The library for this kind of storage is not installed.
    """
    from holdfast.advice.advise_api import (
        advise_on_checkpoint,
        advise_on_plan,
        needs_of,
        planned_of,
        topics_of,
    )

    topics = (topics,) if isinstance(topics, str) else tuple(topics)
    topics_of(topics)
    planned = planned_of(rate, keys, value_bytes)
    if checkpoint is not None and planned is None:
        batches = remembered(checkpoint, home)
        needs = needs_of(latency=latency, cores=cores, shared=shared, conf=conf, own_session=bool(batches))
        return advise_on_checkpoint(checkpoint, batches, needs, topics, prices, measured)
    if planned is None or checkpoint is not None:
        raise Invalid(
            "advice is on a checkpoint, or on a plan",
            code="HF-E2208",
            found="neither" if planned is None else "both",
            expected="the address of a checkpoint, or a rate and keys",
            hint="holdfast advise CHECKPOINT, or holdfast advise --rate 5000 --keys 1000000",
        )
    needs = needs_of(latency=latency, cores=cores, shared=shared, conf=conf)
    return advise_on_plan(planned, needs, topics, prices, measured)


def remembered(
    checkpoint: str | os.PathLike[str], home: str | os.PathLike[str] | None
) -> tuple[BatchProgress, ...]:
    """Return the remembered batches of the job that has this checkpoint, oldest first.

    Where the state home cannot be read, that is nothing.

    Raises:
        Invalid: The address is none.
    """
    file = StateHome(Settings.here(home).real_home).registry
    text = os.fspath(checkpoint)
    if SCHEME.match(text) is None:
        text = os.path.abspath(text)  # noqa: PTH100 - as it is given, and not as a Path would have it
    uri = canonical_uri(parse_storage(text, "checkpoint"), Path.cwd())
    registry = Registry(file, read_only=True)
    try:
        for job in registry.jobs():
            for query in registry.queries(job.name):
                if query.checkpoint == uri:
                    batches = registry.batches(job.name, _BATCHES)
                    return tuple(batch for batch in batches if batch.query == query.name)
    except HoldfastError:
        return ()
    return ()
