"""Build a query of user code in a session, without starting it."""

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
        frame: The sink's frame.
        plan: The query's plan; None if unknown.
        mode: The output mode.
        operators: Holdfast's operators in the query.
    """

    name: str | None
    frame: DataFrame
    plan: QueryPlan | None
    mode: str
    operators: tuple[OperatorNote, ...]


def loaded(target: Target, overrides: Mapping[str, str] | None) -> Query:
    """Return the job of a file or the given job, with overrides; other queries are unchanged.

    Raises:
        Invalid: The file starts its query itself, or a setting is not valid.
        NotFound: The file or the job does not exist.
    """
    if isinstance(target, Job):
        return target.with_overrides(overrides or {})
    if isinstance(target, (str, os.PathLike)):
        return job_in(os.fspath(target), overrides or {})
    return target


def job_in(target: str, overrides: Mapping[str, str]) -> Job:
    """Return the job in a file, with overrides.

    Raises:
        Invalid: The file starts its query itself, or a setting is not valid.
        NotFound: The file or the job does not exist.
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
    """Yield the session in which the code is built; settings of an existing session are not changed.

    Args:
        target: The code.
        conf: Settings of the session.
        master: The Spark master; by default local, whatever the job says.
        home: The state home.
        given: The session to use.
        purpose: The purpose of a new session, which becomes part of its name.
    """
    from holdfast.engine.connect import refuse_connect
    from holdfast.engine.session.session import running_session, session

    need: dict[str, str] = {
        "where": purpose,
        "hint": "use a program with a classic session, or the `holdfast` command",
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
    """Build one query of some code.

    Raises:
        Invalid: The code starts its query itself, or the query is ambiguous.
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
    """Build all queries of a job, without starting them.

    Raises:
        Invalid: The job starts its query itself, its function raised an error, or the result is not a query.
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
            hint="fix the function; `holdfast run` writes the whole traceback to the driver's log",
        ) from error


def _chosen(sinks: list[Sink], query: str | None) -> Sink:
    if len(sinks) == 1 and query in (None, sinks[0].name):
        return sinks[0]
    names = ", ".join(str(sink.name) for sink in sinks)
    if query is None:
        raise Invalid(
            "the job has several queries, and none was chosen",
            code="HF-E2236",
            found=names,
            hint="choose one of the queries with --query",
        )
    for sink in sinks:
        if sink.name == query:
            return sink
    raise NotFound(
        "unknown query",
        code="HF-E3046",
        found=query,
        expected=names,
        hint="choose a query with --query",
    )


def frame_of_target(target: Any) -> DataFrame:
    """Return the frame of a sink or writer."""
    from holdfast.engine.queries.watch import frame_of

    sink = sinks_of(target)[0]
    frame = sink.frame if sink.frame is not None else frame_of(sink.writer())
    if frame is None:
        raise Unsupported(
            "the DataFrame of the query's DataStreamWriter is not accessible",
            code="HF-E7084",
            hint="return hf.sink(frame) instead of frame.writeStream",
        )
    return frame
