"""Say which packages Spark could not fetch, where all that Python is told is that the JVM has ended.

Spark resolves `spark.jars.packages` in the JVM before that answers. What went wrong is in the JVM's standard
error alone, which is this process's. In a driver that is a file, which can be read; on a terminal or in a
pipe the person has it before his eyes.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.errors import HoldfastError, NotFound, Unavailable

PACKAGES_KEY: Final = "spark.jars.packages"
_NO_JVM: Final = "JAVA_GATEWAY_EXITED"
# More than Spark and Ivy write about a hundred packages.
_MOST_BYTES: Final = 4 << 20
_FACT: Final = "Spark could not fetch packages"
# Ivy's words in the JVM's last error, with group, artifact and version.
_UNRESOLVED: Final = re.compile(
    r"(?:unresolved dependency|download failed): "
    r"(?P<group>[^\s#]+)#(?P<name>[^\s;]+);(?P<version>[^\s:!,\]]+)"
)
# What Ivy says of a server that did not answer, rather than that it has no such package.
_NO_SERVER: Final = re.compile(
    r"Host \S+ not found|through a proxy server|(?:SERVER|CLIENT) ERROR|Server access error"
    r"|Connect\w*Exception|Connection (?:refused|reset|closed|timed out)|timed out|UnknownHost"
    r"|NoRouteToHost|SSL\w*Exception",
    re.IGNORECASE,
)
_OFFLINE: Final = (
    "without a network name jars that are here in spark.jars; with a mirror set spark.jars.repositories or"
    " spark.jars.ivySettings; behind a proxy set"
    " JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'"
)
_WRONG: Final = (
    "check group, artifact and version, which has to fit Spark and Scala; packages of your own need"
    " spark.jars.repositories, or name their jars in spark.jars"
)


@contextmanager
def unresolved_told(packages: str) -> Iterator[None]:
    """Within the block Spark may be started; if its JVM ends because of packages, that is the error.

    Args:
        packages: What `spark.jars.packages` asks for.

    Raises:
        NotFound: There are no such packages.
        Unavailable: Servers that may have them were not reached, or nobody can tell what went wrong.
    """
    sys.stderr.flush()
    begin = _end_of_stderr()
    try:
        yield
    except Exception as error:
        if not packages or _NO_JVM not in str(error):
            raise
        text = None if begin is None else _stderr_from(begin)
        if text is None:
            raise _unknown(packages) from error
        unresolved = unresolved_error(text)
        if unresolved is None:
            raise
        raise unresolved from error


def unresolved_error(text: str) -> HoldfastError | None:
    """The error that Spark's words are about; None if they are not about packages."""
    found = [f"{match['group']}:{match['name']}:{match['version']}" for match in _UNRESOLVED.finditer(text)]
    if not found:
        return None
    # A person may not see more than the fact, so the packages are in it.
    fact = f"{_FACT}: {', '.join(dict.fromkeys(found))}"
    if _NO_SERVER.search(text):
        return Unavailable(fact, where=PACKAGES_KEY, found="a server that did not answer", hint=_OFFLINE)
    return NotFound(fact, where=PACKAGES_KEY, found="no server that has them", hint=_WRONG)


def _unknown(packages: str) -> Unavailable:
    return Unavailable(
        "Java ended before Spark had started; it may not have been able to fetch packages",
        where=PACKAGES_KEY,
        found=packages,
        hint=f"see what it wrote to standard error; {_OFFLINE}",
    )


def _end_of_stderr() -> int | None:
    """How long standard error is, if it is a file."""
    try:
        found = os.fstat(2)
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _stderr_from(begin: int) -> str | None:
    try:
        # Opened anew, since standard error itself is open for writing.
        with Path("/dev/fd/2").open("rb") as file:
            file.seek(begin)
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
