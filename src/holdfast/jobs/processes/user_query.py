"""A query of a person's code, built in a session and not started."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import HoldfastError, Invalid, NotFound, Unsupported
from holdfast.extras import require_package
from holdfast.formats.logs.notes import QueryPlan
from holdfast.jobs.definition import Job
from holdfast.jobs.loader import load_job
from holdfast.jobs.processes.driver import sinks_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from holdfast.stream.operator_check import OperatorNote
    from holdfast.stream.sinks.query_sink import Sink

    Query = Job | Sink | DataStreamWriter
    Target = str | os.PathLike[str] | Query

LOCAL: Final = "local[2]"


@dataclass(frozen=True, slots=True)
class Code:
    """A query of some code, built and not started.

    Attributes:
        name: The sink's name.
        frame: Its frame.
        plan: What it does, in words; None where that cannot be told.
        mode: Its output mode.
        operators: Holdfast's operators in it.
    """

    name: str | None
    frame: DataFrame
    plan: QueryPlan | None
    mode: str
    operators: tuple[OperatorNote, ...]


def loaded(target: Target, overrides: Mapping[str, str] | None) -> Query:
    """The job in a file, or a given one, with its settings; a query that is not a job's as it is.

    Raises:
        Invalid: The file starts its query itself, or a setting cannot be.
        NotFound: The file does not exist, or no such job in it.
    """
    if isinstance(target, Job):
        return target.with_overrides(overrides or {})
    if isinstance(target, (str, os.PathLike)):
        return job_in(os.fspath(target), overrides or {})
    return target


def job_in(target: str, overrides: Mapping[str, str]) -> Job:
    """The job in a file, with its settings.

    Raises:
        Invalid: The file starts its query itself, or a setting cannot be.
        NotFound: The file does not exist, or no such job in it.
        Unsupported: The extra `spark` is not installed.
    """
    require_package("pyspark")
    from holdfast.engine.queries.dry_run import nothing_starts

    with nothing_starts():
        return load_job(target).with_overrides(overrides)


@contextmanager
def session_for(
    target: Query,
    conf: Mapping[str, str],
    master: str | None,
    home: str | Path | None,
    given: SparkSession | None,
    purpose: str,
) -> Iterator[SparkSession]:
    """The session in which the code is built: a given or running one's settings are left alone.

    Args:
        target: The code.
        conf: Settings of the session.
        master: Where Spark runs; on this machine by default, whatever the job says.
        home: The state home.
        given: The session to use.
        purpose: What a new session is for, in its name.
    """
    from holdfast.engine.connect import refuse_connect
    from holdfast.engine.session.session import running_session, session

    need: dict[str, str] = {
        "where": purpose,
        "hint": "do it in a program with a classic session, or by the verb",
    }
    if not isinstance(target, Job):
        of_frame = frame_of_target(target).sparkSession
        refuse_connect(of_frame, "the plan of a query", **need)
        yield of_frame
        return
    running = given or running_session()
    refuse_connect(running, "the plan of a query", **need)
    if running is not None:
        own = running.newSession()
        for key, value in conf.items():
            if own.conf.isModifiable(key):
                own.conf.set(key, value)
        yield own
        return
    name = f"holdfast {purpose} {target.name}"
    started = session(name, master=master or LOCAL, conf=conf, extras=target.extras, home=home)
    try:
        yield started
    finally:
        started.stop()


def built(target: Query, spark: SparkSession, query: str | None) -> Code:
    """One query of some code.

    Raises:
        Invalid: The code starts its query itself, or which one is meant cannot be told.
    """
    from holdfast.stream.operator_check import defined_in

    job = target if isinstance(target, Job) else None
    sinks = sinks_of_job(job, spark) if job is not None else sinks_of(target)
    sink = _chosen(sinks, query)
    frame = frame_of_target(sink)
    plan = sink.plan(None if job is None else job.effective_trigger())
    mode = plan.sink.mode if plan is not None and plan.sink is not None else sink.mode or "append"
    return Code(sink.name, frame, plan, mode, tuple(defined_in(frame)))


def sinks_of_job(job: Job, spark: SparkSession) -> list[Sink]:
    """All queries of a job, built and not started.

    Raises:
        Invalid: The job starts its query itself, its function raised an error, or what it returns is no
            query.
    """
    from holdfast.engine.queries.dry_run import nothing_starts
    from holdfast.engine.session.workers import ship_by_value

    if job.build.__module__ in sys.modules:
        ship_by_value(sys.modules[job.build.__module__])
    with nothing_starts():
        return sinks_of(_called(job, spark))


def _called(job: Job, spark: SparkSession) -> Any:
    """Return the result of the job's function."""
    try:
        return job(spark)
    except HoldfastError:
        raise
    except Exception as error:
        raise Invalid(
            "the job's function raised an error",
            code="HF-E2235",
            where=job.name,
            found=f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}",
            hint="mend the function; `holdfast run` shows the whole traceback in the driver's log",
        ) from error


def _chosen(sinks: list[Sink], query: str | None) -> Sink:
    if len(sinks) == 1 and query in (None, sinks[0].name):
        return sinks[0]
    names = ", ".join(str(sink.name) for sink in sinks)
    if query is None:
        raise Invalid(
            "the job has several queries, each with a checkpoint of its own",
            code="HF-E2236",
            found=names,
            expected="one of them",
            hint="name it with --query",
        )
    for sink in sinks:
        if sink.name == query:
            return sink
    raise NotFound(
        "the job has no such query",
        code="HF-E3046",
        found=names,
        expected=query,
        hint="name one with --query",
    )


def frame_of_target(target: Any) -> DataFrame:
    """The frame of a sink or of a writer."""
    from holdfast.engine.queries.watch import frame_of

    sink = sinks_of(target)[0]
    frame = sink.frame if sink.frame is not None else frame_of(sink.writer())
    if frame is None:
        raise Unsupported(
            "the writer hides its frame", code="HF-E7084", hint="give hf.sink(frame)… in its place"
        )
    return frame
