"""What a piece of work within bounds answers when it comes to them."""

from __future__ import annotations

import errno
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.server import bounded_work


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), "unavailable"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "unavailable"),
        (RuntimeError("can't start new thread"), "unavailable"),
        (ImportError("libarrow.so: failed to map segment from shared object"), "unavailable"),
        (caused(ImportError("numpy failed to import"), MemoryError()), "unavailable"),
        (OSError(errno.ENOENT, "No such file or directory"), "internal"),
        (RuntimeError("something else"), "internal"),
    ],
    ids=repr,
)
def test_work_that_finds_no_memory_is_told_so(error: Exception, kind: str) -> None:
    def work(_question: dict[str, Any], _facts: dict[str, Any]) -> Iterator[bytes]:
        yield b"{}"
        raise error

    answer = io.BytesIO()
    bounded_work._answer(work, {}, answer, 60 << 20)
    refusal = json.loads(answer.getvalue().splitlines()[-1])[bounded_work.REFUSED]
    assert refusal["kind"] == kind
    assert (refusal["expected"] or "").startswith("at most 60 MiB") == (kind == "unavailable")
