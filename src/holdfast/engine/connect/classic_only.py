"""Tell what belongs to a session of Spark Connect, and refuse it where Spark's JVM would be needed.

A client of Spark Connect sends plans to a server and gets rows back. It reaches neither the server's JVM nor
the threads of a query there, so whatever uses Spark's internals ends at a call of ours, with a reason.
"""

from __future__ import annotations

from typing import Final

from holdfast.errors import Unsupported

# Where PySpark keeps the frames, writers, queries and sessions of Connect; the classic ones are elsewhere.
_PACKAGE: Final = "pyspark.sql.connect."


def is_connect(value: object) -> bool:
    """Whether a frame, writer, query or session is one of Spark Connect; loads nothing."""
    return any(kind.__module__.startswith(_PACKAGE) for kind in type(value).__mro__)


def refuse_connect(value: object, what: str, *, where: str, hint: str) -> None:
    """Refuse a frame, writer, query or session of Spark Connect.

    Args:
        value: What was given.
        what: What cannot be had there, as the beginning of a sentence: "the state of hot keys".
        where: The call, for the error.
        hint: What to do in its place.

    Raises:
        Unsupported: It is one of Spark Connect.
    """
    if is_connect(value):
        raise Unsupported(
            f"{what} cannot be had over Spark Connect", where=where, found=type(value).__name__, hint=hint
        )
