"""Find the one line of an error that a person can act on."""

from __future__ import annotations

import errno
import os
import re

from holdfast.errors import HoldfastError, Unavailable
from holdfast.jobs.failures.classifier import FailureClass, cause_of, cause_of_own, may_pass, place_of
from holdfast.jobs.failures.hints import hint_of
from holdfast.model import Failure

# The label of what fails while a driver starts its queries.
START = "start"

_ERROR_LINE = re.compile(
    r"^(?P<name>[A-Za-z_][\w.$]*(?:Error|Exception|Interrupt|Exit|Warning)\w*)(?:: (?P<text>.*))?$"
)
# An error of ours in a traceback; what it found and its hint are the lines below.
_OWN_LINE = re.compile(r"^holdfast\.errors\.(?P<name>\w+): (?P<text>.*)$")
_OWN_HINT = re.compile(r"^hint: (?P<text>.*)$")
_CAUSE = re.compile(r"^Caused by: (?P<name>[\w.$]+)(?:: (?P<text>.*))?$")
# Py4J puts what Java threw after a line that names the call alone.
_CALL = "An error occurred while calling "
_FIRST = re.compile(r"^(?:: )?(?P<name>[\w.$]+(?:Error|Exception))(?:: (?P<text>.*))?$")
_CONDITION = re.compile(r"^\[(?P<name>[A-Z][A-Z0-9_.]+)\] ?(?P<text>.*)$")

# What differs between two occurrences of the same failure: ids of runs and tasks, addresses.
_VARIES = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|\b(?:TID|task|stage) \d[\d.]*|0x[0-9a-f]{6,}|@[0-9a-f]{5,}"
)


def from_text(text: str, *, label: str, query: str | None = None) -> Failure:
    """Boil a Java or Python error down to its origin.

    The user's own Python traceback, if the text has one, ends in the line that he can mend. Otherwise
    it is the last cause that Java names.
    """
    name, line = _origin(text)
    line = _with_hint(name, _VARIES.sub("…", line), text)
    return Failure(label, name, line, query, text, cause_of(text).value, place_of(text))


def from_exception(error: BaseException, detail: str, *, label: str) -> Failure:
    """The same for an exception that was caught; `detail` is its traceback as text."""
    if isinstance(error, HoldfastError):
        line = f"{error.fact} (hint: {error.hint})" if error.hint else error.fact
        cause = cause_of_own(error.__traceback__).value
        return Failure(label, type(error).__name__, line, detail=str(error), cause=cause)
    text = str(error)
    if "Traceback (most recent call last)" in text or "Caused by: " in text or text.startswith(_CALL):
        return from_text(text, label=label)
    name, line = type(error).__name__, next(iter(text.strip().splitlines()), "")
    condition = _CONDITION.match(line)
    if condition:
        name, line = condition["name"], condition["text"]
    cause = cause_of(detail if "Traceback" in detail else f"{name}: {text}").value
    line = _with_hint(name, _VARIES.sub("…", line), detail)
    return Failure(label, name, line, detail=detail, cause=cause, place=place_of(detail))


def not_begun(error: OSError) -> Failure:
    """A driver that could not begin: something it needs in the state home could not be opened or made."""
    text = f"{type(error).__name__}: {error}"
    line = error.strerror or str(error)
    if error.filename is not None:
        line = f"{line}: {os.fsdecode(error.filename)}"
    line = f"the driver could not begin: {line}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        line += " (hint: free some room there)"
    return Failure(START, type(error).__name__, line, detail=text, cause=cause_of(text).value)


def comes_again(failure: Failure) -> bool:
    """Whether the next start of the same job would fail the same way.

    That is so of an error of its own code, settings or files while it starts. It is not of a driver that was
    killed, nor of what was not there at the moment: a server, memory, room on a disk.
    """
    if failure.label != START or failure.error_class == Unavailable.__name__:
        return False
    return failure.cause != FailureClass.RESOURCES.value and not may_pass(
        f"{failure.error_class}: {failure.line}\n{failure.detail}"
    )


def is_permanent(failure: Failure) -> bool:
    """Return True for a failure that every restart of a job ends in, until a person changes a file."""
    sinks_log = failure.cause == FailureClass.SINK.value  # for a source's, a fallback may be configured
    return sinks_log and failure.error_class == "BATCH_METADATA_NOT_FOUND"


def killed(signal_number: int | None, exit_code: int | None) -> Failure:
    """A driver that ended without a word."""
    cause = FailureClass.RESOURCES.value
    if signal_number is not None:
        return Failure("process", f"signal {signal_number}", "the driver was killed", cause=cause)
    line = "the driver ended without a word; see its log"
    return Failure("process", f"exit code {exit_code}", line, cause=cause)


def _with_hint(name: str, line: str, text: str) -> str:
    hint = hint_of(f"{name}: {line}", text)
    return line if hint is None or "(hint: " in line else f"{line} (hint: {hint})"


def _origin(text: str) -> tuple[str, str]:
    lines = text.splitlines()
    python = _after_traceback(lines)
    if python:
        return python
    causes = [cause for line in lines if (cause := _CAUSE.match(line.strip()))]
    if causes:
        return _named(causes[-1])
    first = next((line.strip() for line in lines if line.strip() and not line.startswith(_CALL)), "")
    match = _FIRST.match(first)
    return _named(match) if match else ("error", first)


def _after_traceback(lines: list[str]) -> tuple[str, str] | None:
    """The error line of the last Python traceback in a text."""
    last: tuple[str, str] | None = None
    inside = False
    for number, line in enumerate(lines):
        if "Traceback (most recent call last)" in line:
            inside = True
        elif inside and (own := _OWN_LINE.match(line)):
            last = own["name"], _with_own_hint(own["text"], lines[number + 1 :])
            inside = False
        elif inside and (match := _ERROR_LINE.match(line)):
            last = _named(match)
            inside = False
            if last[0] == "Py4JJavaError":
                # What Python says of it is the name of a call; Java's own words come after that.
                last = _in_java(lines[number + 1 :]) or last
    return last


def _with_own_hint(fact: str, below: list[str]) -> str:
    for line in below:
        if hint := _OWN_HINT.match(line):
            return f"{fact} (hint: {hint['text']})"
        if not line.startswith("  "):
            break
    return fact


def _in_java(lines: list[str]) -> tuple[str, str] | None:
    causes = [cause for line in lines if (cause := _CAUSE.match(line.strip()))]
    first = next((match for line in lines if (match := _FIRST.match(line.strip()))), None)
    match = causes[-1] if causes else first
    return None if match is None else _named(match)


def _named(match: re.Match[str]) -> tuple[str, str]:
    name, text = match["name"].rsplit(".", 1)[-1], (match["text"] or "").strip()
    condition = _CONDITION.match(text)
    return (condition["name"], condition["text"]) if condition else (name, text)
