"""The facts behind advice: files, settings, batches, needs and measured backends."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from holdfast import layout
from holdfast.advice.checkpoint_checks import CheckpointFacts, CheckpointLocation, place_of, read_facts
from holdfast.advice.prices import Prices
from holdfast.checkpoints.checkpoint import CheckpointReport, StatefulOperator
from holdfast.checkpoints.logs import Logs
from holdfast.config.spark_defaults import SHUFFLE_PARTITIONS_KEY
from holdfast.errors import Invalid, NotFound
from holdfast.layout import StoreId
from holdfast.model import BatchProgress
from holdfast.storage.port import Storage

MEMORY, ROCKSDB, REDIS, CASSANDRA = "memory", "rocksdb", "redis", "cassandra"
BACKENDS: Final = (MEMORY, ROCKSDB, REDIS, CASSANDRA)
# The size of one row in the measurement: a number as the key, a count and a sum.
VALUE_BYTES: Final = 16
# The number of tasks that ran in parallel in the measurement.
TASKS: Final = 2
_LARGEST_FILE: Final = 16 << 20
_HINT: Final = "create the file with `holdfast bench backends --json > backends.json`"


@dataclass(frozen=True, slots=True)
class Figures:
    """The measurements of one backend.

    Attributes:
        rows_a_second: Rows processed per second, in batches that change most keys.
        read_us: Median time of one key read, in microseconds.
        bytes_a_key: Bytes per key, including all kept versions.
        recovery_ms: Time of the first batch after a restart in milliseconds, by the number of keys.
    """

    rows_a_second: float
    read_us: float
    bytes_a_key: float
    recovery_ms: Mapping[int, float]

    def recovery(self, keys: float, tasks: int = TASKS) -> float:
        """Return the duration of a restart in milliseconds, for a number of keys and parallel tasks."""
        least, most = min(self.recovery_ms), max(self.recovery_ms)
        fixed = self.recovery_ms[least]
        a_key = max(self.recovery_ms[most] - fixed, 0.0) / (most - least)
        return fixed + a_key * max(keys - least, 0) * TASKS / max(tasks, 1)

    def state_bytes(self, keys: float, value_bytes: float = VALUE_BYTES) -> int:
        """Return the size of the state in bytes, for a number of keys with values of a given size."""
        return round(keys * (self.bytes_a_key + value_bytes - VALUE_BYTES))


# The guide's measurements; docs/guides/which-backend.md has the same.
GUIDE: Final[Mapping[str, Figures]] = {
    MEMORY: Figures(357_800, 0.6, 104, {10_000: 300, 100_000: 344, 1_000_000: 1_626}),
    ROCKSDB: Figures(265_100, 2.8, 139, {10_000: 414, 100_000: 722, 1_000_000: 3_676}),
    REDIS: Figures(184_900, 72, 752, {10_000: 272, 100_000: 318, 1_000_000: 365}),
    CASSANDRA: Figures(65_600, 900, 137, {10_000: 569, 100_000: 730, 1_000_000: 588}),
}
GUIDE_TEXT: Final = (
    "the guide `Which backend?`, measured on two cores; `--measured` takes your own measurements"
)


@dataclass(frozen=True, slots=True)
class MeasuredBackends:
    """Backend measurements, and their source."""

    by_backend: Mapping[str, Figures]
    source: str

    def of(self, backend: str) -> Figures:
        """Return the measurements of a backend."""
        return self.by_backend[backend]


def figures(file: str | os.PathLike[str] | None) -> MeasuredBackends:
    """Return the measurements in a file of `holdfast bench backends --json`; without a file, the guide's.

    Backends missing from the file keep the guide's measurements.

    Raises:
        NotFound: The file does not exist.
        Invalid: The file has a different format.
    """
    if file is None:
        return MeasuredBackends(GUIDE, GUIDE_TEXT)
    where = os.fspath(file)
    own = {name: _figures_of(side, where, name) for name, side in _sides(where).items() if name in BACKENDS}
    if not own:
        raise _wrong(where, "no known backend", ", ".join(BACKENDS))
    rest = [name for name in BACKENDS if name not in own]
    of_rest = f"; {' and '.join(rest)} from the guide" if rest else ""
    return MeasuredBackends({**GUIDE, **own}, f"your measurements, {where}{of_rest}")


def _sides(where: str) -> Mapping[str, Any]:
    path = Path(where)
    try:
        if not path.exists():
            raise NotFound("the measurement file does not exist", code="HF-E3002", where=where, hint=_HINT)
        if not path.is_file() or path.stat().st_size > _LARGEST_FILE:
            raise _wrong(
                where, "not a regular file, or too large", "the JSON output of `holdfast bench backends`"
            )
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _wrong(where, str(error), "the JSON output of `holdfast bench backends`") from error
    bench = content.get("backends") if isinstance(content, dict) else None
    sides = bench.get("sides") if isinstance(bench, dict) else None
    sizes = bench.get("sizes") if isinstance(bench, dict) else None
    if not isinstance(sides, dict) or not isinstance(sizes, dict):
        raise _wrong(where, "no backend measurements", "`backends` with `sizes` and `sides`")
    rows = sizes.get("rows")
    return {
        name: {**side, "batch_rows": rows} if isinstance(side, dict) else side for name, side in sides.items()
    }


def _figures_of(side: Any, where: str, name: str) -> Figures:
    try:
        batch_s = statistics.median(_positive(second) for second in side["batch_s"])
        recovery = {
            int(keys): 1000 * statistics.median(_positive(second) for second in seconds)
            for keys, seconds in side["recovery_s"].items()
        }
        read_us = _positive(side["get_us"]["p50"])
        rows_a_second = _positive(side["batch_rows"]) / batch_s
        bytes_a_key = _positive(side["state_bytes"]) / _positive(side["rows"])
    except (KeyError, TypeError, AttributeError, ValueError, statistics.StatisticsError) as error:
        raise _wrong(
            f"{where}: backends.sides.{name}", repr(error), "the values that `holdfast bench backends` writes"
        ) from error
    if len(recovery) < 2 or min(recovery) < 1:
        raise _wrong(f"{where}: backends.sides.{name}", f"{len(recovery)} recovery times", "at least two")
    return Figures(rows_a_second, read_us, bytes_a_key, recovery)


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is not a number")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{value!r} is not positive")
    return float(value)


def _wrong(where: str, found: str, expected: str) -> Invalid:
    return Invalid(
        "invalid measurement file",
        code="HF-E2004",
        where=where,
        found=found,
        expected=expected,
        hint=_HINT,
    )


DAY_MS: Final = 86_400_000
# The number of newest batches whose times are used.
_LOOKED_AT: Final = 24
# The minimum number of recorded batches for facts about a job.
FEWEST_BATCHES: Final = 10
_NEWEST: Final = 100


@dataclass(frozen=True, slots=True)
class Needs:
    """The given resources and needs; None if not given.

    Attributes:
        cores: Cores that run tasks.
        latency_ms: The accepted delay of a result, in milliseconds.
        shared: Whether other services read the state.
        confs: Session settings that a checkpoint does not record.
        own_session: Whether the session is Holdfast's, with Holdfast's defaults.
    """

    cores: int | None = None
    latency_ms: int | None = None
    shared: bool = False
    confs: Mapping[str, str] = field(default_factory=dict)
    own_session: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts of a checkpoint.

    Attributes:
        facts: The facts that lint checks.
        place: The location of the checkpoint, with its durability.
        gap_ms: The median time from the planning of one batch to that of the next; None for a single batch.
        span_ms: The time from the first to the last batch with known sizes; None if unknown.
        kept_bytes: Bytes of all kept state files, estimated from the first partitions.
        batches: The batches recorded in a state home, oldest first.
        needs: The given resources and needs.
        figures: The backend measurements.
        prices: The prices used.
    """

    facts: CheckpointFacts
    place: CheckpointLocation
    gap_ms: float | None
    span_ms: int | None
    kept_bytes: int
    batches: Sequence[BatchProgress]
    needs: Needs
    figures: MeasuredBackends
    prices: Prices

    @property
    def checkpoint(self) -> CheckpointReport:
        """The checkpoint at its newest batch."""
        return self.facts.checkpoint

    @property
    def batches_a_day(self) -> float | None:
        """Return the number of batches per day, at the pace of the newest ones."""
        return None if not self.gap_ms else DAY_MS / self.gap_ms

    @property
    def settled(self) -> Sequence[BatchProgress]:
        """Return the newest batches with rows; empty if there are too few."""
        with_rows = [batch for batch in self.batches if batch.input_rows][-_NEWEST:]
        return with_rows if len(with_rows) >= FEWEST_BATCHES else ()

    @property
    def batch_ms(self) -> float | None:
        """Return the median duration of a batch, in milliseconds; None with too few batches."""
        return statistics.median(batch.duration_ms for batch in self.settled) if self.settled else None

    @property
    def work_ms(self) -> float | None:
        """Return the median duration of Spark's phase `addBatch`, in milliseconds; None if it is unknown."""
        works = [batch.phases_ms["addBatch"] for batch in self.settled if "addBatch" in batch.phases_ms]
        return statistics.median(works) if works else None

    @property
    def partitions(self) -> int:
        """Return the number of partitions of keyed state."""
        spread = [operator.partitions for operator in self.checkpoint.operators if not operator.gathered]
        fixed = self.checkpoint.confs.get(SHUFFLE_PARTITIONS_KEY, "1")
        return max(spread, default=int(fixed) if fixed.isdecimal() else 1)

    @property
    def stores(self) -> int:
        """Return the number of stores that are stored in files, all of which each batch writes."""
        if self.checkpoint.external is not None:
            return 0
        return sum(len(operator.stores) for operator in self.checkpoint.operators)

    @property
    def rows(self) -> int | None:
        """Return the number of rows in the state, from the bases or the newest batch; None if unknown."""
        counts = [operator.base_keys for operator in self.checkpoint.operators]
        known = [count for count in counts if count is not None]
        if counts and len(known) == len(counts):
            return sum(known)
        return self.batches[-1].state_rows if self.batches and self.batches[-1].operators else None

    @property
    def keys(self) -> float:
        """Return the number of rows in the state, estimated from its bytes if it is not recorded."""
        if self.rows is not None:
            return self.rows
        return self.checkpoint.size_bytes / self.figures.of(ROCKSDB).bytes_a_key

    @property
    def loading_tasks(self) -> int:
        """Return the number of tasks that load state in parallel; two if the cores are unknown."""
        return max(1, min(self.partitions, self.needs.cores or 2))

    def conf(self, key: str) -> str | None:
        """Return a setting, as given or as recorded in the checkpoint."""
        return self.needs.confs.get(key, self.checkpoint.confs.get(key))


def read_evidence(
    storage: Storage,
    batches: Sequence[BatchProgress],
    needs: Needs,
    measured: MeasuredBackends,
    prices: Prices,
) -> Evidence:
    """Read the evidence of a checkpoint.

    Cost: that of `read_facts`; also reads the offset logs of about 24 batches and the sizes of all files of
    the first partition of each operator.

    Raises:
        NotFound: The checkpoint does not exist.
        Corrupt: A file that was read is damaged.
        Unavailable: The storage does not answer.
    """
    facts = read_facts(storage)
    logs = Logs(storage)
    # No file of the checkpoint records the content of a database.
    in_files = facts.checkpoint.operators if facts.checkpoint.external is None else ()
    kept = sum(_kept_bytes(storage, operator) for operator in in_files)
    gap_ms = _gap_ms(_planned(logs, logs.offered[-_LOOKED_AT:]))
    span = _planned(logs, (min(facts.sizes), max(facts.sizes))) if facts.sizes else []
    span_ms = span[-1] - span[0] if len(span) == 2 and span[-1] > span[0] else None
    place = place_of(facts.checkpoint.uri)
    return Evidence(facts, place, gap_ms, span_ms, kept, batches, needs, measured, prices)


def _planned(logs: Logs, batches: Iterable[int]) -> list[int]:
    planned = (logs.offsets(batch_id) for batch_id in batches)
    return [offsets.timestamp_ms for offsets in planned if offsets is not None]


def _gap_ms(times: Sequence[int]) -> float | None:
    gaps = [later - earlier for earlier, later in pairwise(times) if later > earlier]
    return statistics.median(gaps) if gaps else None


def _kept_bytes(storage: Storage, operator: StatefulOperator) -> int:
    """Estimate the bytes of an operator's state files from those of its first partition."""
    if not operator.stores:
        return 0
    first = min(store.id.partition for store in operator.stores)
    needed = sum(store.size_bytes for store in operator.stores if store.id.partition == first)
    kept = 0
    for name in operator.store_names:
        folder = StoreId(operator.operator_id, first, name).folder
        for inner in (folder, layout.join(folder, layout.SSTS), layout.join(folder, layout.LOGS)):
            listing = storage.list(inner)
            kept += sum(listing.size(file) or 0 for file in listing.names)
    return kept if not needed else round(kept * operator.size_bytes / needed)
