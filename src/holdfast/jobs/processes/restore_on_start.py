"""Restore checkpoints before queries start, and repeat lost batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.checkpoints.checkpoint import state_format
from holdfast.checkpoints.copy import batch_files
from holdfast.checkpoints.logs import Logs
from holdfast.config.policies import OneBatch
from holdfast.config.spark_defaults import FORMAT_KEY
from holdfast.errors import Conflict, HoldfastError, Invalid
from holdfast.savepoints.savepoint_api import restore_once
from holdfast.storage import open_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.savepoints.restoring import Restored
    from holdfast.stream.sinks.query_sink import Sink


def repeat(sink: Sink, checkpoint: str, damaged: str, term: int | None = None) -> Iterator[int]:
    """Run each batch that a damaged checkpoint has planned and its successor has not, one by one.

    A sink with a ledger or with Spark's own log skips the batches that it has; other sinks write their rows
    again.

    Cost: a start of the query for each batch, which loads its state again.

    Args:
        sink: The sink, which can finish a batch that it has.
        checkpoint: The new checkpoint.
        damaged: The damaged one, whose offset log and source logs are read.
        term: The token of the leader's term, if there are several supervisors.

    Returns:
        The batches, each when it is committed, up to the first whose input is unknown.

    Raises:
        QueryFailed: The query failed.
        Corrupt: A log with a batch's input is damaged.
    """
    original, own = open_storage(damaged), open_storage(checkpoint)
    offered = frozenset(Logs(original).offered)
    newest = Logs(own).newest
    if newest is None:
        return
    for batch_id in itertools.takewhile(offered.__contains__, itertools.count(newest + 1)):
        for path, data in batch_files(original, own, batch_id):
            if own.size(path) is None:  # a killed try's is the same
                own.write(path, data)
        _run(sink, checkpoint, term)
        yield batch_id


def _run(sink: Sink, checkpoint: str, term: int | None) -> None:
    from holdfast.engine.queries.watch import await_end, failure_text, was_skipped
    from holdfast.stream.trials import QueryFailed

    query = sink.start(checkpoint=checkpoint, trigger=OneBatch(), term=term, repeats=True)
    await_end(query)
    text = failure_text(query)
    if text is None or (was_skipped(text) and sink.finish_batch(checkpoint)):
        return
    raise QueryFailed(text)


def restore_all(given: Mapping[str, str], places: Mapping[str, str]) -> Iterator[tuple[str, Restored]]:
    """Restore the checkpoints of a job's queries from savepoints, before the first of them starts.

    After a driver was killed in it, a further call finishes the restore.

    Args:
        given: The savepoint of each query by name; a job's only query needs no name.
        places: The checkpoint of each query.

    Raises:
        Invalid: A query is unknown, or a job with several queries needs a query's name.
        Conflict: One of the checkpoints exists.
        Corrupt: A savepoint is damaged.
        NotFound: A savepoint does not exist.
    """
    for name in given:
        if name not in places and (name or len(places) > 1):
            raise Invalid(
                "unknown query"
                if name
                else "the job has several queries, and a savepoint was given without a query",
                code="HF-E2233",
                where="-s",
                found=name or "no query",
                expected=" or ".join(places),
                hint="name the query of each savepoint: -s QUERY=SAVEPOINT",
            )
    for name, savepoint in given.items():
        query = name or next(iter(places))
        with not_restored(query):
            made = restore_once(savepoint, places[query])
        yield query, made


@contextmanager
def not_restored(query: str) -> Iterator[None]:
    """Add the query and a hint to a conflict at a restore target."""
    try:
        yield
    except Conflict as error:
        raise Conflict(
            f"the checkpoint of query {query!r} cannot be restored from a savepoint: {error.fact}",
            where=error.where,
            found=error.found,
            code=error.code,
            expected=error.expected,
            hint="omit -s to resume from the existing checkpoint, or give the job a different"
            " directory with --set checkpoint.storage=DIR",
        ) from error


@contextmanager
def state_format_of(place: str, spark: SparkSession, given: Mapping[str, str]) -> Iterator[None]:
    """Set the state-checkpoint format of a query's checkpoint for its start, if Spark does not store it.

    Args:
        place: The query's checkpoint; one that does not exist yet may have any format.
        spark: The session; its setting is changed only for the start.
        given: Spark's settings in the job or for this run.

    Raises:
        Invalid: The settings ask for a different format.
    """
    session = spark.conf.get(FORMAT_KEY, "1")
    try:
        written = state_format(open_storage(place))
    except HoldfastError:
        written = None  # Spark will say what is wrong with it
    if written is None or str(written) == session:
        yield
        return
    if FORMAT_KEY in given:
        raise other_format(place, given[FORMAT_KEY], written)
    spark.conf.set(FORMAT_KEY, str(written))
    try:
        yield
    finally:
        spark.conf.set(FORMAT_KEY, str(session))


def other_format(place: str, asked: str, written: int) -> Invalid:
    """Return the error for a configured state-checkpoint format that the state does not have."""
    return Invalid(
        "the state-checkpoint format set for the job differs from the format of the checkpoint",
        code="HF-E2234",
        where=place,
        found=f"{FORMAT_KEY}={asked}",
        expected=f"{FORMAT_KEY}={written}",
        hint="remove the setting; each query then uses the format of its checkpoint",
    )
