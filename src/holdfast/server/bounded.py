"""Execution of a request's work in a process with limits of time and memory.

The process ends when the client disconnects or the server ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.config.checks import without_secrets
from holdfast.errors import HoldfastError, Internal, Unavailable, error_from
from holdfast.server.bounded_work import DONE, REFUSED, too_much_memory
from holdfast.storage.atomic_swap import sandbox

_PIECE: Final = 1 << 16
# The bytes around the lines of an answer.
_AROUND: Final = 1 << 16
_CPU_SHARE: Final = 2
# Fewer arenas and pools, because the limit applies to address space, which they reserve in advance.
_SPARING: Final = {
    "MALLOC_ARENA_MAX": "2",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one request.

    Attributes:
        seconds: The time from the start of the process to the end of the answer.
        memory_bytes: The memory that the process may use or reserve.
        answer_bytes: The size of all lines of the answer.
    """

    seconds: float
    memory_bytes: int
    answer_bytes: int


@dataclass(frozen=True, slots=True)
class Lines:
    """The result of a request's work.

    Attributes:
        lines: The lines of the answer.
        facts: The data about the whole answer, from its last line.
    """

    lines: list[bytes]
    facts: Mapping[str, Any]


async def ask(module: str, question: Mapping[str, Any], limits: Limits) -> Lines:
    """Run a module in a separate process and return its result; cancelling ends the process.

    Args:
        module: A module that calls `bounded_work.run`.
        question: The input of the module, as JSON.
        limits: The limits of the process.

    Raises:
        Unavailable: The time or memory limit was exceeded.
        HoldfastError: As raised by the module.
    """
    # The files of the process are deleted with the sandbox, even after a kill.
    async with _workplace() as folder:
        process = await _started(module, folder)
        try:
            said = await asyncio.wait_for(_read_answer(process, question, limits), limits.seconds)
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise too_slow(limits) from error
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            code = await process.wait()
    lines = said.split(b"\n")
    last = _last(lines)
    if DONE in last:
        return Lines(lines[:-2], last[DONE])
    if REFUSED in last:
        raise error_from(last[REFUSED])
    raise _died(code, limits)


def too_slow(limits: Limits) -> Unavailable:
    """Return the error for a query that has reached its time limit."""
    return Unavailable(
        "the SQL query exceeded its time limit",
        code="HF-E5003",
        expected=f"at most {limits.seconds:g} s for reading the states, planning and running it",
        hint=(
            "select fewer states or rows, or run `holdfast state scan CHECKPOINT --sql` on the"
            " machine of the server"
        ),
    )


@asynccontextmanager
async def _workplace() -> AsyncIterator[Path]:
    """Create and remove a sandbox on a thread, because deleting old sandboxes may take a while."""
    made = sandbox(Path(tempfile.gettempdir()), "query", os.urandom(8).hex())
    entering = asyncio.create_task(asyncio.to_thread(made.__enter__))
    try:
        yield await asyncio.shield(entering)
    finally:
        # A cancelled request leaves no directory behind, not even one that is being created.
        await asyncio.shield(asyncio.create_task(_leave(made, entering)))


async def _leave(made: AbstractContextManager[Path], entering: asyncio.Task[Path]) -> None:
    with suppress(HoldfastError):
        await entering
        await asyncio.to_thread(made.__exit__, None, None, None)


async def _started(module: str, folder: Path) -> asyncio.subprocess.Process:
    environment = without_secrets(os.environ)
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, **_SPARING, "TMPDIR": str(folder)},
        )
    except OSError as error:
        raise Unavailable(
            "the process for the SQL query cannot be started",
            code="HF-E5041",
            found=error.strerror or str(error),
            hint="repeat the request",
        ) from error


async def _read_answer(
    process: asyncio.subprocess.Process, question: Mapping[str, Any], limits: Limits
) -> bytes:
    if process.stdin is None or process.stdout is None:
        raise Internal(
            "the process of the SQL query has no channel for the result",
            code="HF-E9031",
            hint="please report this",
        )
    asked = {
        "parent": os.getpid(),
        "memory_bytes": limits.memory_bytes,
        "cpu_s": int(limits.seconds * _CPU_SHARE) + 1,
        "question": question,
    }
    with suppress(ConnectionError):  # the exit is examined below
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        await process.stdin.drain()
    parts: list[bytes] = []
    size = 0
    while piece := await process.stdout.read(_PIECE):
        size += len(piece)
        if size > limits.answer_bytes + _AROUND:
            raise Internal(
                "the result of the SQL query exceeds the size limit of the channel",
                code="HF-E9032",
                found=f"{size:,} bytes",
                hint="please report this",
            )
        parts.append(piece)
    await process.wait()
    return b"".join(parts)


def _last(lines: list[bytes]) -> Mapping[str, Any]:
    """Return the last line of an answer; empty without one."""
    if len(lines) < 2 or lines[-1]:
        return {}
    last = json.loads(lines[-2])
    return last if isinstance(last, dict) else {}


def _died(code: int, limits: Limits) -> HoldfastError:
    """Return the error for a process that ended unexpectedly."""
    if code == -signal.SIGXCPU:
        return too_slow(limits)
    how = f"its process ended by signal {-code}" if code < 0 else f"its process ended with exit code {code}"
    return too_much_memory(limits.memory_bytes, how)
