"""Counters that go on where a batch, a driver or a supervisor ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from holdfast.formats.operators import KEYED_WORDS, kind_in_words, short_name
from holdfast.formats.request_times import request_times
from holdfast.model import BatchProgress, OperatorProgress
from holdfast.observe.metrics import Sample, sample

# The labels of a counter behind the job's name: query, operator and operation, as far as it has them.
Key = tuple[str, tuple[str, ...]]

_OPERATIONS: Final = (
    ("get", "rocksdbGetCount", "rocksdbGetLatency"),
    ("put", "rocksdbPutCount", "rocksdbPutLatency"),
)


def operator_label(index: int, operator: OperatorProgress) -> str:
    """An operator as the metrics name it: its number in the plan, and what people call it."""
    return f"{index} {shown_name(operator)}"


def shown_name(operator: OperatorProgress) -> str:
    """What people call an operator."""
    return operator.display_name or short_name(operator.name)


def shown_kind(operator: OperatorProgress) -> str:
    """What an operator does, in words."""
    if operator.operator_kind is not None:
        return operator.operator_kind
    return kind_in_words(operator.name) if operator.keyed is None else KEYED_WORDS


def accesses(operator: OperatorProgress) -> dict[str, tuple[int, float]]:
    """Count the accesses of a batch to state by operation, with the seconds they took.

    RocksDB reports gets and puts, a store in a database its requests, the heap nothing. A keyed operator
    reports the keys that it looked up and wrote, because a row of its store is the blob of a key group.
    """
    keyed = operator.keyed
    if keyed is not None:
        return {"get": (keyed.touched, keyed.read_us / 1e6), "put": (keyed.written, keyed.write_us / 1e6)}
    store = operator.store
    requests = request_times(store)
    if requests is not None:
        return {"request": (requests.count, requests.seconds)}
    return {
        operation: (store[count], store.get(took_ms, 0) / 1000)
        for operation, count, took_ms in _OPERATIONS
        if count in store
    }


def repaired(operator: OperatorProgress) -> int:
    """The snapshots that Spark has repaired in a batch, whichever store it was."""
    store = operator.store
    return store.get("rocksdbNumSnapshotsAutoRepaired", 0) + store.get("numSnapshotsAutoRepaired", 0)


def _of_today(labels: tuple[str, ...]) -> tuple[str, ...]:
    """The labels of a counter of an older Holdfast, which had Spark's names of operators in them."""
    if len(labels) == 1:
        return labels
    number, _, name = labels[1].partition(" ")
    return labels[0], f"{number} {short_name(name)}", *labels[2:]


class Totals:
    """Sums over all batches of a job.

    Args:
        former: What was counted before, as `values` gave it.
    """

    def __init__(self, former: Mapping[Key, float] | None = None) -> None:
        self._sums: dict[Key, float] = defaultdict(float)
        for (metric, labels), value in (former or {}).items():
            self._sums[metric, _of_today(labels)] += value

    @property
    def values(self) -> dict[Key, float]:
        """The sums so far."""
        return dict(self._sums)

    def add(self, batch: BatchProgress) -> None:
        """Count a committed batch. One that ran again after a failure has cost what it cost, and counts."""
        query = (batch.query,)
        self._add("holdfast_batches_total", query, 1)
        self._add("holdfast_input_rows_total", query, batch.input_rows)
        self._add("holdfast_late_rows_total", query, batch.late_rows)
        for index, operator in enumerate(batch.operators):
            labels = (batch.query, operator_label(index, operator))
            self._add("holdfast_state_rows_updated_total", labels, operator.updated)
            self._add("holdfast_state_rows_removed_total", labels, operator.removed)
            self._add("holdfast_snapshots_repaired_total", labels, repaired(operator))
            for operation, (count, seconds) in accesses(operator).items():
                self._add("holdfast_state_operations_total", (*labels, operation), count)
                self._add("holdfast_state_operations_seconds_total", (*labels, operation), seconds)
            for state in () if operator.keyed is None else operator.keyed.states:
                self._add("holdfast_state_expired_total", (*labels, state.name), state.expired)

    def samples(self, job: str) -> list[Sample]:
        """The counters as they stand."""
        return [sample(metric, value, job, *labels) for (metric, labels), value in self._sums.items()]

    def _add(self, metric: str, labels: tuple[str, ...], value: float) -> None:
        self._sums[metric, labels] += value
