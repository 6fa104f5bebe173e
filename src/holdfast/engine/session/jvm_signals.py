"""SIGTERM in the session's JVM, which would end Spark in the middle of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Handler:
    """Java's `SignalHandler`, called in this process."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told

    def handle(self, _signal: Any) -> None:
        self._told()

    class Java:
        """As Py4J wants it."""

        implements = ("sun.misc.SignalHandler",)


@contextmanager
def answered_sigterm(spark: SparkSession, told: Callable[[], None]) -> Iterator[None]:
    """Within the block a SIGTERM to the JVM calls `told`, on a thread of Py4J's, and does nothing else.

    Under `spark-submit` the JVM is the process that a platform sends it to, and the parent of this one. Where
    Java does not let it be answered, it stays as it was.
    """
    from py4j.protocol import Py4JError
    from pyspark import java_gateway

    jvm: Any = spark._jvm
    gateway: Any = java_gateway
    try:
        gateway.ensure_callback_server_started(spark.sparkContext._gateway)
        term = jvm.sun.misc.Signal("TERM")
        former = jvm.sun.misc.Signal.handle(term, _Handler(told))
    except (Py4JError, TypeError):
        yield
        return
    try:
        yield
    finally:
        with suppress(Exception):  # the JVM may be gone, and with it all signals to it
            jvm.sun.misc.Signal.handle(term, former)
