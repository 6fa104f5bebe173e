"""The process that runs SQL over state within limits.

The request is one line of JSON on standard input. The answer is written line by line; the last line reports
that the answer is complete, or the error. Large packages are loaded only after the limits are set.
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
# The function that computes an answer: it takes the request and a dictionary for data about the whole answer,
# and yields lines.
Work = Callable[[Facts, Facts], Iterator[bytes]]


def run(work: Work) -> None:
    """Read one request, answer it within its limits, and exit.

    Args:
        work: The function that computes the answer.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked = json.loads(sys.stdin.buffer.readline())
    _end_with(int(asked["parent"]))
    _bound(asked["memory_bytes"], asked["cpu_s"])
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)  # output of libraries is not part of the answer
        _answer(work, asked["question"], answer, int(asked["memory_bytes"]))
        answer.flush()
    os._exit(0)  # no clean-up is needed, and no thread must be awaited


def _answer(work: Work, question: Facts, answer: BinaryIO, memory: int) -> None:
    facts: Facts = {}
    try:
        answer.writelines(line + b"\n" for line in work(question, facts))
        last: Facts = {DONE: facts}
    except HoldfastError as error:
        last = {REFUSED: error.as_dict()}
    except MemoryError:  # an Arrow memory error is also one
        last = {REFUSED: too_much_memory(memory).as_dict()}
    except Exception as error:  # every error must be reported to the caller
        refusal = too_much_memory(memory) if _lacked_memory(error) else error_of(error)
        last = {REFUSED: refusal.as_dict()}
    answer.write(json.dumps(last).encode() + b"\n")


def _lacked_memory(error: BaseException | None) -> bool:
    """Return whether an error was caused by the memory limit."""
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
    """Make this process end when its parent ends."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    # Only Linux supports this; on other systems, the process ends when the pipe of the request is closed.
    threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    while os.read(0, 1 << 16):
        pass
    os._exit(1)


def _bound(memory_bytes: int, cpu_s: int) -> None:
    """Set the limits, and make this process the first to be killed if the machine runs out of memory."""
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
        with suppress(ValueError, OSError):  # a system without such a limit
            resource.setrlimit(what, (within, within))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OUT_OF_MEMORY_SCORE, encoding="ascii")


MODULE: Final = "holdfast.server.bounded_work"
_THREADS: Final = 2
_INT64: Final = 1 << 63


def lines(question: Facts, facts: Facts) -> Iterator[bytes]:
    """Yield the rows of the answer as JSON within the limits, and fill `facts`.

    Args:
        question: `address`, `batch`, `sql`, the limits `rows` and `bytes`, and the allowed `databases`.
        facts: The output: `columns`, `more` (whether there are more rows) and `left_out`.

    Raises:
        Invalid: The query is invalid, or its first row alone exceeds the limit of bytes.
    """
    from holdfast.at_rest.state_reader import StateReader
    from holdfast.external.named_addresses import name_database
    from holdfast.formats.rows.plain import plain
    from holdfast.savepoints.address import StateAddress

    for database in question["databases"]:
        name_database(database)
    place = StateAddress.resolve(question["address"]).open_state(question["batch"])
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
            "a row of the result exceeds the size limit",
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
