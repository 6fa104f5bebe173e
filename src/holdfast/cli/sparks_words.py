"""Keep what Spark, its JVM and a person's code write away from what a verb says."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def without_sparks_words() -> Iterator[TextIO]:
    """Keep the words of Spark and of the code away from the answer; give the stream for ours.

    The JVM writes to this process's standard error, and a job file may print.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as log:
        before = [os.dup(number) for number in (1, 2)]
        for number in (1, 2):
            os.dup2(log.fileno(), number)
        try:
            with open(
                before[1], "w", encoding=sys.stderr.encoding, errors="backslashreplace", closefd=False
            ) as words:
                yield words
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, real in zip((1, 2), before, strict=True):
                os.dup2(real, number)
                os.close(real)
