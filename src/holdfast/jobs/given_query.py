"""The query of a guard, its settings, and its exit codes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from holdfast.changes.reordering import find_by_name
from holdfast.config.checks import (
    Check,
    canonical_uri,
    check_fields,
    check_periodic,
    flag,
    group_name,
    local_path,
    optional,
    parse_storage,
    place_word,
    whole,
)
from holdfast.config.policies import Leading
from holdfast.config.units import Duration, optional_ms, parse_duration
from holdfast.errors import Conflict, Corrupt, Failed, HoldfastError, Invalid, Unavailable, Unsupported
from holdfast.extras import missing_package
from holdfast.jobs.checkpoint_damage import look
from holdfast.jobs.definition import Periodic
from holdfast.jobs.failures import from_text, may_pass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from holdfast.config.alert_settings import Alerts
    from holdfast.config.policies import OneBatch, Trigger
    from holdfast.observe.alerting import AlertEvent
    from holdfast.stream.sinks.query_sink import Sink

    Guarded: TypeAlias = DataStreamWriter | Sink | StreamingQuery


DONE: Final = 0
# The next start fails the same way, until somebody mends the code or the input.
FAILED: Final = Failed.exit_code
# Another process has the checkpoint, or has taken it over.
OWNED: Final = Conflict.exit_code
# As Spark finds a batch in its log that it has not written.
_ANOTHER_WRITER: Final = "CONCURRENT_STREAM_LOG_UPDATE"


def kind_of_failure(text: str) -> type[HoldfastError]:
    """Return the error class of a failed query, by the whole text of Spark's exception."""
    if _ANOTHER_WRITER in text:
        return Conflict
    return Unavailable if may_pass(text) else Failed


def of_signal(number: int) -> int:
    """Return the exit code for a signal, as in a shell."""
    return 128 + int(number)


def of_error(error: Exception) -> HoldfastError:
    """Return an error as one with an exit code.

    Errors of user code and of Spark are represented by their text.
    """
    if isinstance(error, HoldfastError):
        return error
    said = f"{type(error).__name__}: {error}"
    kind = Unavailable if may_pass(said) else Failed
    return missing_package(error) or kind("the query could not be started", found=said)


_OWNER: Final = "hf.guard"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """The settings of a guard, as documented in `hf.guard`.

    Raises:
        Invalid: A setting is not valid.
    """

    checkpoint: str | os.PathLike[str] | None
    name: str | None
    trigger: Trigger | OneBatch | None
    verify: Duration | None
    wait: Duration
    lease: Duration | None
    lease_at: str | os.PathLike[str] | None
    grace: Duration
    savepoints: str | os.PathLike[str] | None
    savepoint_every: Duration | None
    savepoints_retained: int
    savepoints_drop_expired: bool
    alerts: Alerts | None
    port: int | None
    host: str
    otlp: str | None
    on_alert: Callable[[AlertEvent], None] | None
    consumer_group: str | None
    home: str | Path | None

    def __post_init__(self) -> None:
        check_fields(self, _OWNER, _CHECKS)
        check_periodic(_OWNER, self.savepoints, self.savepoint_every)
        self.leading("s3a://bucket/checkpoint")

    @property
    def verify_ms(self) -> int | None:
        """The limit for verifying the checkpoint; None for no verification."""
        return optional_ms(self.verify)

    @property
    def wait_s(self) -> float:
        """The time to wait for an earlier owner."""
        return parse_duration(self.wait, allow_zero=True) / 1000

    @property
    def grace_s(self) -> float:
        """The time that a batch may take after the order to stop."""
        return parse_duration(self.grace, allow_zero=True) / 1000

    @property
    def periodic(self) -> Periodic | None:
        """The schedule of savepoints, or None."""
        if self.savepoints is None or self.savepoint_every is None:
            return None
        catalog = canonical_uri(parse_storage(self.savepoints, "savepoints"), Path.cwd())
        every_ms = parse_duration(self.savepoint_every)
        return Periodic(
            catalog, every_ms, self.savepoints_retained, drop_expired=self.savepoints_drop_expired
        )

    def leading(self, checkpoint: str) -> Leading | None:
        """Return the location of a checkpoint's lease; None if the lock of the local disk is enough.

        Args:
            checkpoint: The checkpoint, as a canonical URI.
        """
        address = None if self.lease_at is None else os.fspath(self.lease_at)
        if self.lease is None or (address is None and local_path(checkpoint) is not None):
            return None
        beside = checkpoint.rstrip("/").rpartition("/")[0]
        if address is None and beside.endswith(":/"):
            raise Invalid(
                "the lease cannot be stored next to a checkpoint that has no parent directory",
                code="HF-E2215",
                where=checkpoint,
                found="the root of a bucket",
                hint="give the lease an address with lease_at=…, or use a checkpoint below the bucket's root",
            )
        return Leading.of(address or beside, self.lease, Path.cwd(), Path.cwd())


_CHECKS: Final[dict[str, Check]] = {
    "checkpoint": optional(parse_storage),
    "verify": optional(parse_duration),
    "wait": partial(parse_duration, allow_zero=True),
    "lease": optional(parse_duration),
    "grace": partial(parse_duration, allow_zero=True),
    "savepoints": optional(parse_storage),
    "savepoint_every": optional(parse_duration),
    "savepoints_retained": partial(whole, least=1),
    "savepoints_drop_expired": flag,
    "consumer_group": optional(group_name),
}


_LOG: Final = logging.getLogger("holdfast.guard")
_DEFAULT_PLACE: Final = "spark.sql.streaming.checkpointLocation"
_LONGEST_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class GivenQuery:
    """A query, started or not, with the facts that a guard needs.

    Attributes:
        name: Its name in metrics, alerts and other commands.
        spark: Its session.
        checkpoint: Its checkpoint, as a canonical URI.
        sink: The sink that starts it; None if it runs already.
        running: The query, if it runs already.
        settings: The settings of its start.
    """

    name: str
    spark: SparkSession
    checkpoint: str
    sink: Sink | None
    running: StreamingQuery | None
    settings: GuardSettings = field(repr=False)

    @classmethod
    def of(cls, query: Guarded, settings: GuardSettings) -> GivenQuery:
        """Return the given query with its facts.

        Raises:
            Invalid: The argument is not a query, or its checkpoint is unknown.
            Unsupported: The query is one of Spark Connect, uses continuous processing, or its Spark is older
                than 3.5.
        """
        from holdfast.engine.connect import is_connect
        from holdfast.engine.queries.watch import (
            checkpoint_of,
            frame_of,
            is_running_query,
            is_writer,
            refuse_continuous,
            require_session,
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
        require_session(spark, "hf.guard(…)")
        place = _agreed(settings.checkpoint, place) or _default_place(spark, called)
        if place is None:
            raise Invalid(
                "the query has no checkpoint to guard",
                code="HF-E2216",
                where="hf.guard(…)",
                hint='set .option("checkpointLocation", …), or give checkpoint=…',
            )
        uri = _uri(spark, place)
        name = settings.name or _usable(called) or _usable(uri.rstrip("/").rpartition("/")[2]) or "query"
        return cls(name, spark, uri, sink, running, settings)

    def start(self, term: int | None) -> StreamingQuery:
        """Start the query unless it runs; a ledger gets the owner's term."""
        if self.running is not None or self.sink is None:
            return cast("StreamingQuery", self.running)
        for _, reordered in find_by_name({self.name: self.sink}, {self.name: self.checkpoint}):
            _LOG.warning("%s", reordered)
        # A plain writer has the name that it was told, or none.
        called = None if self.sink.frame is None else self.sink.name or self.settings.name
        return self.sink.start(
            checkpoint=self.checkpoint, trigger=self.settings.trigger, query_name=called, term=term
        )

    def failure(self, text: str) -> HoldfastError:
        """Return the cause of the query's failure, as an error with an exit code.

        Args:
            text: The whole text of Spark's exception.
        """
        own = None if self.sink is None else self.sink.error
        if isinstance(own, HoldfastError):
            return own
        failure = from_text(text, label="query", query=self.name)
        kind = kind_of_failure(text)
        return kind(
            f"the query failed: {failure.error_class}: {failure.line}",
            where=failure.place,
            found=f"a failure of {failure.cause}" if failure.cause else None,
        )


def require_whole(given: GivenQuery, home: Path | None, limit_ms: int) -> None:
    """Raise unless a checkpoint is whole.

    Cost: every file of it is read, up to the time limit.

    Raises:
        Corrupt: The checkpoint is damaged.
    """
    damage, notes = look({given.name: given.checkpoint}, home or Path(os.devnull), limit_ms)
    for note in notes:
        _LOG.warning("%s", note)
    for found in damage:
        raise Corrupt(
            "the checkpoint is damaged, so the query was not started",
            code="HF-E6030",
            where=f"{found.checkpoint}/{found.problem.file}",
            found=found.problem.what,
            hint=f"list all damage with `holdfast checkpoint verify {place_word(found.checkpoint)}`;"
            " restore a savepoint"
            + (
                ""
                if found.whole is None
                else f", or create one from the undamaged batch {found.whole} with `holdfast savepoint take"
                f" {place_word(found.checkpoint)} --batch {found.whole}` and restore that savepoint"
            ),
        )


def _session(frame: DataFrame | None) -> SparkSession:
    from holdfast.engine.session.session import running_session

    spark = running_session() if frame is None else frame.sparkSession
    if spark is None:
        raise Unavailable(
            "this process has no Spark session in which the query can be started",
            code="HF-E5023",
            where="hf.guard(…)",
            hint="create the SparkSession before hf.guard(…)",
        )
    return spark


def _uri(spark: SparkSession, place: str) -> str:
    """Return the URI of a path as Spark resolves it."""
    from holdfast.engine.checkpoint_files import qualified

    return canonical_uri(parse_storage(qualified(spark, place), "checkpoint"), Path.cwd())


def _agreed(given: Any, written: str | None) -> str | None:
    if given is not None and written is not None and os.fspath(given).rstrip("/") != written.rstrip("/"):
        raise Invalid(
            "the checkpoint of the query differs from the checkpoint of the guard",
            code="HF-E2217",
            where="hf.guard(…, checkpoint=…)",
            found=written,
            expected=os.fspath(given),
            hint="omit checkpoint=, or remove the writer's checkpointLocation",
        )
    return written if given is None else os.fspath(given)


def _default_place(spark: SparkSession, called: str | None) -> str | None:
    """Return the default checkpoint from Spark's settings; None for a query without a name."""
    root = spark.conf.get(_DEFAULT_PLACE, None)
    return f"{root.rstrip('/')}/{called}" if root and called else None


def _usable(called: str | None) -> str | None:
    """Return a name that is valid in files and metrics."""
    letters = (letter if letter.isalnum() or letter in "._-" else "-" for letter in called or "")
    return "".join(letters).strip("._-")[:_LONGEST_NAME] or None


def _over_connect(query: object) -> HoldfastError:
    return Unsupported(
        "a query of Spark Connect runs in the server and cannot be guarded from a client",
        code="HF-E7082",
        where="hf.guard(…)",
        found=type(query).__name__,
        hint="guard the query in a program with a classic session, or monitor it with hf.watch(query,"
        " checkpoint=…)",
    )


def _no_query(query: object) -> HoldfastError:
    return Invalid(
        "the object to guard is not a query",
        code="HF-E2218",
        where="hf.guard(…)",
        found=type(query).__name__,
        expected="a DataStreamWriter, hf.sink(…), or a StreamingQuery",
        hint="pass frame.writeStream.format(…), before .start()",
    )
