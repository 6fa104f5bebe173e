"""Exit codes of a guarded query, by which a platform decides whether to start it again."""

from __future__ import annotations

from typing import Final

from holdfast.errors import Conflict, Failed, HoldfastError, Unavailable
from holdfast.extras import missing_package
from holdfast.jobs.failures.classifier import may_pass

DONE: Final = 0
# The next start fails the same way, until somebody mends the code or the input.
FAILED: Final = Failed.exit_code
# Another process has the checkpoint, or has taken it over.
OWNED: Final = Conflict.exit_code
# As Spark finds a batch in its log that it has not written.
_ANOTHER_WRITER: Final = "CONCURRENT_STREAM_LOG_UPDATE"


def kind_of_failure(text: str) -> type[HoldfastError]:
    """The kind of error of a query that has failed, by the whole text of Spark's exception."""
    if _ANOTHER_WRITER in text:
        return Conflict
    return Unavailable if may_pass(text) else Failed


def of_signal(number: int) -> int:
    """That of a batch that was broken off by a signal, as a shell has it."""
    return 128 + int(number)


def of_error(error: Exception) -> HoldfastError:
    """An error as one that has an exit code.

    What is neither ours nor a missing package is of the person's code or of Spark, and is told by its text.
    """
    if isinstance(error, HoldfastError):
        return error
    said = f"{type(error).__name__}: {error}"
    kind = Unavailable if may_pass(said) else Failed
    return missing_package(error) or kind("the query could not be started", found=said)
