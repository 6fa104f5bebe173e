"""`hf.change`: several changes of a query's state in one copy, including new code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.changes.change import StateChange, StepOrder
from holdfast.changes.engine import Step
from holdfast.changes.evolving import ConvertState, EvolutionPlan
from holdfast.savepoints.access import Address, ChangeSource
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Self

    from holdfast.jobs.processes.user_query import Target


class Change(StateChange):
    """A change of the state of a query, built step by step and carried out by `to`.

    Steps are carried out in one order, whatever the order of the calls: rows are edited, expired or deleted,
    then the state is converted for new code, then moved to a different layout, then the offsets are set.
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
        """Convert the state for new code; the arguments are those of `hf.evolve`."""
        from holdfast.jobs.trials.evolution import prepared_evolution, wishes_of  # it loads Spark's plans

        wishes = wishes_of(initial, rename, drop, merge=merge)
        home = None if self.home is None else Path(self.home)

        @contextmanager
        def prepared(source: ChangeSource, target: Storage) -> Iterator[tuple[EvolutionPlan, Step[Any]]]:
            with prepared_evolution(
                self.source, source, target, to, old, query, wishes, overrides, conf, master, home, spark
            ) as ready:
                yield ready.plan, ConvertState(ready.plan, ready.code, ready.shape, ready.accepts)

        return self.add_step(StepOrder.CODE, prepared)


def change(source: Address, *, home: Address | None = None) -> Change:
    """Begin a change of a query's state: its methods add steps, and `to` carries them out.

    Example:
        ```python
        import holdfast as hf

        changed = (
            hf.change("checkpoints/orders")
            .partitions(64)
            .keep_newer_than("2026-11-01", column="last_seen")
            .to("checkpoints/orders-64", stopped=True)
        )
        print(changed.checkpoint, [step.step for step in changed.reports])
        ```

    Args:
        source: A checkpoint that is not in use, or a savepoint.
        home: The state home, which may have an integrity record of the checkpoint; by default the one in use.
    """
    return Change(source, home=home)
