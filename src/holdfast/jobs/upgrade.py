"""Say what new code would keep of a savepoint, before it is started: `hf.check`.

Three things are put together. Spark plans a first batch of the new code beside nothing, which tells what each
operator would keep; it plans the next batch on a copy of what the savepoint notes, which tells what it
refuses; and the code's plan is laid beside the one that the saved state was made by, for what Spark does not
compare. All of that happens in a temporary directory, with no source read and no sink written.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.checkpoints.shapes import OperatorShape, shapes
from holdfast.config.defaults import FORMAT_KEY
from holdfast.errors import HoldfastError, Invalid, NotFound, Unsupported
from holdfast.formats.plan_note import Plan
from holdfast.jobs.definition import Job
from holdfast.jobs.driver import sinks_of
from holdfast.jobs.loader import load_job
from holdfast.jobs.own_state import with_own
from holdfast.model import Effect, PlanChange, StateVerdict, Try, UpgradeReport, Verdict
from holdfast.savepoints.plan_changes import compare_plans, format_change, moved_sources, pinned_changes
from holdfast.savepoints.saved import Saved, lay_out, lay_out_first, open_saved
from holdfast.savepoints.sizes import Sizes, measured
from holdfast.savepoints.upgrade import compare_states, states_of, verdict_on, with_trial
from holdfast.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from holdfast.stream.operators import Definition
    from holdfast.stream.sinks import Sink

    Target = str | os.PathLike[str] | Job | Sink | DataStreamWriter

LOCAL: Final = "local[2]"
_NO_PLAN: Final = (
    "filters, watermarks, expressions, the sources' addresses and options, and the sink: no plan was noted"
    " with this state; give the code that made it with --old"
)


@dataclass(frozen=True, slots=True)
class _Code:
    """A query of some code, built and not started."""

    name: str | None
    frame: DataFrame
    plan: Plan | None
    mode: str
    operators: tuple[Definition, ...]


@dataclass(frozen=True, slots=True)
class _Rehearsed:
    """What Spark said of a query beside nothing, and beside the savepoint."""

    trial: Try
    shapes: tuple[OperatorShape, ...] | None = None
    changes: tuple[PlanChange, ...] = ()


def check(
    target: Target,
    *,
    against: str | os.PathLike[str],
    query: str | None = None,
    old: Target | None = None,
    overrides: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    master: str | None = None,
    home: str | Path | None = None,
    deep: bool = False,
    spark: SparkSession | None = None,
) -> UpgradeReport:
    """Say what of a savepoint or checkpoint new code would keep, without starting it.

    The job's function is called, so that its plan is there; a source may look up a schema by that, and no row
    is read. Queries that the code starts itself are refused. What Python functions do inside is not compared.

    Costs a Spark session on this machine, and some seconds, whatever the size of the state; the keys of
    large state are counted only with `deep`.

    Args:
        target: The new code: `FILE.py[:JOB]`, a job, a sink, or a `DataStreamWriter`.
        against: A savepoint, or a checkpoint at its newest committed batch.
        query: Which sink, where the job has several; `against` may then be the folder of their checkpoints.
        old: The code that made the state, for a query that did not run under Holdfast: it is compared
            with the new one. Where Holdfast ran it, its plan is in the savepoint.
        overrides: Settings and parameters of the job, as in `holdfast run --set`.
        conf: Spark settings of the session.
        master: Where Spark runs; here, whatever the job says.
        home: The state home.
        deep: Count the keys of large state too, which reads all of it.
        spark: The session to use; by default one is started and stopped. A sink or writer has its own.

    Raises:
        Invalid: The code starts its query itself, or which query is meant cannot be told.
        NotFound: There is no such file, job, savepoint or checkpoint, or nothing is committed in it.
        Corrupt: The savepoint is damaged.
    """
    saved = open_saved(os.fspath(against), query)
    sizes = measured(saved.storage, saved.found, saved.manifest, deep=deep)
    job = _job(target, overrides)
    given = {**({} if job is None else job.spark_conf()), **(conf or {})}
    with _session(target, job, given, master, home, spark) as session:
        code = _built(target if job is None else job, session, query)
        before, source = _old_plan(old, saved, session, query)
        made = _rehearsed(code, saved)
        settings = given if job is not None else _settings(session, saved)
        state_format = int(session.conf.get(FORMAT_KEY, "1") or "1")
        return _report(target, code, saved, sizes, made, before, source, settings, state_format)


def _job(target: Target, overrides: Mapping[str, str] | None) -> Job | None:
    from holdfast.engine.refusal import nothing_starts  # noqa: PLC0415 - needs Spark

    if isinstance(target, Job):
        return target.with_overrides(overrides or {})
    if isinstance(target, (str, os.PathLike)):
        with nothing_starts():
            return load_job(os.fspath(target)).with_overrides(overrides or {})
    return None


@contextmanager
def _session(
    target: Target,
    job: Job | None,
    conf: Mapping[str, str],
    master: str | None,
    home: str | Path | None,
    given: SparkSession | None,
) -> Iterator[SparkSession]:
    """The session in which the code is built: the given one's settings are left alone."""
    from holdfast.engine.session import running_session, session  # noqa: PLC0415 - needs Spark

    if job is None:
        yield _frame_of(target).sparkSession
        return
    running = given or running_session()
    if running is not None:
        own = running.newSession()
        for key, value in conf.items():
            if own.conf.isModifiable(key):
                own.conf.set(key, value)
        yield own
        return
    name = f"holdfast check {job.name}"
    started = session(name, master=master or LOCAL, conf=conf, extras=job.extras, home=home)
    try:
        yield started
    finally:
        started.stop()


def _built(target: Target, spark: SparkSession, query: str | None) -> _Code:
    """One query of some code."""
    from holdfast.engine.refusal import nothing_starts  # noqa: PLC0415 - needs Spark
    from holdfast.engine.workers import ship_by_value  # noqa: PLC0415 - as above
    from holdfast.stream.operators import defined_in  # noqa: PLC0415 - as above

    job = target if isinstance(target, Job) else None
    if job is not None and job.build.__module__ in sys.modules:
        ship_by_value(sys.modules[job.build.__module__])
    with nothing_starts():
        sinks = sinks_of(target if job is None else _called(job, spark))
    sink = _chosen(sinks, query)
    frame = _frame_of(sink)
    plan = sink.plan(None if job is None else job.effective_trigger())
    mode = plan.sink.mode if plan is not None and plan.sink is not None else sink.mode or "append"
    return _Code(sink.name, frame, plan, mode, tuple(defined_in(frame)))


def _called(job: Job, spark: SparkSession) -> Any:
    """What the job's function returns."""
    try:
        return job(spark)
    except HoldfastError:
        raise
    except Exception as error:
        raise Invalid(
            "the job's function raised an error",
            where=job.name,
            found=f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}",
        ) from error


def _chosen(sinks: list[Sink], query: str | None) -> Sink:
    if len(sinks) == 1 and query in (None, sinks[0].name):
        return sinks[0]
    names = ", ".join(str(sink.name) for sink in sinks)
    if query is None:
        raise Invalid(
            "the job has several queries, each with a checkpoint of its own",
            found=names,
            expected="one of them",
            hint="name it with --query",
        )
    for sink in sinks:
        if sink.name == query:
            return sink
    raise NotFound("the job has no such query", found=names, expected=query)


def _frame_of(target: Any) -> DataFrame:
    """The frame of a sink or of a writer."""
    from holdfast.engine.watch import frame_of  # noqa: PLC0415 - needs Spark

    sink = sinks_of(target)[0]
    frame = sink.frame if sink.frame is not None else frame_of(sink.writer())
    if frame is None:
        raise Unsupported("the writer hides its frame", hint="give hf.sink(frame)… in its place")
    return frame


def _old_plan(
    old: Target | None,
    saved: Saved,
    spark: SparkSession,
    query: str | None,
) -> tuple[Plan | None, str | None]:
    """The plan that made the state, and where it comes from."""
    if old is not None:
        job = _job(old, None)
        plan = _built(old if job is None else job, spark, query).plan
        return plan, None if plan is None else "old code"
    note = saved.note
    plan = None if note is None else note.at(saved.batch_id)
    return plan, None if plan is None else "note"


def _rehearsed(code: _Code, saved: Saved) -> _Rehearsed:
    """Let Spark plan both batches, in a folder that is gone afterwards."""
    from holdfast.engine.rehearsal import rehearse, without_sources  # noqa: PLC0415 - needs Spark

    with tempfile.TemporaryDirectory(prefix="holdfast-check-") as name:
        # Spark resolves links in the paths that it writes down.
        folder = Path(name).resolve()
        (folder / "empty").mkdir()
        try:
            frame, count = without_sources(code.frame, folder / "empty")
        except Unsupported as error:
            why = f"{error.fact}: {error.found}"
            return _Rehearsed(Try(ran=False, accepted=False, message=why))
        first, next_ = folder / "first", folder / "next"
        names = [each.name for each in code.plan.sources] if code.plan is not None else []
        lay_out_first(saved, LocalStorage(first), names or [str(each) for each in range(count)])
        alone = rehearse(frame, first, code.mode)
        if not alone.accepted:
            # The code cannot be started on anything, so the savepoint is not to blame.
            why = f"Spark cannot plan this query at all: {alone.message}"
            change = PlanChange("start", None, alone.error, Effect.FAILS, why)
            return _Rehearsed(
                Try(ran=True, accepted=False, spark_error=alone.error, message=alone.message),
                changes=(change,),
            )
        lay_out(saved, LocalStorage(next_))
        then = rehearse(frame, next_, code.mode)
        trial = Try(ran=True, accepted=then.accepted, spark_error=then.error, message=then.message)
        return _Rehearsed(trial, shapes(LocalStorage(first), 0))


def _report(
    target: Target,
    code: _Code,
    saved: Saved,
    sizes: Sizes,
    made: _Rehearsed,
    before: Plan | None,
    source: str | None,
    settings: Mapping[str, str],
    state_format: int,
) -> UpgradeReport:
    states, failures = _states(code, saved, sizes, made, before)
    changes = [*made.changes, *failures]
    if before is not None and code.plan is not None:
        changes += moved_sources(compare_plans(before, code.plan), saved.last_files)
    changes += pinned_changes(saved.offsets.confs, settings)
    changes += format_change(saved.state_format, state_format)
    return UpgradeReport(
        target=os.fspath(target) if isinstance(target, (str, os.PathLike)) else type(target).__name__,
        against=saved.uri,
        query=code.name,
        batch_id=saved.batch_id,
        states=states,
        changes=tuple(changes),
        trial=made.trial,
        compared_with=source,
        not_compared=tuple(_not_compared(before, code.plan, made.trial)),
    )


def _states(
    code: _Code, saved: Saved, sizes: Sizes, made: _Rehearsed, before: Plan | None
) -> tuple[tuple[StateVerdict, ...], tuple[PlanChange, ...]]:
    old, trial = shapes(saved.storage, saved.batch_id), made.trial
    if made.shapes is None:
        # Spark has not said what the new code keeps; what there is stands or falls with the plan.
        verdict, why = (
            _by_plan(code, before) if not trial.ran else (Verdict.INCOMPATIBLE, trial.message or "")
        )
        listed = [(each, state) for each in old for state in states_of(each)]
        return tuple(
            verdict_on(each, state, sizes, verdict, why=why, spark_error=trial.spark_error)
            for each, state in listed
        ), ()
    found = compare_states(old, made.shapes, sizes)
    mixed = with_own(found, old, made.shapes, code.operators, saved, sizes, before)
    return with_trial(mixed, trial.accepted, trial.spark_error, trial.message)


def _by_plan(code: _Code, before: Plan | None) -> tuple[Verdict, str]:
    if before is None or code.plan is None:
        return Verdict.INCOMPATIBLE, "the plan could not be tried, and there is none to compare it with"
    same = len(before.steps) == len(code.plan.steps) and all(
        one.same_as(other) for one, other in zip(before.steps, code.plan.steps, strict=True)
    )
    if same:
        return Verdict.MAP, "the plan is as it was; it could not be tried"
    return Verdict.INCOMPATIBLE, "the plan is another, and could not be tried"


def _not_compared(before: Plan | None, now: Plan | None, trial: Try) -> Iterator[str]:
    if now is None:
        yield "the plan of the new code, which this Spark does not tell"
    elif before is None:
        yield _NO_PLAN
    if not trial.ran:
        yield f"what Spark says of the next batch: {trial.message}"


def _settings(session: SparkSession, saved: Saved) -> dict[str, str]:
    """What a session has for the settings that a checkpoint has fixed."""
    found = {key: session.conf.get(key, None) for key in saved.offsets.confs}
    return {key: value for key, value in found.items() if value is not None}
