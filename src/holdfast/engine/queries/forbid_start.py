"""Load and build a person's code without letting it start anything."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.errors import Invalid


@contextmanager
def nothing_starts() -> Iterator[None]:
    """Refuse every start of a streaming query on this thread while the block runs.

    A script that starts its query itself would run on its real sources before anybody could look at its plan.
    PySpark has no switch for that, so the methods that start one are put aside and put back. Other threads
    of the process start what they like.

    Raises:
        Invalid: The code started a query.
    """
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    here = threading.get_ident()

    def guarded(real: Callable[..., Any]) -> Callable[..., Any]:
        def start(writer: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != here:
                return real(writer, *args, **kwargs)
            raise Invalid(
                "the code starts its query itself, and here nothing must be started",
                found=f"DataStreamWriter.{real.__name__}()",
                expected="a function that returns the writer, unstarted",
                hint='put the query into a function below @holdfast.job(name="…", checkpoint="…") and end it'
                " with `return df.writeStream…` or `return hf.sink(df)…`",
            )

        return start

    methods = {name: getattr(DataStreamWriter, name) for name in ("start", "toTable")}
    for name, real in methods.items():
        setattr(DataStreamWriter, name, guarded(real))
    try:
        yield
    finally:
        for name, real in methods.items():
            setattr(DataStreamWriter, name, real)
