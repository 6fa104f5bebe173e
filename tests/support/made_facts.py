"""What a checkpoint tells, made by hand: nothing is wrong with it but what is given."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.advice.checkpoint_checks import CheckpointFacts, FileCounts
from holdfast.checkpoints.checkpoint import CheckpointReport, StatefulOperator, Store
from holdfast.config.spark_defaults import ROCKSDB_PROVIDER
from holdfast.formats.logs.batch_logs import PROVIDER
from holdfast.formats.operators import operator_names
from holdfast.layout import FileKind, StoreFile, StoreId

MB = 1 << 20
WITH_CHANGELOG = FileCounts(2, 20)


def facts(
    sizes: list[int] | None = None,
    *,
    name: str = "stateStoreSave",
    partitions: int = 4,
    store_bytes: list[int] | None = None,
    rows: int | None = 1000,
    confs: Mapping[str, str] | None = None,
    batch_id: int = 50,
    kept: int = 20,
    watermark_ms: int | None = 1,
    watermarks: tuple[int | None, int | None] = (1, 2),
    form: int = 2,
    files: FileCounts = WITH_CHANGELOG,
    provider: str = ROCKSDB_PROVIDER,
    changes: int = 0,
    new_bytes: int = 0,
    uri: str = "memory://ck",
    log: int = 1,
) -> CheckpointFacts:
    """A checkpoint with nothing wrong, but for what is given."""
    given = store_bytes or [MB] * partitions
    stores = tuple(
        Store(StoreId(0, partition), batch_id + 1, chain(partition, changes), None, size, new_bytes, rows)
        for partition, size in enumerate(given)
    )
    named = operator_names({0: name})[0]
    operator = StatefulOperator(
        0, name, len(given), False, ("default",), form, (), stores, 1, named, noted=True
    )
    committed = tuple(range(batch_id - kept + 1, batch_id + 1))
    checkpoint = CheckpointReport(
        uri=uri,
        query_id="q",
        offered=committed,
        committed=committed,
        batch_id=batch_id,
        watermark_ms=watermark_ms,
        planned_ms=0,
        confs={PROVIDER: provider, **(confs or {})},
        sources=(),
        operators=(operator,),
        log_versions=(log, 1),
    )
    series = {batch: {0: size} for batch, size in enumerate(sizes or [MB] * 12, start=10)}
    return CheckpointFacts(checkpoint, series, watermarks, {0: files})


def chain(partition: int, changes: int) -> tuple[StoreFile, ...]:
    """The files of a store: a base, and so many changes since."""
    store = StoreId(0, partition)
    later = (StoreFile(store, version, FileKind.CHANGELOG) for version in range(2, changes + 2))
    return (StoreFile(store, 1, FileKind.ZIP), *later)
