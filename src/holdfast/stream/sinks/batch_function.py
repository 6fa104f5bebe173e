"""The batch functions of sinks: their arguments, their errors and the id of their query."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from holdfast.engine.checkpoint_files import read_text
from holdfast.engine.connect import is_connect
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.logs.batch_logs import parse_query
from holdfast.layout import METADATA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


BatchFunction: TypeAlias = Callable[..., object]

# Spark sets this property on the thread that runs a batch, and on no other.
QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"


@dataclass(slots=True)
class Fault:
    """The state that one start of a sink shares with its batch function.

    Attributes:
        error: The exception of the batch function, of which Spark passes on only the text.
        term: The term of the leader that started the query.
        token: The token of this start in the ledger.
        repeats: Whether a batch may run again with the same input.
        checkpoint: The checkpoint of the query.
    """

    error: BaseException | None = None
    term: int | None = None
    token: int | None = None
    repeats: bool = False
    checkpoint: str = ""


def query_id_of(session: SparkSession, checkpoint: str) -> str:
    """Return the id of the query whose batch runs on this thread.

    Over Spark Connect the batch function runs in a process next to the server, so the id is read from the
    checkpoint.

    Raises:
        Unsupported: The id is neither on the thread nor in a readable checkpoint.
    """
    if is_connect(session):
        text = read_text(session, checkpoint, METADATA, folder=".")
        if text is None:
            raise Unsupported(
                "the Spark Connect server cannot find the checkpoint, so the ledger has no query id",
                code="HF-E7112",
                where=checkpoint,
                hint="store the checkpoint at an address that the server can reach, such as s3a://…",
            )
        return parse_query(text.encode(), f"{checkpoint}/{METADATA}").query_id
    query_id = session.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
    if not query_id:
        raise Unsupported(
            "the ledger cannot get the query's id: Spark did not set it on this thread",
            code="HF-E7113",
            hint="remove PYSPARK_PIN_THREAD from the environment, or set it to true",
        )
    return str(query_id)


def keep_fault(fault: Fault, fn: BatchFunction) -> Callable[[DataFrame, int], None]:
    """Return a function that calls the batch function and stores its exception in the fault."""

    def call(batch: DataFrame, batch_id: int) -> None:
        try:
            fn(batch, batch_id)
        except BaseException as error:
            fault.error = error
            raise

    return call


def requires_three(fn: BatchFunction) -> bool:
    """Return whether a batch function takes three arguments, the third of which is a transaction.

    Raises:
        Invalid: The function takes neither two nor three arguments.
    """
    signature = inspect.signature(fn)
    for count in (2, 3):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count == 3
    raise Invalid(
        "the batch function has the wrong number of arguments",
        code="HF-E2350",
        found=f"{getattr(fn, '__name__', fn)}{signature}",
        expected="fn(batch, batch_id) or fn(batch, batch_id, tx)",
        hint="define the function as def write(batch, batch_id); with a ledger, add a third argument tx",
    )
