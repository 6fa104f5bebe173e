"""What the text formats share: version lines, compact JSON, and one way to say what is damaged."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from holdfast.errors import Corrupt, Unsupported
from holdfast.formats.limits import HIGHEST_NUMBER, JSON_CHARACTERS, JSON_LEVELS

_SHOWN = 80
# Half a character, which JSON can escape and no encoding can write.
_HALVES = re.compile(r"\\u[dD][89a-fA-F]")


def damaged(what: str, where: str, found: object, expected: str | None = None) -> Corrupt:
    """The error for bytes that Spark cannot have written.

    Args:
        what: The file's role, as in "the offset log".
        where: The file, and the line where that helps.
        found: What is there; long things are cut.
        expected: What should be there.
    """
    shown = found if isinstance(found, str) else repr(found)
    shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"
    return Corrupt(f"{what} is damaged", where=where, found=shown, expected=expected)


def decoded(data: bytes, what: str, where: str) -> str:
    """Bytes as text.

    Raises:
        Corrupt: They are not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise damaged(what, where, f"bytes that are not text, at {error.start}", "UTF-8") from error


def version_of(line: str, known: Sequence[int], what: str, where: str) -> int:
    """The number in a version line such as `v1`.

    Raises:
        Corrupt: It is no version line.
        Unsupported: A newer Spark wrote it.
    """
    number = line[1:]
    if not (line.startswith("v") and number.isascii() and number.isdigit() and number[0] != "0"):
        raise damaged(what, where, repr(line[:_SHOWN]), f"a version line, such as `v{known[0]}`")
    if number not in map(str, known):
        raise Unsupported(
            f"this version of {what} is not known",
            where=where,
            found=line[:_SHOWN],
            expected=", ".join(f"v{version}" for version in known),
            hint="a newer Spark wrote it, or the file is damaged",
        )
    return int(number)


def json_object(text: str, what: str, where: str) -> dict[str, Any]:
    """A JSON object, its keys in the order in which they stand.

    Raises:
        Corrupt: It is something else.
    """
    value = json_value(text, what, where)
    if not isinstance(value, dict):
        raise damaged(what, where, repr(text), "a JSON object")
    return value


def json_value(text: str, what: str, where: str) -> Any:
    """Any JSON.

    Raises:
        Corrupt: It is not JSON, says one thing twice, or is longer or nested deeper than any that Spark
            writes.
    """
    if len(text) > JSON_CHARACTERS:
        raise damaged(what, where, f"{len(text):,} characters", f"at most {JSON_CHARACTERS:,}")
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite)
        if _HALVES.search(text):
            compact(value).encode()
        # Who reads a part of it again may have less room for that.
        if text.count("[") + text.count("{") > JSON_LEVELS and _is_deeper(value, JSON_LEVELS):
            raise ValueError("it is nested too deeply")
    except (ValueError, RecursionError) as error:
        raise damaged(what, where, repr(text[:_SHOWN]), "JSON") from error
    return value


def foreign_json(data: str | bytes) -> Any:
    """Return the value of JSON that anybody may have written.

    Raises:
        ValueError: It is not JSON, is nested too deeply, or has a number that is not finite.
    """
    try:
        return json.loads(data, parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def whole_number(fields: dict[str, Any], key: str, what: str, where: str, default: int | None = None) -> int:
    """A field that holds a whole number.

    Raises:
        Corrupt: It is not there and has no default, or holds something else.
    """
    value = fields.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > HIGHEST_NUMBER:
        raise damaged(what, where, f"`{key}` is {value!r}", "a whole number")
    return value


def string(fields: dict[str, Any], key: str, what: str, where: str) -> str:
    """A field that holds text.

    Raises:
        Corrupt: It is not there or holds something else.
    """
    value = fields.get(key)
    if not isinstance(value, str):
        raise damaged(what, where, f"`{key}` is {value!r}", "text")
    return value


def compact(value: Any) -> str:
    """JSON as Spark's writers put it: no blanks, nothing escaped that need not be."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _is_deeper(value: Any, levels: int) -> bool:
    """Return whether lists and objects are nested in more levels."""
    level: list[Any] = [[value]]
    for _ in range(levels + 1):
        parts = (part.values() if isinstance(part, dict) else part for part in level)
        level = [inner for part in parts for inner in part if isinstance(inner, (dict, list))]
        if not level:
            return False
    return True


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key stands twice")
    return fields


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number")
    return number


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
