"""`hf.change`: several changes of a query's state in one copy, including new code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.changes.change import StateChange, StepOrder
from holdfast.changes.engine import Step
from holdfast.changes.evolving import ConvertState, EvolutionPlan
from holdfast.savepoints.access import ChangeSource
from holdfast.savepoints.address import Address
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Self

    from holdfast.jobs.processes.user_query import Target


class Change(StateChange):
    """A change of the state of a query, built step by step and carried out by `to`.

    These methods add a step and return the change: `edit`, `drop_expired` and `keep_newer_than` change rows,
    `split` changes the hot keys of a join,
    `code` converts the state for new code, `partitions`, `backend`, `database`, `state_format` and
    `key_groups` move it to a different layout, and `offsets` sets the offsets of sources. The steps are
    carried out in this order, whatever the order of the calls. `plan` returns the plan and changes nothing;
    `to` creates the new checkpoint.

    Args:
        source: A checkpoint that no query uses, or a savepoint.
        home: The state home, which may have an integrity record of the checkpoint; by default the one in
            effect here.

    Example:
        change = hf.change("checkpoints/orders")
        change.partitions(4).offsets(hf.ToRecord("orders", 0, at=12))
        plan = change.plan("checkpoints/orders-4")
        assert [step.step for step in plan.steps] == ["offsets", "partitions"]
    """

    def code(
        self,
        to: Target,
        *,
        old: Target | None = None,
        query: str | None = None,
        initial: Mapping[str, object] | None = None,
        rename: Mapping[str, str] | None = None,
        drop: Sequence[str] = (),
        merge: bool = False,
        overrides: Mapping[str, str] | None = None,
        conf: Mapping[str, str] | None = None,
        master: str | None = None,
        spark: SparkSession | None = None,
    ) -> Self:
        """Convert the state for new code; the arguments are those of `hf.evolve`.

        The executors of `master` also move the state to a different layout. With other steps, all is done on
        this machine.
        """
        from holdfast.jobs.trials.evolution import prepared_evolution, wishes_of  # it loads Spark's plans

        wishes = wishes_of(initial, rename, drop, merge=merge)
        home = None if self.home is None else Path(self.home)

        @contextmanager
        def prepared(source: ChangeSource, target: Storage) -> Iterator[tuple[EvolutionPlan, Step[Any]]]:
            with prepared_evolution(
                self.source, source, target, to, old, query, wishes, overrides, conf, master, home, spark
            ) as ready:
                yield ready.plan, ConvertState(ready.plan, ready.code, ready.shape, ready.accepts)

        self._masters[StepOrder.CODE] = master
        return self._add_step(StepOrder.CODE, prepared)


def change(source: Address, *, home: Address | None = None) -> Change:
    """Start a change of a query's state: methods add steps, and `to` carries them out on a copy.

    A checkpoint needs `to(…, stopped=True)`, which confirms that no query uses it; a savepoint needs none.

    Args:
        source: A checkpoint that no query uses, or a savepoint.
        home: The state home, which may have an integrity record of the checkpoint; by default the one in
            effect here.

    Example:
        changed = (
            hf.change("savepoints@daily")
            .edit("aggregate", where="customer = 'c9'", delete=True)
            .partitions(4)
            .to("checkpoints/visits-4")
        )
        assert [report.step for report in changed.reports] == ["edit", "partitions"]
        assert hf.checkpoints.read("checkpoints/visits-4").operators[0].partitions == 4
    """
    return Change(source, home=home)
