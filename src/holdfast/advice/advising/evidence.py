"""All that is known where advice is given: files, settings, batches, and what people say they need."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from holdfast import layout
from holdfast.advice.advising.figures import ROCKSDB, Measured
from holdfast.advice.cost.prices import Prices
from holdfast.advice.facts.checkpoint_facts import CheckpointFacts, read_facts
from holdfast.advice.facts.place import Place, place_of
from holdfast.checkpoints.logs.logs import Logs
from holdfast.checkpoints.values import Checkpoint, Operator
from holdfast.config.spark_defaults import SHUFFLE_PARTITIONS_KEY
from holdfast.layout import StoreId
from holdfast.model import BatchProgress
from holdfast.storage.port import Storage

DAY_MS: Final = 86_400_000
# Of so many of the newest batches the times are looked at.
_LOOKED_AT: Final = 24
# A job tells something of how it runs once so many batches of it are remembered.
FEWEST_BATCHES: Final = 10
_NEWEST: Final = 100


@dataclass(frozen=True, slots=True)
class Needs:
    """What people say of their cluster and of what they need; None where they say nothing.

    Attributes:
        cores: Cores that run tasks.
        latency_ms: How late a result may be.
        shared: Whether other services read the state.
        confs: Settings of the session that a checkpoint does not fix.
        own_session: Whether the session is Holdfast's, which has defaults of its own.
    """

    cores: int | None = None
    latency_ms: int | None = None
    shared: bool = False
    confs: Mapping[str, str] = field(default_factory=dict)
    own_session: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a checkpoint.

    Attributes:
        facts: What lint looks at.
        place: Where the checkpoint is.
        gap_ms: From the plan of one batch to that of the next, in the median; None of a single batch.
        span_ms: From the first to the last batch of which sizes are known; None where that is not told.
        kept_bytes: All files of state that are kept, reckoned from the first partitions.
        batches: What a state home remembers of the job's batches, oldest first.
        needs: What people say.
        figures: What backends take.
        prices: What bytes and requests cost.
    """

    facts: CheckpointFacts
    place: Place
    gap_ms: float | None
    span_ms: int | None
    kept_bytes: int
    batches: Sequence[BatchProgress]
    needs: Needs
    figures: Measured
    prices: Prices

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint at its newest batch."""
        return self.facts.checkpoint

    @property
    def batches_a_day(self) -> float | None:
        """How many batches there are in a day, at the pace of the newest ones."""
        return None if not self.gap_ms else DAY_MS / self.gap_ms

    @property
    def settled(self) -> Sequence[BatchProgress]:
        """The newest batches that had rows; none where there are too few to say anything."""
        with_rows = [batch for batch in self.batches if batch.input_rows][-_NEWEST:]
        return with_rows if len(with_rows) >= FEWEST_BATCHES else ()

    @property
    def batch_ms(self) -> float | None:
        """What a batch takes, in the median."""
        return statistics.median(batch.duration_ms for batch in self.settled) if self.settled else None

    @property
    def work_ms(self) -> float | None:
        """What the tasks of a batch take of that, in the median."""
        works = [batch.phases_ms["addBatch"] for batch in self.settled if "addBatch" in batch.phases_ms]
        return statistics.median(works) if works else None

    @property
    def partitions(self) -> int:
        """The partitions of the state that goes by keys."""
        spread = [operator.partitions for operator in self.checkpoint.operators if not operator.gathered]
        fixed = self.checkpoint.confs.get(SHUFFLE_PARTITIONS_KEY, "1")
        return max(spread, default=int(fixed) if fixed.isdecimal() else 1)

    @property
    def stores(self) -> int:
        """How many stores there are in files: each writes one in each batch."""
        if self.checkpoint.external is not None:
            return 0
        return sum(len(operator.stores) for operator in self.checkpoint.operators)

    @property
    def rows(self) -> int | None:
        """Rows in the state, as the bases or the newest batch count them."""
        counts = [operator.base_keys for operator in self.checkpoint.operators]
        known = [count for count in counts if count is not None]
        if counts and len(known) == len(counts):
            return sum(known)
        return self.batches[-1].state_rows if self.batches and self.batches[-1].operators else None

    @property
    def keys(self) -> float:
        """Rows in the state; where nobody counts them, as many as its bytes are of the measurement's rows."""
        if self.rows is not None:
            return self.rows
        return self.checkpoint.size_bytes / self.figures.of(ROCKSDB).bytes_a_key

    @property
    def loading_tasks(self) -> int:
        """How many tasks load state side by side; two, as in the measurement, where nobody says the cores."""
        return max(1, min(self.partitions, self.needs.cores or 2))

    def conf(self, key: str) -> str | None:
        """A setting: as people give it, else as the checkpoint has fixed it."""
        return self.needs.confs.get(key, self.checkpoint.confs.get(key))


def read_evidence(
    storage: Storage, batches: Sequence[BatchProgress], needs: Needs, measured: Measured, prices: Prices
) -> Evidence:
    """Read what a checkpoint tells.

    Cost: as `read_facts`, and the offset logs of some 24 batches, and the sizes of all files of the first
        partition of each operator.

    Raises:
        NotFound: There is no checkpoint.
        Corrupt: A file that was read is damaged.
        Unavailable: The storage does not answer.
    """
    facts = read_facts(storage)
    logs = Logs(storage)
    # What a database has is in no file of the checkpoint.
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


def _kept_bytes(storage: Storage, operator: Operator) -> int:
    """The files of an operator's state, as if all partitions kept as much, for their size, as the first."""
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
