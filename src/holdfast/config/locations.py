"""Where a checkpoint lies: local paths and URIs, checked and made canonical."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from holdfast.config.checks import refused

SCHEMES = ("file", "hdfs", "webhdfs", "s3", "s3a", "abfs", "abfss", "gs", "dbfs")

# Without a bucket or container these lead nowhere; hdfs and dbfs have a default.
_NEED_AUTHORITY = frozenset({"webhdfs", "s3", "s3a", "abfs", "abfss", "gs"})

# What a URI begins with, and no path.
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_URI = re.compile(r"[a-z0-9]+:(?://(?P<authority>[^/]*))?(?P<path>/.*)?")


def parse_storage(value: str | os.PathLike[str], setting: str) -> str:
    """Check an address and return it as text, with its scheme in lower case.

    Raises:
        Invalid: It is empty, holds control characters, starts with `~`, has a scheme that is not one
            of `SCHEMES`, or is a URI without an absolute path or the bucket that it needs.
    """
    given: object = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(given, str):
        raise refused(setting, value, "a path or a URI")
    text = given
    if not text or text != text.strip():
        raise refused(setting, value, "a path or a URI, without blanks around it")
    if any(ord(letter) < 32 for letter in text):
        raise refused(setting, value, "a path without control characters")
    if text.startswith("~"):
        raise refused(setting, value, "a path in full", hint='write it with `Path.home() / "…"`')
    scheme = SCHEME.match(text)
    if scheme is None:
        return text
    return _checked_uri(scheme[1].lower() + text[len(scheme[1]) :], value, setting)


def canonical_uri(storage: str, base: Path) -> str:
    """Give the one absolute URI of an address that `parse_storage` returned.

    A local path is taken from `base`, links are followed, and nothing is percent-encoded: Hadoop takes
    a path as it stands, so `%20` would name another directory. `s3:` becomes `s3a:`, the name under
    which Spark's S3 client is registered. Two addresses of one directory give one URI, which is what
    makes a checkpoint in use recognisable.

    Cost: the links of a local path are read; a remote place is not looked at.
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
    """The path of a canonical URI on this machine, or None if it lies elsewhere."""
    return Path(uri.removeprefix("file://")) if uri.startswith("file://") else None


def place_word(uri: str) -> str:
    """An address as it is typed in a shell: a path where it is on this machine."""
    path = local_path(uri)
    return shlex.quote(uri if path is None else str(path))


def _checked_uri(text: str, value: object, setting: str) -> str:
    scheme = text.partition(":")[0]
    if scheme not in SCHEMES:
        raise refused(
            setting,
            value,
            "a local path, or a URI that starts with " + ", ".join(f"{name}:" for name in SCHEMES),
            hint="for a local path with a colon in it, write it in full or put ./ before it",
        )
    match = _URI.fullmatch(text)
    if match is None or (match["path"] is None and not match["authority"]):
        raise refused(setting, value, f"{scheme}:// and an absolute path")
    if scheme == "file" and (match["authority"] not in (None, "", "localhost") or match["path"] is None):
        raise refused(setting, value, "a path on this machine, such as file:///data/checkpoints")
    if scheme in _NEED_AUTHORITY and not match["authority"]:
        raise refused(setting, value, f"a bucket or container, such as {scheme}://bucket/checkpoints")
    return text
