"""Convert the state of Spark's own operators for new code: `hf.evolve`.

Spark plans a first batch of the new code on an empty checkpoint, which shows the state layout of each
operator. The rows of the saved state are converted to it without Spark, in a copy. Before the copy is
published, Spark plans the next batch of the new code on it, which shows that it accepts the copy.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.at_rest.keyed_operators import stored_names
from holdfast.changes.engine import state_at_rest
from holdfast.changes.evolving import (
    EvolutionPlan,
    Evolved,
    NewCode,
    apply_evolution,
    operator_columns,
    steps_for,
)
from holdfast.changes.join_columns import JOIN_FORMAT, wanted_format
from holdfast.changes.operator_matching import Wishes
from holdfast.changes.rewriting import StateShape
from holdfast.changes.working_copy import on_executors
from holdfast.checkpoints.checkpoint import ProgressCallback, read
from holdfast.checkpoints.state.states import OperatorShape, shapes
from holdfast.config.spark_defaults import FORMAT_KEY, SHORT_LIVED
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.logs.notes import QueryPlan
from holdfast.jobs.definition import Job
from holdfast.jobs.processes.user_query import Code, built, loaded, session_for
from holdfast.jobs.trials.compatibility import old_plan, unfit_for_evolution
from holdfast.model import Effect, PlanChange
from holdfast.quantities import counted
from holdfast.savepoints.access import ChangeSource, move_of, source_guard, source_usage
from holdfast.savepoints.address import Address
from holdfast.savepoints.dry_run_checkpoint import DryRunCheckpoint, lay_out, lay_out_first, open_saved
from holdfast.savepoints.plan_changes import compare_plans, moved_sources
from holdfast.savepoints.restoring import RestoreKind
from holdfast.savepoints.view import workplace
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.jobs.processes.user_query import Target

_STATEFUL: Final = ("aggregation", "deduplication")


@dataclass(frozen=True, slots=True)
class Evolution:
    """A planned evolution.

    Attributes:
        plan: The plan.
        code: The state of the new code's operators.
        shape: The layout of the state.
        accepts: Raises if Spark does not accept a checkpoint for the new code.
    """

    plan: EvolutionPlan
    code: NewCode
    shape: StateShape
    accepts: Callable[[Storage], None]


def evolve(
    source: Address,
    checkpoint: Address | None = None,
    *,
    to: Target,
    old: Target | None = None,
    query: str | None = None,
    initial: Mapping[str, object] | None = None,
    rename: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
    merge: bool = False,
    overrides: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    master: str | None = None,
    home: str | Path | None = None,
    stopped: bool = False,
    spark: SparkSession | None = None,
    tell: ProgressCallback | None = None,
) -> Evolved:
    """Create a checkpoint from which new code of a query continues with the converted state.

    Columns of aggregations, session windows, deduplication and the sides of joins may be new, removed,
    renamed or widened, and any stateful operator may be inserted, removed or moved. Operators and columns are
    matched by name. Values of columns that are kept are exact; a new aggregate starts with its initial value
    and continues with new rows. The source is not changed. The query resumes after the same batch. Do not run
    a query on the old checkpoint afterwards.

    Cost: a local Spark session for some seconds; then all state is read three times and written once,
    without Spark or, with `master`, by its executors. If grouping columns are dropped, the rows of up to 32
    partitions at a time are held in memory to find equal keys.

    Args:
        source: A checkpoint that no query uses, or a savepoint.
        checkpoint: A new directory; by default next to the checkpoint, with the suffix `-evolved`.
        to: The new code: `FILE.py[:JOB]`, a job, a sink, or a `DataStreamWriter`.
        old: The code that made the state, for a query that did not run under Holdfast. Without it the columns
            of aggregates are identified by Spark's names.
        query: The sink's name, for a job with several.
        initial: Initial values of new columns for existing rows: aggregates and grouping columns, by name,
            and columns of a join's side as `left.NAME` or `right.NAME`.
        rename: New names by old ones, of columns and operators that are not matched otherwise. A column may
            be prefixed with its operator's number: `0.customer`.
        drop: Columns and operators whose state is discarded, if that is ambiguous.
        merge: Merge rows that get the same key because a grouping column was removed; refused if that is not
            exact.
        overrides: Settings and parameters of the job, as in `holdfast run --set`.
        conf: Spark settings of the session. `spark.sql.streaming.join.stateFormatVersion`, 2 or 3, also
            converts the state of joins to this format.
        master: The Spark master; by default local, regardless of the job's own. If it is given, its executors
            read, convert and write the state, as in `hf.savepoints.rescale`.
        home: The state home.
        stopped: Your confirmation that no query uses the checkpoint, which is required; a savepoint needs
            none.
        spark: The session to use; by default one is started and stopped. A sink or writer has its own.
        tell: Called with the number of finished steps, the number of all steps, and the current step.

    Raises:
        Invalid: Operators or columns are ambiguous, a new column has no initial value, or rows get the same
            key.
        Unsupported: A state cannot be converted, or Spark does not accept the result.
        Conflict: The target exists, or the checkpoint is or may be in use.
        NotFound: The file, job, savepoint or checkpoint does not exist.
        Corrupt: The source is damaged.

    Example:
        from pyspark.sql import functions as F

        amount = F.col("amount").cast("long")
        customers = events.groupBy("customer")
        spending = customers.agg(F.count("*"), F.sum(amount), F.max("amount").alias("largest"))
        evolved = hf.evolve(
            "savepoints@daily", "checkpoints/spending", to=spending.writeStream.outputMode("update")
        )
        assert evolved.rows == 10  # every customer keeps the count and the sum
    """
    wishes = wishes_of(initial, rename, drop, merge=merge)
    given, target = move_of(source, checkpoint, "evolved", home)
    with (
        prepared_evolution(
            source, given, target, to, old, query, wishes, overrides, conf, master, home, spark
        ) as ready,
        source_guard(given, "state migrate --code", stopped=stopped, tell=tell) as guard,
        workplace(target, "evolve") as work,
        on_executors(target, work, "evolve", master) as shared,
    ):
        return apply_evolution(
            given,
            target,
            ready.plan,
            ready.code,
            work,
            shape=ready.shape,
            accepts=ready.accepts,
            tell=tell,
            guard=guard,
            shared=shared,
        )


def plan_evolve(
    source: Address,
    checkpoint: Address | None = None,
    *,
    to: Target,
    old: Target | None = None,
    query: str | None = None,
    initial: Mapping[str, object] | None = None,
    rename: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
    merge: bool = False,
    overrides: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    master: str | None = None,
    home: str | Path | None = None,
    spark: SparkSession | None = None,
) -> EvolutionPlan:
    """Plan an evolution. Changes nothing and reads no rows.

    The arguments are those of `evolve`.

    Raises:
        As `evolve`.

    Example:
        from pyspark.sql import functions as F

        amount = F.col("amount").cast("long")
        customers = events.groupBy("customer")
        spending = customers.agg(F.count("*"), F.sum(amount), F.max("amount").alias("largest"))
        plan = hf.plan_evolve("savepoints@daily", to=spending.writeStream.outputMode("update"))
        [aggregate] = plan.operators
        assert [(column.column, column.change) for column in aggregate.columns][-1] == ("largest", "new")
    """
    wishes = wishes_of(initial, rename, drop, merge=merge)
    given, target = move_of(source, checkpoint, "evolved", home)
    with prepared_evolution(
        source, given, target, to, old, query, wishes, overrides, conf, master, home, spark
    ) as ready:
        return replace(ready.plan, usage=source_usage(given))


def wishes_of(
    initial: Mapping[str, object] | None,
    rename: Mapping[str, str] | None,
    drop: Sequence[str],
    *,
    merge: bool,
) -> Wishes:
    """Return a caller's arguments about columns and operators."""
    starts = {name: _text(value) for name, value in (initial or {}).items()}
    return Wishes(dict(rename or {}), frozenset(drop), starts, merge)


def _text(value: object) -> str:
    return "null" if value is None else str(value)


@contextmanager
def prepared_evolution(
    source: Address,
    given: ChangeSource,
    target: Storage,
    to: Target,
    old: Target | None,
    query: str | None,
    wishes: Wishes,
    overrides: Mapping[str, str] | None,
    conf: Mapping[str, str] | None,
    master: str | None,
    home: str | Path | None,
    spark: SparkSession | None,
) -> Iterator[Evolution]:
    """Plan an evolution, and hold the Spark session of the new code until it is carried out.

    The arguments are those of `evolve`; `given` is the opened source.

    Raises:
        As `evolve`.
    """
    state = state_at_rest(given, target, RestoreKind.EVOLVE, needs_state=False)
    saved = open_saved(os.fspath(source))
    unfit = unfit_for_evolution(saved)
    if unfit is not None:
        raise unfit
    new = loaded(to, overrides)
    job = new if isinstance(new, Job) else None
    wanted = {**SHORT_LIVED, **({} if job is None else job.spark_conf()), **(conf or {})}
    with (
        session_for(new, wanted, master, home, spark, "evolve") as session,
        tempfile.TemporaryDirectory(prefix="holdfast-evolve-") as name,
    ):
        folder = Path(name).resolve()
        code = built(new, session, query)
        before, _ = old_plan(old, saved, session, query)
        join_format = wanted_format(conf, saved.offsets.confs)
        frame, planned = _planned(code, saved, folder, join_format)
        shape = state.shape
        if not state.found.operators:
            shape = replace(shape, state_format=int(session.conf.get(FORMAT_KEY, "1") or "1"))
        confs = saved.offsets.confs
        old_shapes, names = shapes(saved.storage, saved.batch_id), stored_names(saved.storage, saved.batch_id)
        steps = steps_for(
            operator_columns(old_shapes, before, confs, state.source.uri, names),
            operator_columns(planned, code.plan, confs, state.source.uri),
            wishes,
            state.source.uri,
        )
        plan = EvolutionPlan(
            *state.common(target),
            target=os.fspath(to) if isinstance(to, (str, os.PathLike)) else type(to).__name__,
            operators=tuple(step.describe() for step in steps),
            changes=_changes(before, code.plan, saved),
            merge=wishes.merge,
            steps=steps,
            state_format=shape.state_format,
            join_format=join_format,
        )

        def accepts(made: Storage) -> None:
            _require_accepted(frame, code.mode, made, folder)

        yield Evolution(plan, NewCode(LocalStorage(folder / "first"), code.plan), shape, accepts)


def _planned(
    code: Code, saved: DryRunCheckpoint, folder: Path, join_format: str | None
) -> tuple[DataFrame, tuple[OperatorShape, ...]]:
    """Let Spark plan a first batch of the new code, which writes the metadata of its state."""
    from holdfast.engine.queries.dry_run import rehearse, without_sources

    (folder / "empty").mkdir()
    frame, count = without_sources(code.frame, folder / "empty")
    names = [source.name for source in code.plan.sources] if code.plan is not None else []
    first = folder / "first"
    sources = names or [str(number) for number in range(count)]
    confs = {} if join_format is None else {JOIN_FORMAT: join_format}
    lay_out_first(saved, LocalStorage(first), sources, confs)
    trial = rehearse(frame, first, code.mode)
    if not trial.accepted:
        raise Invalid(
            "Spark cannot plan the new code",
            code="HF-E2240",
            where=code.name,
            found=trial.message or trial.spark_error or "an error without a message",
            hint="fix the query, and test it with `holdfast check FILE.py --against SP`",
        )
    planned = shapes(LocalStorage(first), 0)
    steps = [] if code.plan is None else [step for step in code.plan.steps if step.stateful]
    if code.plan is not None and len(steps) != len(planned):
        raise Unsupported(
            "the state of the new code's operators cannot be determined before the query runs",
            code="HF-E7090",
            where=code.name,
            found=f"{counted(len(planned), 'operator')} with state, of {len(steps)} in the plan:"
            f" {', '.join(step.kind for step in steps)}",
            hint="remove limit() from the new code: `holdfast evolve` does not support it",
        )
    return frame, planned


def _require_accepted(frame: DataFrame, mode: str, made: Storage, folder: Path) -> None:
    """Let Spark plan the next batch of the new code on the converted state."""
    from holdfast.engine.queries.dry_run import rehearse

    found = read(made)
    if found.batch_id is None:
        return
    trial_folder = folder / "next"
    lay_out(DryRunCheckpoint(made.uri, made, found.batch_id, found, None), LocalStorage(trial_folder))
    trial = rehearse(frame, trial_folder, mode)
    if not trial.accepted:
        raise Unsupported(
            "Spark does not accept the converted state for the new code, so nothing was written",
            code="HF-E7091",
            where=made.uri,
            found=f"{trial.spark_error or ''} {trial.message or ''}".strip(),
            hint="list all differences with `holdfast check FILE.py --against SP`",
        )


def _changes(
    before: QueryPlan | None, now: QueryPlan | None, saved: DryRunCheckpoint
) -> tuple[PlanChange, ...]:
    """Return the other plan changes that affect the state's meaning or the start."""
    if before is None or now is None:
        return ()
    return tuple(
        change
        for change in moved_sources(compare_plans(before, now), saved.last_files)
        if change.effect in (Effect.MEANING, Effect.FAILS) and change.what not in _STATEFUL
    )
