"""Settings of Spark that lose state, keep it in the wrong place, or were left as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.advice.sizes import cores_of, rocksdb_budget_mb, room_beside_heap_mb, too_many
from holdfast.advice.source.evaluated import Evaluated
from holdfast.advice.source.hits import Hit
from holdfast.advice.source.values import Const, Settings
from holdfast.config.spark_defaults import (
    BOUNDED_MEMORY_KEY,
    MEMORY_PROVIDER,
    ROCKSDB_PROVIDER,
    SHUFFLE_PARTITIONS_KEY,
)

STREAMING: Final = "spark.sql.streaming."
STORE: Final = f"{STREAMING}stateStore."
PROVIDER: Final = f"{STORE}providerClass"
# Settings that turn a check off, each with the value that does and what then happens.
UNSAFE: Final = {
    f"{STREAMING}statefulOperator.checkCorrectness.enabled": (
        "false",
        "chains of operators whose result is wrong may start",
    ),
    f"{STREAMING}unsupportedOperationCheck": ("false", "queries that Spark cannot answer rightly may start"),
    f"{STREAMING}statefulOperator.useStrictDistribution": ("false", "rows may go where their state is not"),
    f"{STORE}stateSchemaCheck": ("false", "state is read by a schema that it was not written with"),
    f"{STORE}formatValidation.enabled": ("false", "rows of a broken store are read as they are"),
    f"{STORE}skipNullsForStreamStreamJoins.enabled": (
        "true",
        "a damaged store of a join loses rows in silence",
    ),
    "spark.sql.files.ignoreCorruptFiles": ("true", "input that cannot be read is left out in silence"),
    "spark.sql.files.ignoreMissingFiles": ("true", "input that is gone is left out in silence"),
}
# Settings that bound what Spark's pages keep.
_PAGES: Final = frozenset(
    [
        "spark.ui.enabled",
        "spark.ui.retainedJobs",
        "spark.ui.retainedStages",
        "spark.ui.retainedTasks",
        "spark.sql.ui.retainedExecutions",
    ]
)
_FEWEST_BATCHES: Final = 3


def setting_hits(found: Evaluated) -> Iterator[Hit]:
    """What is wrong with the settings of a file."""
    settings = found.settings
    for key, (bad, outcome) in UNSAFE.items():
        if settings.text(key) == bad:
            yield Hit("HF305", settings.made[key][1], f"`{key}` is {bad}: {outcome}")
    for _, key, value, node in found.options:
        if (
            key.lower() == "failondataloss"
            and isinstance(value, Const)
            and str(value.value).lower() == "false"
        ):
            yield Hit("HF306", node, "failOnDataLoss is false")
    yield from _plain_hits(settings)
    yield from _page_hits(found)
    operators = [each for each in found.operators() if each.kind != "own" or not settings.own]
    if operators:
        yield from _stateful_hits(found)
        for name, _, node in found.own_calls:
            if name == "Memory":
                yield Hit("HF301", node, "the backend is hf.Memory")


def _room_hits(settings: Settings) -> Iterator[Hit]:
    """Cores that are too few for the partitions, and too little memory beside the heap for RocksDB."""
    text, cores = settings.text(SHUFFLE_PARTITIONS_KEY) or "", cores_of(settings.master, settings.text)
    if text.isdecimal() and cores is not None and too_many(int(text), cores):
        node = settings.made[SHUFFLE_PARTITIONS_KEY][1]
        yield Hit("HF312", node, f"{text} partitions are worked off by {cores} cores")
    budget, room = rocksdb_budget_mb(settings.text), room_beside_heap_mb(settings.master, settings.text)
    if budget is not None and room is not None and settings.known and budget >= room:
        key = next(
            key for key in (f"{STORE}rocksdb.maxMemoryUsageMB", BOUNDED_MEMORY_KEY) if key in settings.made
        )
        what = f"RocksDB may take {budget} MB, and an executor has {room} MB beside its heap"
        yield Hit("HF313", settings.made[key][1], what)


def _page_hits(found: Evaluated) -> Iterator[Hit]:
    settings = found.settings
    if settings.built is None or not settings.known or settings.own or _PAGES & settings.made.keys():
        return
    if any(writer.started is not None and not writer.ends for writer in found.writers):
        yield Hit("HF314", settings.built, "the session is built without a bound for what its pages keep")


def _plain_hits(settings: Settings) -> Iterator[Hit]:
    policy = f"{STREAMING}multipleWatermarkPolicy"
    if settings.text(policy) == "max":
        yield Hit("HF207", settings.made[policy][1], "the policy for several watermarks is max")
    retained = f"{STREAMING}minBatchesToRetain"
    text = settings.text(retained)
    if text is not None and text.isdecimal() and int(text) < _FEWEST_BATCHES:
        yield Hit("HF307", settings.made[retained][1], f"{text} batches are retained")
    changelog = f"{STORE}rocksdb.changelogCheckpointing.enabled"
    if settings.text(changelog) == "false":
        yield Hit("HF308", settings.made[changelog][1], "changelogCheckpointing is off")
    checksum = f"{STORE}rowChecksum.enabled"
    if settings.text(checksum) == "false":
        yield Hit("HF309", settings.made[checksum][1], "rowChecksum is off")
    form = f"{STORE}checkpointFormatVersion"
    if settings.text(form) == "1":
        yield Hit("HF310", settings.made[form][1], "checkpointFormatVersion is 1")


def _stateful_hits(found: Evaluated) -> Iterator[Hit]:
    settings = found.settings
    provider = settings.text(PROVIDER)
    if provider is not None and provider.rpartition(".")[2] == MEMORY_PROVIDER.rpartition(".")[2]:
        yield Hit("HF301", settings.made[PROVIDER][1], "the provider is HDFSBackedStateStoreProvider")
    if settings.text("spark.dynamicAllocation.enabled") == "true":
        node = settings.made["spark.dynamicAllocation.enabled"][1]
        yield Hit("HF311", node, "dynamicAllocation is on, and the query has state")
    bounded = f"{STORE}rocksdb.boundedMemoryUsage"
    unbounded = settings.text(bounded) == "false" or bounded not in settings.made
    if provider == ROCKSDB_PROVIDER and unbounded and settings.known and not settings.own:
        what = "is false" if bounded in settings.made else "is not set"
        node = settings.made[bounded if bounded in settings.made else PROVIDER][1]
        yield Hit("HF303", node, f"RocksDB is the provider, and boundedMemoryUsage {what}")
    yield from _room_hits(settings)
    if settings.built is None or not settings.known or settings.own:
        return
    if PROVIDER not in settings.made:
        yield Hit("HF302", settings.built, "the session is built without a provider, and the query has state")
    if "spark.sql.shuffle.partitions" not in settings.made:
        yield Hit("HF304", settings.built, "the session is built without spark.sql.shuffle.partitions")
