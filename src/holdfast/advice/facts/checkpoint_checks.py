"""What in a checkpoint will hurt, from facts that were read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from holdfast.advice.facts.checkpoint_facts import CheckpointFacts
from holdfast.checkpoints.state.shares import shares
from holdfast.checkpoints.values import Operator
from holdfast.config.spark_defaults import MEMORY_PROVIDER, ROCKSDB_PROVIDER
from holdfast.config.units import rounded_size
from holdfast.formats.providers import provider_class

_STREAMING: Final = "spark.sql.streaming."
_LARGE_HEAP: Final = 100 << 20
_FEWEST_BATCHES: Final = 3
_MANY_PARTITIONS: Final = 32
_FEW_ROWS: Final = 100
_FEW_BYTES: Final = 16 << 10
_GROWTH: Final = 1.2
_UNEVEN: Final = 0.5
_LARGE_STORE: Final = 1 << 20
_LONG_WITHOUT: Final = 10
# What removes nothing without a watermark.
_NEED_WATERMARK: Final = frozenset(("dedupe", "symmetricHashJoin"))
_THIRDS: Final = 3

# A rule's id, and what was seen.
Seen = tuple[str, str]


def checkpoint_findings(facts: CheckpointFacts) -> list[Seen]:
    """Everything that the facts are evidence for, by rule."""
    return sorted({seen for check in CHECKS for seen in check(facts)})


def _settings(facts: CheckpointFacts) -> Iterator[Seen]:
    confs = facts.checkpoint.confs
    if confs.get(f"{_STREAMING}multipleWatermarkPolicy") == "max":
        yield "HF207", "the policy for several watermarks is max, and the checkpoint is fixed to it"
    if facts.checkpoint.operators and confs.get(f"{_STREAMING}stateStore.rowChecksum.enabled") == "false":
        yield "HF309", "the checkpoint is fixed to state without row checksums"


def _retained(facts: CheckpointFacts) -> Iterator[Seen]:
    checkpoint = facts.checkpoint
    batch_id, kept = checkpoint.batch_id, len(checkpoint.committed)
    if batch_id is not None and batch_id >= _LONG_WITHOUT and kept < _FEWEST_BATCHES:
        yield "HF307", f"{kept} of {batch_id + 1} batches are kept"


def _provider(facts: CheckpointFacts) -> Iterator[Seen]:
    checkpoint = facts.checkpoint
    if checkpoint.external is not None or not checkpoint.operators:
        return
    provider = provider_class(checkpoint.confs)
    if provider == MEMORY_PROVIDER and checkpoint.size_bytes >= _LARGE_HEAP:
        yield "HF301", f"the provider on the heap has {rounded_size(checkpoint.size_bytes)} of state"
    if provider != ROCKSDB_PROVIDER:
        return
    for operator in checkpoint.operators:
        files = facts.files.get(operator.operator_id)
        if files is not None and files.snapshots > 1 and not files.changelogs:
            yield "HF308", f"{_name(operator)} has {files.snapshots} snapshots and no changelog"
        if operator.format_version == 1:
            yield "HF310", f"{_name(operator)} has state of checkpoint format 1"


def _partitions(facts: CheckpointFacts) -> Iterator[Seen]:
    for operator in facts.checkpoint.operators:
        if operator.gathered or operator.partitions < _MANY_PARTITIONS:
            continue
        rows = operator.base_keys
        if rows is not None and rows < _FEW_ROWS * operator.partitions:
            yield "HF601", f"{_name(operator)} has {rows:,} rows in {operator.partitions} partitions"
        elif rows is None and operator.size_bytes < _FEW_BYTES * operator.partitions:
            size = rounded_size(operator.size_bytes)
            yield "HF601", f"{_name(operator)} has {size} in {operator.partitions} partitions"


def _uneven(facts: CheckpointFacts) -> Iterator[Seen]:
    for store in shares(facts.checkpoint):
        largest = store.largest
        if largest is None or len(store.partitions) < 4 or store.bytes < _LARGE_STORE:
            continue
        if store.largest_share >= _UNEVEN:
            yield (
                "HF603",
                (
                    f"partition {largest.partition} of {len(store.partitions)} has"
                    f" {store.largest_share:.0%} of"
                    f" `{store.state_name}`, {rounded_size(store.bytes)}"
                ),
            )


def _growth(facts: CheckpointFacts) -> Iterator[Seen]:
    first_mark, last_mark = facts.watermarks
    if last_mark is not None and last_mark != first_mark:
        return  # time goes on, and what is older than the watermark goes
    batches = sorted(facts.sizes)
    for operator in facts.checkpoint.operators:
        series = [facts.sizes[batch_id].get(operator.operator_id, 0) for batch_id in batches]
        least = _least_of_thirds(series)
        if least is not None and least[0] < least[1] < least[2] and least[2] >= least[0] * _GROWTH:
            why = "no watermark" if last_mark is None else "a watermark that stands still"
            yield (
                "HF602",
                (
                    f"{_name(operator)} grew from {rounded_size(least[0])} to {rounded_size(least[2])}"
                    " between batch"
                    f" {batches[0]} and {batches[-1]}, with {why}"
                ),
            )


def _least_of_thirds(series: Sequence[int]) -> tuple[int, int, int] | None:
    """The least size in each third; changes since a base come and go, and are in the others."""
    length = len(series) // _THIRDS
    if length < _THIRDS:
        return None
    return min(series[:length]), min(series[length : 2 * length]), min(series[-length:])


def _watermark(facts: CheckpointFacts) -> Iterator[Seen]:
    checkpoint = facts.checkpoint
    if checkpoint.watermark_ms is not None or (checkpoint.batch_id or 0) < _LONG_WITHOUT:
        return
    for operator in checkpoint.operators:
        if operator.name in _NEED_WATERMARK:
            yield "HF604", f"{_name(operator)} has had no watermark by batch {checkpoint.batch_id}"


def _name(operator: Operator) -> str:
    return f"operator {operator.named.label}"


CHECKS: Final[tuple[Callable[[CheckpointFacts], Iterator[Seen]], ...]] = (
    _settings,
    _retained,
    _provider,
    _partitions,
    _uneven,
    _growth,
    _watermark,
)
