"""The implementation of `hf.change`: several steps on one copy of the state, published once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.changes.engine import ChangePlan, Step, carry_out, state_at_rest
from holdfast.changes.offsets.moving import OffsetRequest, SetOffsets
from holdfast.changes.offsets.moving import plan_offsets as planned_offsets
from holdfast.changes.partitions import MovePartitions, planned_rescale
from holdfast.changes.reshaping import BackendName, MoveToLayout, planned_migration
from holdfast.changes.working_copy import WorkingCopy, on_executors
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.config.checks import whole
from holdfast.errors import Invalid
from holdfast.formats.text import PARTITIONS
from holdfast.json_shapes import JsonShape, in_json, json_spread
from holdfast.ownership.usage import CheckpointUsage
from holdfast.savepoints.access import ChangeSource, move_of, source_guard, source_usage
from holdfast.savepoints.address import Address
from holdfast.savepoints.planning import changing
from holdfast.savepoints.restoring import RestoreKind, open_table, require_new
from holdfast.savepoints.view import workplace
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    from typing_extensions import Self

    from holdfast.changes.edit.deciders import TableChange
    from holdfast.changes.offsets.position_changes import OffsetChange
    from holdfast.changes.offsets.sources import NewSources

_ENDING: Final = "changed"


class StepOrder(IntEnum):
    """The order of steps: the sources are those of the new code before Spark plans it on its state."""

    ROWS = 1
    OFFSETS = 2
    SOURCES = 3
    CODE = 4
    LAYOUT = 5


@dataclass(frozen=True, slots=True)
class StepPlan(JsonShape):
    """The plan of one step.

    Attributes:
        step: The name of the step.
        plan: The plan, as the step's own command shows it.
    """

    step: str
    plan: Any


@dataclass(frozen=True, slots=True)
class StepsPlan(ChangePlan, JsonShape):
    """The plan of a change of several steps.

    Attributes:
        steps: The plan of each step, in the order of execution.
        table: The new directory of the file sink, whose log is prepared; None if there is none.
        usage: The evidence of queries that may be using the checkpoint; None if not collected.

    Example:
        plan: hf.StepsPlan = hf.change("checkpoints/orders").partitions(4).plan("checkpoints/orders-4")
        assert [step.step for step in plan.steps] == ["partitions"]
    """

    steps: tuple[StepPlan, ...]
    table: str | None = None
    usage: CheckpointUsage | None = None

    @property
    @in_json
    def operation(self) -> RestoreKind:
        """The operation: `change`."""
        return RestoreKind.CHANGE


@dataclass(frozen=True, slots=True)
class StepReport(JsonShape):
    """The report of one step.

    Attributes:
        step: The name of the step.
        report: The step's counts.
    """

    step: str
    report: Any


@dataclass(frozen=True, slots=True)
class ChangeReport(JsonShape):
    """A checkpoint that a change created.

    Attributes:
        plan: The executed plan.
        batch_id: The newest batch of the checkpoint, which is that of the source.
        reports: The report of each step.

    Example:
        report: hf.ChangeReport = hf.change("savepoints@daily").partitions(4).to("checkpoints/visits-4")
        assert report.batch_id == 11
        assert [step.step for step in report.reports] == ["partitions"]
    """

    plan: StepsPlan = field(metadata=json_spread())
    batch_id: int
    reports: tuple[StepReport, ...]

    @property
    def checkpoint(self) -> str:
        """The address of the checkpoint."""
        return self.plan.checkpoint


# The plan of a step, and the step with the resources that it needs until the change is complete.
Prepared = AbstractContextManager[tuple[Any, Step[Any]]]
# A function that prepares a step: it checks the step against the source, for a target.
Prepare = Callable[[ChangeSource, Storage], Prepared]


class StateChange:
    """A change of the state of a query, built step by step and executed by `to`.

    Steps are executed in a fixed order, regardless of the order of the calls: first rows are edited, expired
    or deleted, then the offsets are set, then the sources are those of the new code, then the state is
    converted for new code, then it is moved to a different layout.

    Args:
        source: A checkpoint that no query uses, or a savepoint.
        home: The state home, which may have an integrity record of the checkpoint; by default that of the
            settings.
    """

    def __init__(self, source: Address, *, home: Address | None = None) -> None:
        self.source = source
        self.home = home
        self._steps: list[tuple[StepOrder, Prepare]] = []
        self._layout: dict[str, Any] = {}
        self._masters: dict[StepOrder, str | None] = {}
        self._table: Address | None = None

    def partitions(self, number: int, *, master: str | None = None) -> Self:
        """Move the state to a different number of partitions.

        Args:
            number: The number of partitions.
            master: The master of a Spark cluster whose executors move the state, as in
                `hf.savepoints.rescale`, if the change only moves state to a different layout; otherwise, only
                of a session for keys that only Spark can move.
        """
        whole(number, "partitions", least=1, most=PARTITIONS)
        self._masters[StepOrder.LAYOUT] = master
        return self._in_layout(partitions=number)

    def backend(self, name: BackendName) -> Self:
        """Move the state to a backend: `rocksdb`, `memory`, `redis` or `cassandra`, as in `hf.migrate`."""
        return self._in_layout(backend=name)

    def database(self, address: str) -> Self:
        """Set the address of the database for the backends `redis` and `cassandra`."""
        return self._in_layout(database=address)

    def state_format(self, number: int) -> Self:
        """Write the state in a state-checkpoint format of RocksDB: 1 or 2."""
        return self._in_layout(state_format=number)

    def key_groups(self, number: int) -> Self:
        """Move the keys of keyed operators to a different number of key groups."""
        whole(number, "key_groups", least=1)
        return self._in_layout(key_groups=number)

    def edit(
        self,
        state: str,
        *,
        where: str | None = None,
        key: str | None = None,
        set: Mapping[str, Any] | None = None,  # noqa: A002 - as in `hf.edit`
        delete: bool = False,
        insert: Sequence[Mapping[str, Any]] = (),
        change: TableChange | None = None,
        why: str | None = None,
    ) -> Self:
        """Edit rows of one state; the arguments are those of `hf.edit`."""
        from holdfast.changes.edit_api import request
        from holdfast.changes.rows import EditRows

        asked = request(state, where, key, set, delete=delete, insert=insert, change=change)
        step = EditRows(asked, why)
        return self._add_step(StepOrder.ROWS, _simple(step, {"state": state, "statement": asked.statement}))

    def split(self, join: str, *, hot: Iterable[Any], parts: int | None = None) -> Self:
        """Change the hot keys of a join that `hf.split_hot(…).join_within(…)` splits.

        Args:
            join: The name of the join: the `name=` of `join_within`, by default "join".
            hot: The new hot keys: values, or tuples for several key columns; at least one.
            parts: The new number of parts of each key; by default it is kept.
        """
        from holdfast.changes.resplit import ResplitJoin

        step = ResplitJoin(join, hot, parts)

        def prepared(source: ChangeSource, _: Storage) -> Prepared:
            return nullcontext((step.plan(source.view()[0]), step))

        return self._add_step(StepOrder.ROWS, prepared)

    def drop_expired(self) -> Self:
        """Delete expired values of keyed state, as `hf.drop_expired` does."""
        from holdfast.changes.rows import DropExpired

        return self._add_step(StepOrder.ROWS, _simple(DropExpired(), {}))

    def keep_newer_than(self, when: datetime | date | str, *, column: str, state: str | None = None) -> Self:
        """Delete the rows whose time is before a given time.

        Args:
            when: The given time. A date, or a time without a zone, is in UTC.
            column: The column with the time of a row: a timestamp or a date. Rows without a time are kept.
            state: The only state to change; by default every state with the column.
        """
        from holdfast.changes.keep_newer_than import KeepNewerThan

        step = KeepNewerThan(when, column, state)

        def prepared(source: ChangeSource, _: Storage) -> Prepared:
            states = step.expressions(source.view()[0])
            return nullcontext(({"when": str(when), "column": column, "states": list(states)}, step))

        return self._add_step(StepOrder.ROWS, prepared)

    def offsets(
        self, *changes: OffsetChange, skip_files: Sequence[str] = (), files_of: str | None = None
    ) -> Self:
        """Set the offsets from which sources continue; the arguments are those of `hf.move_offsets`."""
        wanted = OffsetRequest(changes, skip_files, files_of)

        def prepared(source: ChangeSource, target: Storage) -> Prepared:
            plan = planned_offsets(source, target, wanted)
            return nullcontext((plan, SetOffsets(plan)))

        return self._add_step(StepOrder.OFFSETS, prepared)

    def sources(self, new: NewSources, *, drop: Sequence[str] = ()) -> Self:
        """Give the checkpoint the sources of the new code: added, removed, in a different order, or named.

        A continued source keeps its offset and the log of its files. A source that the new code adds starts
        as its code says, for example with `startingOffsets`.

        Args:
            new: Every source of the new code, with the source of the checkpoint that it continues, or None
                for one that the new code adds: a list in the order of the query, or for named sources a
                mapping by name. `hf.offsets` returns the sources of the checkpoint.
            drop: The sources of the checkpoint that the new code lacks; their offsets are lost.
        """
        given = dict(new) if isinstance(new, Mapping) else list(new)

        def prepared(source: ChangeSource, target: Storage) -> Prepared:
            from holdfast.changes.offsets.sources import SetSources, plan_sources

            plan = plan_sources(source, target, given, drop)
            return nullcontext((plan, SetSources(plan)))

        return self._add_step(StepOrder.SOURCES, prepared)

    def table(self, directory: Address) -> Self:
        """Prepare a new directory for the file sink of the new code, which wrote elsewhere before.

        A file sink needs a log entry of every batch since the newest compacted one. In an empty directory it
        fails at the next compaction, up to ten batches after the start. Sinks that write no files need no
        preparation.

        Args:
            directory: The directory, which is empty or does not exist.
        """
        self._table = directory
        return self

    def plan(self, checkpoint: Address | None = None) -> StepsPlan:
        """Plan the change. Changes nothing.

        Args:
            checkpoint: The new checkpoint; by default next to the old one, with the suffix `-changed`.

        Raises:
            As for `to`.
        """
        given, target = move_of(self.source, checkpoint, _ENDING, self.home)
        with self._prepared(given, target) as (plan, _):
            return replace(plan, usage=source_usage(given))

    def to(
        self,
        checkpoint: Address | None = None,
        *,
        stopped: bool = False,
        tell: ProgressCallback | None = None,
    ) -> ChangeReport:
        """Execute the change: create a checkpoint with the changed state.

        The source is copied once, by hard links if possible. Each step verifies its result on the copy, and
        the checkpoint is created after all verifications. The query continues after the same batch. Do not
        run a query on the old checkpoint afterwards.

        Args:
            checkpoint: The new checkpoint, a directory that does not exist; by default next to the old
                checkpoint, with the suffix `-changed`.
            stopped: True to confirm that no query uses the checkpoint. The confirmation is required for a
                checkpoint, not for a savepoint. The checkpoint is also watched for several seconds to two
                minutes.
            tell: The progress callback, called with the work done, the total, and the current step.

        Raises:
            Invalid: The change has no steps, or a step does not match the state.
            NotFound: The checkpoint or savepoint does not exist, or an object that a step names.
            Conflict: The target exists, a query uses the checkpoint, or the confirmation is missing.
            Corrupt: The source is damaged.
            Unsupported: A step does not support this type of state.
        """
        given, target = move_of(self.source, checkpoint, _ENDING, self.home)
        with (
            self._prepared(given, target) as (plan, steps),
            source_guard(given, "change", stopped=stopped, tell=tell) as guard,
            workplace(target, "change") as folder,
            on_executors(target, folder, "change", self._spread(plan)) as shared,
        ):
            reports = carry_out(
                given,
                target,
                plan,
                steps,
                RestoreKind.CHANGE,
                changing("nothing was changed", "state migrate"),
                folder,
                guard=guard,
                tell=tell,
                table=None if self._table is None else open_table(self._table, target),
                shared=shared,
            )
        named = tuple(StepReport(step.name, report) for step, report in zip(steps, reports, strict=True))
        return ChangeReport(plan, plan.batch_id, named)

    def _spread(self, plan: StepsPlan) -> str | None:
        """Return the master of the executors; None if a step does not run on them."""
        ranks = {rank for rank, _ in self._steps}
        by_spark = any(getattr(step.plan, "starts_spark", False) for step in plan.steps)
        if by_spark or not ranks <= {StepOrder.CODE, StepOrder.LAYOUT}:
            return None
        # The session that plans the code is the session of the executors, too.
        return self._masters.get(StepOrder.CODE if StepOrder.CODE in ranks else StepOrder.LAYOUT)

    def _add_step(self, rank: StepOrder, prepare: Prepare) -> Self:
        """Add a step with a position in the order."""
        self._steps.append((rank, prepare))
        return self

    def _in_layout(self, **asked: Any) -> Self:
        """Add options to the single step that moves the state to a different layout."""
        if not self._layout:
            self._add_step(StepOrder.LAYOUT, self._layout_step)
        self._layout.update(asked)
        return self

    def _layout_step(self, source: ChangeSource, target: Storage) -> Prepared:
        if set(self._layout) == {"partitions"}:
            number = self._layout["partitions"]
            step = _Partitions(number, self._masters.get(StepOrder.LAYOUT))
            return nullcontext((planned_rescale(source, target, number), step))
        plan = planned_migration(source, target, **self._layout)
        return nullcontext((plan, _Layout(dict(self._layout))))

    @contextmanager
    def _prepared(self, source: ChangeSource, target: Storage) -> Iterator[tuple[StepsPlan, list[Step[Any]]]]:
        if not self._steps and self._table is None:
            raise Invalid(
                "the change has no step",
                code="HF-E2044",
                hint="add a step before .plan()",
                where=source.uri,
                expected="at least one step, such as .partitions(64) or .code('new.py')",
            )
        state = state_at_rest(source, target, RestoreKind.CHANGE, needs_state=False)
        table = None if self._table is None else open_table(self._table, target)
        if table is not None:
            require_new(table, state.batch_id)
        with ExitStack() as stack:
            pairs = [
                stack.enter_context(prepare(source, target))
                for _, prepare in sorted(self._steps, key=lambda step: step[0])
            ]
            plans = tuple(StepPlan(step.name, plan) for plan, step in pairs)
            named = None if table is None else table.uri
            yield StepsPlan(*state.common(target), plans, named), [step for _, step in pairs]


def _simple(step: Step[Any], plan: Mapping[str, Any]) -> Prepare:
    """Return a preparation for a step that is checked only when executed."""
    return lambda _source, _target: nullcontext((plan, step))


@dataclass(frozen=True, slots=True)
class _Partitions:
    """The step that moves the state of the copy, after earlier steps, to a different number of partitions."""

    number: int
    master: str | None
    name: str = "partitions"

    def apply(self, work: WorkingCopy, folder: Path, tell: ProgressCallback | None) -> Any:
        """See `Step`."""
        from holdfast.engine.spark_state import repartitioning

        plan = planned_rescale(ChangeSource(work.checkpoint), LocalStorage(folder / "target"), self.number)
        return MovePartitions(plan, repartitioning(self.master)).apply(work, folder, tell)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The step that moves the state of the copy, after earlier steps, to a different layout."""

    asked: Mapping[str, Any]
    name: str = "layout"

    def apply(self, work: WorkingCopy, folder: Path, tell: ProgressCallback | None) -> Any:
        """See `Step`."""
        target = LocalStorage(folder / "target")
        plan = planned_migration(ChangeSource(work.checkpoint), target, **self.asked)
        states, _ = MoveToLayout(plan).apply(work, folder, tell)
        return states
