"""The assembly of all advice on a checkpoint or a plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from holdfast.advice import backend_advice, checkpoint_advice, resource_advice
from holdfast.advice.advice import Advice, AdviceKind, AdviceReport, Option, Topic, worst_first
from holdfast.advice.backend_advice import (
    BUILT_IN,
    Load,
    StateNeeds,
    advised_place,
    choice,
    kept_of,
    load_of,
    place_choice,
)
from holdfast.advice.checkpoint_checks import checkpoint_findings
from holdfast.advice.evidence import FEWEST_BATCHES, TASKS, Evidence, MeasuredBackends, Needs
from holdfast.advice.plan_forecast import HEAP, PlannedState, forecast
from holdfast.advice.plan_forecast import ROCKSDB as PLANNED_ROCKSDB
from holdfast.advice.prices import Money, Prices
from holdfast.advice.resource_advice import cores_for, fitting, too_few_cores
from holdfast.config.spark_defaults import CHANGELOG_KEY, RETAIN_KEY, SHUFFLE_PARTITIONS_KEY

ALL_TOPICS: Final = tuple(Topic)
# Every kind of advice by its id.
KINDS: Final[Mapping[str, AdviceKind]] = {
    kind.id: kind
    for kind in (
        *backend_advice.KINDS,
        *checkpoint_advice.KINDS,
        *resource_advice.MEMORY_KINDS,
        *resource_advice.PARTITION_KINDS,
    )
}
_LOOKS: Final[Mapping[Topic, Callable[[Evidence], Iterator[Advice]]]] = {
    Topic.BACKEND: backend_advice.backend_advice,
    Topic.CHECKPOINT: checkpoint_advice.checkpoint_advice,
    Topic.PARTITIONS: resource_advice.partition_advice,
    Topic.MEMORY: resource_advice.memory_advice,
}
# Lint rules about which advice has more detail.
_COVERED: Final = frozenset(kind.rule for kind in KINDS.values() if kind.rule) | {
    resource_advice.LACKS_WATERMARK
}
_USUAL_INTERVAL_MS: Final = 60_000
_LEAST_INTERVAL_MS: Final = 100
_RETAIN: Final = 100
_FEW_KEYS: Final = 100


@dataclass(frozen=True, slots=True)
class Planned:
    """The expected load of a planned job.

    Attributes:
        rate: The number of rows per second.
        keys: The number of keys in the state.
        value_bytes: The size of one value in bytes.
    """

    rate: float
    keys: int
    value_bytes: int = 100


def on_checkpoint(evidence: Evidence, topics: Collection[Topic]) -> AdviceReport:
    """Return advice on a checkpoint, from the evidence read."""
    asked = tuple(topic for topic in Topic if topic in topics)
    advice = (each for topic in asked for each in _LOOKS[topic](evidence))
    stateful = bool(evidence.checkpoint.operators)
    chosen: tuple[Option, ...] = ()
    if Topic.BACKEND in topics and stateful:
        chosen = choice(load_of(evidence), evidence.figures)
    lint = {rule for rule, _ in checkpoint_findings(evidence.facts)} - _COVERED
    return AdviceReport(
        evidence.checkpoint.uri,
        evidence.checkpoint.batch_id,
        asked,
        worst_first(advice),
        chosen,
        place_choice(kept_of(evidence), evidence.prices) if Topic.CHECKPOINT in topics else (),
        figures=evidence.figures.source if chosen else "",
        currency=evidence.prices.currency,
        not_told=tuple(_not_told(evidence, topics)),
        lint=tuple(sorted(lint)) if asked == ALL_TOPICS else (),
    )


def on_plan(
    planned: Planned, needs: Needs, measured: MeasuredBackends, prices: Prices, topics: Collection[Topic]
) -> AdviceReport:
    """Return advice on a planned job.

    Raises:
        Invalid: A number of the plan is out of range.
    """
    asked = tuple(topic for topic in Topic if topic in topics)
    load = Load(
        planned.keys,
        planned.value_bytes,
        TASKS,
        needs.latency_ms,
        needs.shared,
        BUILT_IN,
        _most(planned, needs),
    )
    options = choice(load, measured)
    best = next(option for option in options if option.advised)
    a_core = measured.of(best.name).rows_a_second / TASKS
    cores = needs.cores or cores_for(planned.rate, a_core)
    options = choice(replace(load, tasks=cores), measured)
    interval_ms = _interval_ms(needs)
    # More partitions would be almost empty.
    partitions = min(fitting(best.state_bytes or 0, cores), max(2, planned.keys // _FEW_KEYS))
    medium = advised_place(interval_ms)
    plan = PlannedState(
        planned.rate,
        planned.keys,
        planned.value_bytes,
        interval_ms=interval_ms,
        partitions=partitions,
        provider=HEAP if best.name == HEAP else PLANNED_ROCKSDB,
        medium=medium,
    )
    found = forecast(plan, prices)
    in_objects = forecast(replace(plan, medium="s3"), prices).requests
    kept = StateNeeds(interval_ms, found.checkpoint_bytes, None if in_objects is None else in_objects.total)
    advice = [
        each
        for each in too_few_cores(planned.rate, cores, a_core)
        if needs.cores is not None and Topic.PARTITIONS in topics
    ]
    settings = {
        **best.settings,
        SHUFFLE_PARTITIONS_KEY: str(partitions),
        RETAIN_KEY: str(_RETAIN),
        **({CHANGELOG_KEY: "true"} if best.name == PLANNED_ROCKSDB else {}),
    }
    return AdviceReport(
        None,
        None,
        asked,
        worst_first(advice),
        options if Topic.BACKEND in topics else (),
        place_choice(kept, prices) if Topic.CHECKPOINT in topics else (),
        found,
        settings,
        figures=measured.source,
        currency=prices.currency,
        not_told=tuple(_not_told_of_plan(needs, cores, best.name, found.money)),
    )


def _not_told_of_plan(needs: Needs, cores: int, backend: str, money: Money) -> Iterator[str]:
    if needs.cores is None:
        yield f"the number of cores: {cores} process twice the rows; set `--cores` to yours"
    if backend not in (HEAP, PLANNED_ROCKSDB):
        yield (
            "the cost of the database: the forecast assumes the same state in RocksDB, while with a"
            " database the checkpoint holds only its logs"
        )
    if money.unpriced:
        yield f"the cost of {' and '.join(money.unpriced)}: give prices with `--prices`"


def _most(planned: Planned, needs: Needs) -> bool:
    """Return whether a batch of a plan changes most keys, if all keys are equally likely."""
    plan = PlannedState(planned.rate, planned.keys, planned.value_bytes, interval_ms=_interval_ms(needs))
    return plan.touched(1) >= planned.keys / 2


def _interval_ms(needs: Needs) -> int:
    """Return the trigger interval: half of the accepted delay, because the batch itself takes time too."""
    if needs.latency_ms is None:
        return _USUAL_INTERVAL_MS
    return max(_LEAST_INTERVAL_MS, min(needs.latency_ms // 2, _USUAL_INTERVAL_MS))


def _not_told(evidence: Evidence, topics: Collection[Topic]) -> Iterator[str]:
    if Topic.PARTITIONS in topics and evidence.needs.cores is None and evidence.checkpoint.operators:
        yield "whether the partitions match the cores: set `--cores`"
    if len(evidence.settled) < FEWEST_BATCHES and {Topic.PARTITIONS, Topic.MEMORY} & set(topics):
        yield (
            f"facts from {FEWEST_BATCHES} batches with rows: no state home has recorded them for this"
            " checkpoint; `holdfast run` records those of its jobs"
        )
    if Topic.CHECKPOINT in topics and not evidence.prices.has_requests and evidence.gap_ms:
        yield "the cost of requests to object storage: give prices with `--prices`"
