"""Start queries on restored checkpoints, and replay lost batches."""

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

    A sink that keeps a ledger, or Spark's own record of batches, has most of them and passes them by; another
    one writes their rows a second time.

    Cost: a start of the query for each batch, which loads its state anew.

    Args:
        sink: The sink, which tells how to finish a batch that it has.
        checkpoint: The checkpoint that continues.
        damaged: The damaged one, whose log of offsets and logs of sources are read.
        term: The token of the leader's term, where there are several supervisors.

    Returns:
        The batches, each when it is committed. They end before the first whose input is not known any more.

    Raises:
        QueryFailed: The query failed.
        Corrupt: A log that says what a batch has read is damaged.
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
    """Make the checkpoints of a job's queries of savepoints, before the first of them starts.

    Called once more after a driver that was killed in it, it finishes what that one began.

    Args:
        given: The savepoint of each query by name; a job's only query needs no name.
        places: Where the checkpoint of each query belongs.

    Raises:
        Invalid: A query is named that the job does not have, or none where it has several.
        Conflict: One of the checkpoints exists.
        Corrupt: A savepoint is damaged.
        NotFound: The savepoint does not exist.
    """
    for name in given:
        if name not in places and (name or len(places) > 1):
            raise Invalid(
                "the job has no such query"
                if name
                else "the job has several queries, and no savepoint names one",
                code="HF-E2233",
                where="-s",
                found=name or "no name",
                expected=", ".join(places),
                hint="give each query its savepoint as -s NAME=SAVEPOINT",
            )
    for name, savepoint in given.items():
        query = name or next(iter(places))
        with not_restored(query):
            made = restore_once(savepoint, places[query])
        yield query, made


@contextmanager
def not_restored(query: str) -> Iterator[None]:
    """Say of a conflict at a target whose checkpoint was to be made there, and what to do."""
    try:
        yield
    except Conflict as error:
        raise Conflict(
            f"the checkpoint of query {query!r} cannot be made of a savepoint: {error.fact}",
            where=error.where,
            found=error.found,
            code=error.code,
            expected=error.expected,
            hint="leave out -s to go on from the checkpoint as it is, or give the job another one with"
            " --set checkpoint.storage=DIR",
        ) from error


@contextmanager
def state_format_of(place: str, spark: SparkSession, given: Mapping[str, str]) -> Iterator[None]:
    """Have a query start with the state-checkpoint format of its checkpoint, where Spark does not note it.

    Args:
        place: The query's checkpoint; one that does not exist yet may have any.
        spark: The session. Its setting is changed for the start alone.
        given: Spark's settings that a person has written down, in the job or for this run.

    Raises:
        Invalid: One of these asks for another format.
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
    """The error for a state-checkpoint format that a person has written down, and the state does not have."""
    return Invalid(
        "the job sets another state-checkpoint format than its checkpoint has",
        code="HF-E2234",
        where=place,
        found=f"{FORMAT_KEY}={asked}",
        expected=f"{written}, in which its state was written",
        hint="leave the setting out, and each query gets the format of its checkpoint",
    )
