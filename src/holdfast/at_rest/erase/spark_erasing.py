"""A key out of the states of Spark's operators: found partition by partition, and erased there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from holdfast.at_rest.edit.editable_state import EditableState, editable
from holdfast.at_rest.erase.certificate import Finding
from holdfast.at_rest.erase.matching import unsearched
from holdfast.at_rest.erase.purge import Cleansing, Matchers, Replaced, partition_changes
from holdfast.at_rest.erase.searching import Search, StoreHits
from holdfast.at_rest.read.model import NamedOperator
from holdfast.errors import Unsupported
from holdfast.layout import StoreId
from holdfast.savepoints.rewrite.store_changes import StoreChanges
from holdfast.savepoints.view import SavepointView
from holdfast.storage.port import Storage


@dataclass(frozen=True, slots=True)
class PartitionHits:
    """What was found in one partition of one operator; see `OperatorHits`."""

    operator: NamedOperator
    partition: int
    matchers: Matchers
    stores: tuple[StoreHits, ...]

    @property
    def by_value(self) -> bool:
        """Whether some of it cannot be told by the key."""
        return any(store.by_value for store in self.stores)

    @property
    def certain(self) -> bool:
        """Whether it was found in a row."""
        return any(hits.certain for store in self.stores for hits in store.files.values())

    def findings(self, view: Storage) -> tuple[Finding, ...]:
        """The rows that count, those included that only their values tell."""
        if self.by_value:
            return self._removal(view)[1]
        return tuple(
            Finding(f"{self.operator.name}.{label}", rows)
            for store in self.stores
            for label, rows in store.live(self.operator.files).items()
        )

    def erased(self, work: Cleansing, view: SavepointView) -> tuple[list[Replaced], tuple[Finding, ...]]:
        """Write what holds the key anew: file by file, or whole stores where values tell of it."""
        files = self.operator.files
        if not self.by_value:
            by_file = (work.by_key(view, files, store) for store in self.stores)
            return [replaced for store in by_file for replaced in store], self.findings(view)
        changes, findings = self._removal(view)
        touched = [store for store in self.stores if store.any or store.store in changes]
        return [work.flat(view, files, store, changes.get(store.store, ())) for store in touched], findings

    def _removal(self, view: Storage) -> tuple[StoreChanges, tuple[Finding, ...]]:
        changes, counts = partition_changes(
            view, self.operator.files, self.partition, _states(self.operator), self.matchers
        )
        return changes, tuple(
            Finding(f"{self.operator.name}.{label}", rows) for label, rows in counts.items()
        )


class SparkSearch(Search):
    """Looks for a subject in Spark's operators; see `OperatorSearch`."""

    def hits(self, view: SavepointView, operator: NamedOperator) -> Iterator[PartitionHits]:
        """What is in an operator, partition by partition.

        Raises:
            Unsupported: It is encoded as Avro.
        """
        files = operator.files
        if files.values.avro:
            raise Unsupported(
                "state that is encoded as Avro cannot be searched",
                where=f"operator {operator.named.label}",
                hint="delete the savepoints that have it",
            )
        matchers = self.matchers(files)
        for partition in range(operator.partitions) if matchers else ():
            stores = tuple(
                self.store(view, files, StoreId(operator.operator_id, partition, name), matchers)
                for name in files.store_names
            )
            if any(store.any for store in stores):
                yield PartitionHits(operator, partition, matchers, stores)

    def unsearched(self, operator: NamedOperator) -> Sequence[str]:
        """The states and columns in which nobody can look for it."""
        return [
            f"{codec.name.label}.{column}"
            for codec in operator.files.known()
            if codec.schema is not None and not codec.name.internal
            for column in unsearched(codec, self._subject)
        ]

    def may_hold(self, operator: NamedOperator) -> Callable[[bytes], bool]:
        """Says of the bytes of rows whether they may be of it; never no about those that are."""
        matchers = list(self.matchers(operator.files).values())
        return lambda data: any(matcher.may_have(data, b"") for matcher in matchers)


def _states(operator: NamedOperator) -> list[EditableState]:
    states = []
    for state in operator.states:
        if state.codec is not None:
            with suppress(Unsupported):  # an index, which follows the rows that it is of
                states.append(editable(operator, state))
    return states
