"""An error as bytes that Flink's Java clients read: without them they ask again and again, for ever."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from holdfast.errors import Internal
from holdfast.formats.java_io import modified_utf8

CLASS: Final = "org.apache.flink.util.FlinkException"
_MARK: Final = b"@@MSG@@"
_TEXT: Final = b"t"  # TC_STRING, followed by two bytes of length
_STREAM: Final = b"\xac\xed\x00\x05"
_LONGEST: Final = 8000


def failure_cause(error: Mapping[str, Any]) -> dict[str, str]:
    """What Flink tells of a failed operation.

    Args:
        error: The error as `HoldfastError.as_dict` gives it.
    """
    text = told(error)
    return {
        "class": CLASS,
        "stack-trace": f"{CLASS}: {text}",
        "serialized-throwable": base64.b64encode(serialized(text)).decode(),
    }


def told(error: Mapping[str, Any]) -> str:
    """An error in words: the fact and what belongs to it."""
    names = ("where", "found", "expected", "hint")
    facts = [f"{name}: {error[name]}" for name in names if error.get(name)]
    return "\n".join([str(error["error"]), *facts])


def serialized(text: str) -> bytes:
    """A Java exception with this message, as Java's own serialisation writes it.

    Raises:
        Internal: The template is not what it was.
    """
    data = _template()
    inner = data.find(_STREAM, 1)
    if inner < 4:
        raise Internal("the template of Java's exceptions is damaged")
    head, body = data[: inner - 4], data[inner:]
    message = modified_utf8(text[:_LONGEST])
    # Behind the nested stream there may be more of the outer one: its length tells where that begins.
    size = int.from_bytes(data[inner - 4 : inner], "big")
    nested = _with_message(body[:size], message)
    parts = (_with_message(head, message), len(nested).to_bytes(4, "big"), nested)
    return b"".join(parts) + _with_message(body[size:], message)


@cache
def _template() -> bytes:
    place = files("holdfast.server") / "data" / "serialized_throwable_template.b64"
    return base64.b64decode(place.read_bytes())


def _with_message(data: bytes, message: bytes) -> bytes:
    """Put the message in place of the mark in every text, with the length before it set right."""
    written = bytearray()
    while (mark := data.find(_MARK)) >= 0:
        start = _start_of_text(data, mark)
        length = int.from_bytes(data[start + 1 : start + 3], "big")
        text = data[start + 3 : start + 3 + length].replace(_MARK, message)
        if len(text) > 0xFFFF:
            raise Internal("the message is too long for Java's short texts", found=f"{len(text)} bytes")
        written += data[:start] + _TEXT + len(text).to_bytes(2, "big") + text
        data = data[start + 3 + length :]
    return bytes(written) + data


def _start_of_text(data: bytes, mark: int) -> int:
    """Where the text that a mark is in begins: at the nearest text that reaches beyond it."""
    start = data.rfind(_TEXT, 0, mark - 2)
    while start >= 0:
        end = start + 3 + int.from_bytes(data[start + 1 : start + 3], "big")
        if mark + len(_MARK) <= end <= len(data):
            return start
        start = data.rfind(_TEXT, 0, start)
    raise Internal("the template of Java's exceptions is damaged", found="a mark outside of any text")
