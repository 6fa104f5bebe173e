"""Checks of values, addresses and secrets that several setting classes share."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from holdfast.errors import Invalid

# The maximum of a Spark setting of type int.
MAX_INT = 2**31 - 1

# A function that takes a value and the name of its setting, and returns the value to store or raises an
# error.
Check = Callable[[Any, str], object]
Word = TypeVar("Word", bound=str)


def check_fields(settings: object, owner: str, checks: Mapping[str, Check]) -> None:
    """Check fields of a frozen object during its creation, and store the checked values.

    Args:
        settings: The object.
        owner: The name of its constructor, for errors.
        checks: The check of each field.

    Raises:
        Invalid: A value is not allowed.
    """
    for name, check in checks.items():
        object.__setattr__(settings, name, check(getattr(settings, name), f"{owner}({name}=…)"))


def check_periodic(owner: str, savepoints: object, every: object) -> None:
    """Check that periodic savepoints have both a directory and an interval, or neither.

    Raises:
        Invalid: Only one of the two is set.
    """
    if (savepoints is None) != (every is None):
        raise Invalid(
            "periodic savepoints need a directory and an interval",
            code="HF-E2156",
            where=f"{owner}(…)",
            found=f"savepoints={savepoints!r}, savepoint_every={every!r}",
            hint='set both: savepoints="s3://bucket/sp", savepoint_every="1h"',
        )


def optional(check: Check) -> Check:
    """Return a check that also accepts None."""
    return lambda value, setting: None if value is None else check(value, setting)


def whole(value: object, setting: str, *, least: int, most: int = MAX_INT) -> int:
    """Check that a value is a whole number within bounds, and return it.

    Raises:
        Invalid: The value is a boolean, not an `int`, or out of bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        above = isinstance(value, int) and value > most
        upper = f" and at most {most:,}" if above or most != MAX_INT else ""
        raise refused(setting, value, f"a whole number of at least {least}{upper}")
    return value


def fraction(value: object, setting: str, *, least: float, most: float | None = None) -> float:
    """Check that a value is a finite number within bounds, and return it.

    Raises:
        Invalid: The value is a boolean, not a number, NaN, infinite or out of bounds.
    """
    allowed = f"a number of at least {least:g}" + ("" if most is None else f" and at most {most:g}")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise refused(setting, value, allowed)
    if value < least or (most is not None and value > most):
        raise refused(setting, value, allowed)
    return float(value)


def flag(value: object, setting: str) -> bool:
    """Check that a value is a boolean, and return it.

    Raises:
        Invalid: The value is not a boolean; the text "false", for example, would count as true.
    """
    if not isinstance(value, bool):
        raise refused(setting, value, "True or False")
    return value


def one_of(value: object, setting: str, allowed: Sequence[Word]) -> Word:
    """Check that a value is one of the allowed texts, and return it.

    Raises:
        Invalid: The value is not one of them.
    """
    for word in allowed:
        if isinstance(value, str) and value == word:
            return word
    raise refused(setting, value, "one of " + ", ".join(f'"{word}"' for word in allowed))


def group_name(value: object, setting: str) -> str:
    """Check that a value is a valid name of a Kafka consumer group, and return it.

    Raises:
        Invalid: The value is empty or not text.
    """
    if not isinstance(value, str) or not value.strip():
        raise refused(
            setting, value, "the name of a consumer group", hint="give a name such as 'orders-spark'"
        )
    return value


def refused(
    setting: str,
    value: object,
    expected: str,
    *,
    where: str | None = None,
    found: str | None = None,
    hint: str | None = None,
) -> Invalid:
    """Return the error for a value that a setting does not allow.

    Args:
        setting: The name of the setting.
        value: The value.
        expected: The allowed values.
        where: The origin of the value, if that is not the setting itself.
        found: The text to show instead of the value.
        hint: The next step.
    """
    return Invalid(
        f"invalid value for {setting}",
        code="HF-E2157",
        where=setting if where is None else where,
        found=repr(value) if found is None else found,
        expected=expected,
        hint=hint,
    )


SCHEMES = ("file", "hdfs", "webhdfs", "s3", "s3a", "abfs", "abfss", "gs", "dbfs")

# Without a bucket or container, addresses with these schemes are incomplete; hdfs and dbfs have a default.
_NEED_AUTHORITY = frozenset({"webhdfs", "s3", "s3a", "abfs", "abfss", "gs"})

# The prefix of a URI that is not a path.
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_URI = re.compile(r"[a-z0-9]+:(?://(?P<authority>[^/]*))?(?P<path>/.*)?")


def parse_storage(value: str | os.PathLike[str], setting: str) -> str:
    """Check an address and return it as text, with its scheme in lower case.

    Raises:
        Invalid: The address is empty, contains control characters, starts with `~`, has a scheme that is not
            in `SCHEMES`, or is a URI without an absolute path or a required bucket.
    """
    given: object = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(given, str):
        raise refused(setting, value, "a path or a URI")
    text = given
    if not text or text != text.strip():
        raise refused(setting, value, "a path or a URI, without spaces before or after it")
    if any(ord(letter) < 32 for letter in text):
        raise refused(setting, value, "a path without control characters")
    if text.startswith("~"):
        raise refused(setting, value, "a path without ~", hint='write `Path.home() / "…"`')
    scheme = SCHEME.match(text)
    if scheme is None:
        return text
    return _checked_uri(scheme[1].lower() + text[len(scheme[1]) :], value, setting)


def canonical_uri(storage: str, base: Path) -> str:
    """Return the canonical absolute URI of an address that `parse_storage` returned.

    A local path is relative to `base`, symbolic links are followed, and nothing is percent-encoded: Hadoop
    does not decode paths, so `%20` would name a different directory. `s3:` becomes `s3a:`, the name of
    Spark's registered S3 client. All addresses of one directory give the same URI, so that a checkpoint in
    use is recognised.

    Cost: reads the symbolic links of a local path; does not contact a remote address.
    """
    match = _URI.fullmatch(storage) if SCHEME.match(storage) else None
    if match is None:
        return "file://" + os.path.realpath(base / storage)
    scheme = storage.partition(":")[0]
    path = match["path"] or "/"
    if scheme == "file":
        return "file://" + os.path.realpath(path)
    path = re.sub(r"/{2,}", "/", path).rstrip("/")
    return f"{'s3a' if scheme == 's3' else scheme}://{match['authority'] or ''}{path or '/'}"


def local_path(uri: str) -> Path | None:
    """Return the local path of a canonical URI; None if the URI is remote."""
    return Path(uri.removeprefix("file://")) if uri.startswith("file://") else None


def place_word(uri: str) -> str:
    """Return an address as a user would type it: a path if it is local, otherwise the URI."""
    path = local_path(uri)
    return shlex.quote(uri if path is None else str(path))


def _checked_uri(text: str, value: object, setting: str) -> str:
    scheme = text.partition(":")[0]
    if scheme not in SCHEMES:
        raise refused(
            setting,
            value,
            "a local path, or a URI that starts with " + ", ".join(f"{name}:" for name in SCHEMES),
            hint="if it is a local path with a colon, give the absolute path or put ./ before it",
        )
    match = _URI.fullmatch(text)
    if match is None or (match["path"] is None and not match["authority"]):
        raise refused(setting, value, f"{scheme}:// and an absolute path")
    if scheme == "file" and (match["authority"] not in (None, "", "localhost") or match["path"] is None):
        raise refused(setting, value, "a path on this machine, such as file:///data/checkpoints")
    if scheme in _NEED_AUTHORITY and not match["authority"]:
        raise refused(setting, value, f"a bucket or container, such as {scheme}://bucket/checkpoints")
    return text


TOKEN_VARIABLE: Final = "HOLDFAST_TOKEN"  # noqa: S105 - the name of a variable
# Variables that are not passed to processes that Holdfast starts.
SECRET_VARIABLES: Final = frozenset({TOKEN_VARIABLE})
_HIDDEN: Final = "…"


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without Holdfast's secrets, for a process that Holdfast starts."""
    return {name: value for name, value in environ.items() if name not in SECRET_VARIABLES}


def redacted_address(address: str) -> str:
    """Return an address reduced to scheme, host and port.

    A webhook's secret may be in the path, in the query or before the host, so none of these is shown.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return _HIDDEN
    if not parts.scheme or not host:
        return _HIDDEN
    name = f"[{host}]" if ":" in host else host
    shown = f"{parts.scheme}://{name}" + ("" if port is None else f":{port}")
    return shown if address.rstrip("/") == shown else f"{shown}/{_HIDDEN}"
