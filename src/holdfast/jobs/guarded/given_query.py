"""The query that a guard was given: where its checkpoint is, and how it begins and fails."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from holdfast.config.locations import canonical_uri, parse_storage, place_word
from holdfast.errors import Corrupt, HoldfastError, Invalid, Unavailable, Unsupported
from holdfast.jobs.failures.summary import from_text
from holdfast.jobs.guarded import exit_codes
from holdfast.jobs.guarded.guard_settings import GuardSettings
from holdfast.jobs.recovery.rollback import look

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from holdfast.stream.sinks.query_sink import Sink

    Guarded: TypeAlias = DataStreamWriter | Sink | StreamingQuery

_LOG: Final = logging.getLogger("holdfast.guard")
_DEFAULT_PLACE: Final = "spark.sql.streaming.checkpointLocation"
_LONGEST_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class GivenQuery:
    """A query, started or not, with what has to be known of it.

    Attributes:
        name: What it is called in numbers, alerts and other commands.
        spark: Its session.
        checkpoint: Its checkpoint, as a canonical URI.
        sink: What starts it; None where it runs.
        running: The query, where it runs.
        settings: How it is to be started.
    """

    name: str
    spark: SparkSession
    checkpoint: str
    sink: Sink | None
    running: StreamingQuery | None
    settings: GuardSettings = field(repr=False)

    @classmethod
    def of(cls, query: Guarded, settings: GuardSettings) -> GivenQuery:
        """Read it off what a person has given.

        Raises:
            Invalid: It is no query, or its checkpoint is not known.
            Unsupported: It is one of Spark Connect, or of continuous processing.
        """
        from holdfast.engine.connect.classic_only import is_connect
        from holdfast.engine.queries.watch import (
            checkpoint_of,
            frame_of,
            is_running_query,
            is_writer,
            refuse_continuous,
            trigger_of,
            written_place,
            written_sink,
        )
        from holdfast.stream.sinks.query_sink import Sink
        from holdfast.stream.sinks.sinks import adopt

        if is_connect(query.frame or query.writer() if isinstance(query, Sink) else query):
            raise _over_connect(query)
        place: str | None
        called: str | None
        sink: Sink | None = None
        running: StreamingQuery | None = None
        if is_running_query(query):
            refuse_continuous(trigger_of(query), "hf.guard(…)")
            place, called, running = checkpoint_of(query), query.name, query
        elif is_writer(query):
            (place, called), sink = written_place(query), adopt(query)
            written = written_sink(query)
            refuse_continuous(None if written is None else written[1], "hf.guard(…)")
        elif isinstance(query, Sink):
            place, called, sink = None, query.name, query
        else:
            raise _no_query(query)
        spark = _session(None if sink is None else sink.frame or frame_of(sink.writer()))
        place = _agreed(settings.checkpoint, place) or _default_place(spark, called)
        if place is None:
            raise Invalid(
                "the query has no checkpoint, so there is nothing to guard",
                where="hf.guard(…)",
                hint='write .option("checkpointLocation", …), or give checkpoint=…',
            )
        uri = _uri(spark, place)
        name = settings.name or _usable(called) or _usable(uri.rstrip("/").rpartition("/")[2]) or "query"
        return cls(name, spark, uri, sink, running, settings)

    def start(self, term: int | None) -> StreamingQuery:
        """Start it, if it does not run; a ledger hears of the owner's term."""
        if self.running is not None or self.sink is None:
            return cast("StreamingQuery", self.running)
        # A plain writer has the name that it was told, or none.
        called = None if self.sink.frame is None else self.sink.name or self.settings.name
        return self.sink.start(
            checkpoint=self.checkpoint, trigger=self.settings.trigger, query_name=called, term=term
        )

    def failure(self, text: str) -> HoldfastError:
        """What it has failed of, as an error with an exit code.

        Args:
            text: The whole text of Spark's exception.
        """
        own = None if self.sink is None else self.sink.error
        if isinstance(own, HoldfastError):
            return own
        failure = from_text(text, label="query", query=self.name)
        kind = exit_codes.kind_of_failure(text)
        return kind(
            f"the query has failed: {failure.error_class}: {failure.line}",
            where=failure.place,
            found=f"a failure of {failure.cause}" if failure.cause else None,
        )


def require_whole(given: GivenQuery, home: Path | None, limit_ms: int) -> None:
    """See that a start can build on a checkpoint.

    Cost: every file of it is read, for as long as the limit allows.

    Raises:
        Corrupt: It cannot.
    """
    damage, notes = look({given.name: given.checkpoint}, home or Path(os.devnull), limit_ms)
    for note in notes:
        _LOG.warning("%s", note)
    for found in damage:
        raise Corrupt(
            "the checkpoint is damaged, and the query was not started",
            where=f"{found.checkpoint}/{found.problem.file}",
            found=found.problem.what,
            hint=f"see all of it with `holdfast checkpoint verify {place_word(found.checkpoint)}`;"
            " restore a savepoint"
            + ("" if found.whole is None else f", or take one of batch {found.whole}, which is whole"),
        )


def _session(frame: DataFrame | None) -> SparkSession:
    from holdfast.engine.session.session import running_session

    spark = running_session() if frame is None else frame.sparkSession
    if spark is None:
        raise Unavailable("there is no session of Spark in this process", where="hf.guard(…)")
    return spark


def _uri(spark: SparkSession, place: str) -> str:
    """A place as Spark takes it: a path alone may be one of the cluster's file system."""
    from holdfast.engine.state.checkpoint_files import qualified

    return canonical_uri(parse_storage(qualified(spark, place), "checkpoint"), Path.cwd())


def _agreed(given: Any, written: str | None) -> str | None:
    if given is not None and written is not None and os.fspath(given).rstrip("/") != written.rstrip("/"):
        raise Invalid(
            "the query has another checkpoint than the guard was given",
            where="hf.guard(…, checkpoint=…)",
            found=written,
            expected=os.fspath(given),
            hint="say it once",
        )
    return written if given is None else os.fspath(given)


def _default_place(spark: SparkSession, called: str | None) -> str | None:
    """Where Spark keeps it by the session's settings; without a name it takes a new place each time."""
    root = spark.conf.get(_DEFAULT_PLACE, None)
    return f"{root.rstrip('/')}/{called}" if root and called else None


def _usable(called: str | None) -> str | None:
    """A name as files and metrics can have it."""
    letters = (letter if letter.isalnum() or letter in "._-" else "-" for letter in called or "")
    return "".join(letters).strip("._-")[:_LONGEST_NAME] or None


def _over_connect(query: object) -> HoldfastError:
    return Unsupported(
        "a query of Spark Connect runs in the server, and cannot be guarded from a client",
        where="hf.guard(…)",
        found=type(query).__name__,
        hint="guard it in a program with a classic session; hf.watch(query, checkpoint=…) measures it here",
    )


def _no_query(query: object) -> HoldfastError:
    return Invalid(
        "this is no query",
        where="hf.guard(…)",
        found=type(query).__name__,
        expected="a DataStreamWriter, hf.sink(…), or a StreamingQuery",
        hint="give it frame.writeStream.format(…), before .start()",
    )
