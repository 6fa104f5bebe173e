"""The process behind bounded work: SQL over state within its limits.

The question comes as one line of JSON. The answer is sent line by line; the last line says that it is whole,
or why it is not. Nothing heavy is loaded before the limits are set.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Final

from holdfast.errors import HoldfastError, Invalid, Unavailable
from holdfast.jobs.background import error_of

DONE: Final = "done"
REFUSED: Final = "refused"
_PR_SET_PDEATHSIG: Final = 1
_OUT_OF_MEMORY_SCORE: Final = "1000"
_DESCRIPTORS: Final = 1024
_NO_ROOM: Final = ("failed to map segment", "annot allocate memory", "can't start new thread")

Facts = dict[str, Any]
# Gets the question, and a dictionary for what is to be said of the answer as a whole; yields its lines.
Work = Callable[[Facts, Facts], Iterator[bytes]]


def run(work: Work) -> None:
    """Answer one question within its limits, and end.

    Args:
        work: Computes the answer.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked = json.loads(sys.stdin.buffer.readline())
    _end_with(int(asked["parent"]))
    _bound(asked["memory_bytes"], asked["cpu_s"])
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)  # whatever a library prints is no part of the answer
        _answer(work, asked["question"], answer, int(asked["memory_bytes"]))
        answer.flush()
    os._exit(0)  # nothing is left to tidy, and no thread worth waiting for


def _answer(work: Work, question: Facts, answer: BinaryIO, memory: int) -> None:
    facts: Facts = {}
    try:
        answer.writelines(line + b"\n" for line in work(question, facts))
        last: Facts = {DONE: facts}
    except HoldfastError as error:
        last = {REFUSED: error.as_dict()}
    except MemoryError:  # that of Arrow is one too
        last = {REFUSED: too_much_memory(memory).as_dict()}
    except Exception as error:  # whatever it is, who asks has to learn of it
        refusal = too_much_memory(memory) if _lacked_memory(error) else error_of(error)
        last = {REFUSED: refusal.as_dict()}
    answer.write(json.dumps(last).encode() + b"\n")


def _lacked_memory(error: BaseException | None) -> bool:
    """Return True if an error was caused by the memory limit."""
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        if isinstance(error, (ImportError, RuntimeError)) and any(words in str(error) for words in _NO_ROOM):
            return True
        error = error.__cause__ or error.__context__
    return False


def too_much_memory(most: int, found: str | None = None) -> Unavailable:
    """Return the error for a query that has reached its memory limit."""
    return Unavailable(
        "the SQL query exceeded its memory limit",
        code="HF-E5004",
        found=found,
        expected=f"at most {most >> 20:,} MiB, including the states that it reads",
        hint=(
            "select fewer states or rows, or run `holdfast state scan CHECKPOINT --sql` on the"
            " machine of the server"
        ),
    )


def _end_with(parent: int) -> None:
    """End when the calling process ends."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    # The kernel of another system does not do that; the pipe of the question ends with the process.
    threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    while os.read(0, 1 << 16):
        pass
    os._exit(1)


def _bound(memory_bytes: int, cpu_s: int) -> None:
    """Set the limits, and be the first process to be killed when the machine's memory runs out."""
    bounds = (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _DESCRIPTORS),
    )
    for what, most in bounds:
        _, hard = resource.getrlimit(what)
        within = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(ValueError, OSError):  # a system that has no such bound
            resource.setrlimit(what, (within, within))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OUT_OF_MEMORY_SCORE, encoding="ascii")


MODULE: Final = "holdfast.server.bounded_work"
_THREADS: Final = 2
_INT64: Final = 1 << 63


def lines(question: Facts, facts: Facts) -> Iterator[bytes]:
    """Yield the rows of the answer as JSON, as many as fit; `facts` says if there are more.

    Args:
        question: `address`, `batch`, `sql`, the limits `rows` and `bytes`, and the allowed `databases`.
        facts: Filled with `columns`, `more` and `left_out`.

    Raises:
        Invalid: The query is wrong, or its first row alone is too large.
    """
    from holdfast.at_rest.state_reader import StateReader
    from holdfast.external.named_addresses import name_database
    from holdfast.formats.rows.plain import plain
    from holdfast.savepoints.view import place_of

    for database in question["databases"]:
        name_database(database)
    place = place_of(question["address"], question["batch"])
    reader = StateReader(place.storage, place.batch_id)
    left_rows, left_bytes = int(question["rows"]), int(question["bytes"])
    facts.update(more=False, left_out=None)
    with reader.stream_query(question["sql"], most_rows=left_rows + 1, threads=_THREADS) as answer:
        names = facts["columns"] = list(answer.schema.names)
        whole = [name for name in names if str(answer.schema.field(name).type) == "decimal128(38, 0)"]
        for batch in answer:
            for row in batch.to_pylist():
                if left_rows == 0:
                    facts.update(more=True, left_out="rows")
                    return
                line = _encoded(plain(_with_whole_numbers(row, whole)))
                left_bytes -= len(line) + 1
                if left_bytes < 0:
                    _check_some(left_rows, question)
                    facts.update(more=True, left_out="bytes")
                    return
                left_rows -= 1
                yield line


def _check_some(left_rows: int, question: Facts) -> None:
    if left_rows == question["rows"]:
        raise Invalid(
            "a row of the answer exceeds the size limit",
            code="HF-E2268",
            expected=f"at most {question['bytes']:,} bytes",
            hint="select fewer columns or parts of a value, for example `left(column, 1000)`",
        )


def _with_whole_numbers(row: dict[str, Any], whole: list[str]) -> dict[str, Any]:
    """Convert DuckDB's sums of integers, which are decimals of 38 digits, to integers."""
    for name in whole:
        value = row[name]
        if isinstance(value, Decimal) and -_INT64 <= value < _INT64:
            row[name] = int(value)
    return row


def _encoded(row: Any) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=str).encode(
        "utf-8", "surrogatepass"
    )


if __name__ == "__main__":
    run(lines)
