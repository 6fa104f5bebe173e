"""The verification that an edit made only the intended changes, for every row of the affected stores."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.state.contents import ContentSum, bare_rows
from holdfast.checkpoints.state.rows import store_chunks
from holdfast.checkpoints.state.states import OperatorStates, operator_states
from holdfast.errors import Internal
from holdfast.layout import StoreId
from holdfast.quantities import counted
from holdfast.savepoints.copying import followed
from holdfast.savepoints.store_edits import StoreChanges
from holdfast.storage.port import Storage

_Family = tuple[str, bytes]


def prove_stores(
    before: Storage, after: Storage, batch_id: int, changes: StoreChanges, tell: ProgressCallback | None
) -> None:
    """Verify the affected stores by comparing all their rows.

    Args:
        before: The savepoint that was edited.
        after: The new savepoint.
        batch_id: The batch of both savepoints.
        changes: The intended changes.
        tell: The progress callback, called with stores done, total stores, and the current step.

    Raises:
        Internal: An unchanged row differs, or a changed row does not have its new value.
    """
    operators, operators_after = (
        {operator.operator_id: operator for operator in operator_states(storage, batch_id)}
        for storage in (before, after)
    )
    for store, wanted in followed(changes.items(), tell, "reading back"):
        expected = {(row.family, row.key): row for row in wanted}
        had = _Content(before, operators[store.operator_id], store, expected)
        has = _Content(after, operators_after[store.operator_id], store, expected)
        there = {place: row.rows for place, row in expected.items() if row.rows is not None}
        if has.chosen != there:
            raise _differs(
                store,
                f"{counted(len(has.chosen), 'row')} that changed",
                f"{len(there)} with their new values",
            )
        for family in sorted(had.sums.keys() | has.sums.keys()):
            one, other = had.sum(family), has.sum(family)
            if (one.rows, one.digest()) != (other.rows, other.digest()):
                raise _differs(
                    store,
                    f"{counted(other.rows, 'row')} of {family} with hash {other.digest()[:12]}…",
                    f"{one.rows:,} with {one.digest()[:12]}…, as before",
                )


class _Content:
    """The rows of some keys of a store, and the sum of all other rows."""

    def __init__(
        self, storage: Storage, operator: OperatorStates, store: StoreId, keys: Mapping[_Family, object]
    ) -> None:
        self.sums: dict[str, ContentSum] = {}
        self.chosen: dict[_Family, tuple[bytes, ...]] = {}
        for codec, pairs in store_chunks(storage, operator, store):
            family = codec.name.family
            total = self.sum(family)
            rows, values = bare_rows(codec, pairs)
            chosen = [at for at, row in enumerate(rows) if (family, row) in keys]
            for at in chosen:
                self.chosen[family, rows[at]] = codec.values.rows(pairs[at][1], codec.where)[0]
            if chosen:
                out = frozenset(chosen)
                rows = [row for at, row in enumerate(rows) if at not in out]
                values = [value for at, value in enumerate(values) if at not in out]
            total.add(rows, values)

    def sum(self, family: str) -> ContentSum:
        """Return the sum of the other rows of a family."""
        return self.sums.setdefault(family, ContentSum())


def _differs(store: StoreId, found: str, expected: str) -> Internal:
    return Internal(
        "verification failed, so no savepoint was created: the rows of a store are wrong after the edit",
        code="HF-E9002",
        where=store.folder,
        found=found,
        expected=expected,
        hint="please report this; the edited savepoint is unchanged",
    )
