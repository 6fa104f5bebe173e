"""What in a checkpoint will hurt, from facts that were read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from holdfast.advice.facts.checkpoint_facts import CheckpointFacts
from holdfast.checkpoints.state.shares import StoreShares, shares
from holdfast.checkpoints.values import Checkpoint, Operator
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
    seen = retains_few(facts.checkpoint)
    if seen is not None:
        yield "HF307", seen


def _provider(facts: CheckpointFacts) -> Iterator[Seen]:
    checkpoint = facts.checkpoint
    if checkpoint.external is not None or not checkpoint.operators:
        return
    heap = heap_outgrown(checkpoint)
    if heap is not None:
        yield "HF301", heap
    if provider_class(checkpoint.confs) != ROCKSDB_PROVIDER:
        return
    for operator in checkpoint.operators:
        snapshots = without_changelog(facts, operator)
        if snapshots is not None:
            yield "HF308", snapshots
        if operator.format_version == 1:
            yield "HF310", f"{name_of(operator)} has state of checkpoint format 1"


def _partitions(facts: CheckpointFacts) -> Iterator[Seen]:
    yield from _each("HF601", map(tiny_partitions, facts.checkpoint.operators))


def _uneven(facts: CheckpointFacts) -> Iterator[Seen]:
    yield from _each("HF603", map(uneven, shares(facts.checkpoint)))


def _growth(facts: CheckpointFacts) -> Iterator[Seen]:
    yield from _each("HF602", (grown(facts, operator) for operator in facts.checkpoint.operators))


def _watermark(facts: CheckpointFacts) -> Iterator[Seen]:
    checkpoint = facts.checkpoint
    yield from _each("HF604", (lacks_watermark(checkpoint, operator) for operator in checkpoint.operators))


def _each(rule: str, found: Iterable[str | None]) -> Iterator[Seen]:
    return ((rule, seen) for seen in found if seen is not None)


def retains_few(checkpoint: Checkpoint) -> str | None:
    """What is seen where fewer batches are kept than a way back needs."""
    batch_id, kept = checkpoint.batch_id, len(checkpoint.committed)
    if batch_id is None or batch_id < _LONG_WITHOUT or kept >= _FEWEST_BATCHES:
        return None
    return f"{kept} of {batch_id + 1} batches are kept"


def heap_outgrown(checkpoint: Checkpoint) -> str | None:
    """What is seen where much state is on the heap of the executors."""
    if provider_class(checkpoint.confs) != MEMORY_PROVIDER or checkpoint.size_bytes < _LARGE_HEAP:
        return None
    return f"the provider on the heap has {rounded_size(checkpoint.size_bytes)} of state"


def without_changelog(facts: CheckpointFacts, operator: Operator) -> str | None:
    """What is seen where RocksDB writes a snapshot in each batch."""
    files = facts.files.get(operator.operator_id)
    if files is None or files.snapshots <= 1 or files.changelogs:
        return None
    return f"{name_of(operator)} has {files.snapshots} snapshots and no changelog"


def tiny_partitions(operator: Operator) -> str | None:
    """What is seen where many partitions hold next to nothing each."""
    if operator.gathered or operator.partitions < _MANY_PARTITIONS:
        return None
    rows = operator.base_keys
    if rows is not None and rows < _FEW_ROWS * operator.partitions:
        return f"{name_of(operator)} has {rows:,} rows in {operator.partitions} partitions"
    if rows is None and operator.size_bytes < _FEW_BYTES * operator.partitions:
        return (
            f"{name_of(operator)} has {rounded_size(operator.size_bytes)} in {operator.partitions} partitions"
        )
    return None


def uneven(store: StoreShares) -> str | None:
    """What is seen where one partition has most of a store."""
    largest = store.largest
    if largest is None or len(store.partitions) < 4 or store.bytes < _LARGE_STORE:
        return None
    if store.largest_share < _UNEVEN:
        return None
    return (
        f"partition {largest.partition} of {len(store.partitions)} has {store.largest_share:.0%} of"
        f" `{store.state_name}`, {rounded_size(store.bytes)}"
    )


def grown(facts: CheckpointFacts, operator: Operator) -> str | None:
    """What is seen where state grows and nothing ends it."""
    first_mark, last_mark = facts.watermarks
    if last_mark is not None and last_mark != first_mark:
        return None  # time goes on, and what is older than the watermark goes
    batches = sorted(facts.sizes)
    least = least_of_thirds([facts.sizes[batch_id].get(operator.operator_id, 0) for batch_id in batches])
    if least is None or not (least[0] < least[1] < least[2] and least[2] >= least[0] * _GROWTH):
        return None
    why = "no watermark" if last_mark is None else "a watermark that stands still"
    return (
        f"{name_of(operator)} grew from {rounded_size(least[0])} to {rounded_size(least[2])} between batch"
        f" {batches[0]} and {batches[-1]}, with {why}"
    )


def lacks_watermark(checkpoint: Checkpoint, operator: Operator) -> str | None:
    """What is seen where an operator that needs a watermark to remove anything has had none."""
    if checkpoint.watermark_ms is not None or (checkpoint.batch_id or 0) < _LONG_WITHOUT:
        return None
    if operator.name not in _NEED_WATERMARK:
        return None
    return f"{name_of(operator)} has had no watermark by batch {checkpoint.batch_id}"


def least_of_thirds(series: Sequence[int]) -> tuple[int, int, int] | None:
    """The least size in each third; changes since a base come and go, and are in the others."""
    length = len(series) // _THIRDS
    if length < _THIRDS:
        return None
    return min(series[:length]), min(series[length : 2 * length]), min(series[-length:])


def name_of(operator: Operator) -> str:
    """What sentences call an operator."""
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
