"""`hf.advise`: advice on a checkpoint, a job, or a planned job."""

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
    from holdfast.advice.advice import AdviceReport, TopicName

# As many of a query's newest batches as are looked at.
_BATCHES = 200


def advise(
    checkpoint: str | os.PathLike[str] | None = None,
    *,
    topics: TopicName | Iterable[TopicName] = (),
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
    """Return advice on a checkpoint or a planned job, most severe first.

    Each piece of advice has an observation, the cost of ignoring it, the action, and its certainty. For a
    checkpoint, the logs and the names and sizes of the files are read, whether the query runs or not; state
    is not read, and Spark is not started. If a state home has a job with this checkpoint, the job's recorded
    batches are used too. What cannot be determined is listed in `not_told`.

    Args:
        checkpoint: The address of a checkpoint. None for a planned job, which has `rate` and `keys`.
        topics: Some of `backend`, `checkpoint`, `partitions` and `memory`; all by default.
        rate: The rows per second of a planned job.
        keys: The number of keys in the state of a planned job.
        value_bytes: The size of each key's value of a planned job, in bytes; 100 by default.
        latency: The maximum delay of a result.
        cores: The cores that run tasks.
        shared: True if other services read the state.
        conf: Settings of the session that a checkpoint does not fix, such as RocksDB's memory.
        prices: A file of prices, as for `holdfast cost --prices`.
        measured: A file with the output of `holdfast bench backends --json` on this machine.
        home: The state home; by default the one in use.

    Raises:
        Invalid: Both or neither of a checkpoint and a plan, an unknown topic, or an invalid number.
        NotFound: The checkpoint or file does not exist.
        Corrupt: A file of the checkpoint is damaged.
        Unavailable: The storage does not answer.
        Unsupported: The library for this kind of storage is not installed.

    Example:
        report = hf.advise("checkpoints/visits", topics=["checkpoint"])
        for advice in report.advice:
            print(advice.id, advice.severity.value, advice.do)
        planned = hf.advise(rate=5000, keys=1_000_000, topics=["backend"])
        assert [option.name for option in planned.backends if option.advised] == ["rocksdb"]
    """
    from holdfast.advice.advise_api import (
        advise_on_checkpoint,
        advise_on_plan,
        needs_of,
        planned_of,
        topics_of,
    )

    asked = (topics,) if isinstance(topics, str) else tuple(topics)
    topics_of(asked)
    planned = planned_of(rate, keys, value_bytes)
    if checkpoint is not None and planned is None:
        batches = remembered(checkpoint, home)
        needs = needs_of(latency=latency, cores=cores, shared=shared, conf=conf, own_session=bool(batches))
        return advise_on_checkpoint(checkpoint, batches, needs, asked, prices, measured)
    if planned is None or checkpoint is not None:
        raise Invalid(
            "advice needs either a checkpoint or a planned job",
            code="HF-E2208",
            found="neither" if planned is None else "both",
            hint="run `holdfast advise CHECKPOINT` or `holdfast advise --rate 5000 --keys 1000000`",
        )
    needs = needs_of(latency=latency, cores=cores, shared=shared, conf=conf)
    return advise_on_plan(planned, needs, asked, prices, measured)


def remembered(
    checkpoint: str | os.PathLike[str], home: str | os.PathLike[str] | None
) -> tuple[BatchProgress, ...]:
    """Return the recorded batches of the job that has this checkpoint, oldest first.

    They are empty if the state home cannot be read.

    Raises:
        Invalid: The address is not valid.
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
