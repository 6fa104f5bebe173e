"""Options of the JVMs of tests, which are to start quickly.

Tests start more than a hundred of them. With the archive of Spark's classes, which `make classes` makes, each
is up in two thirds of the time.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from holdfast.engine.session.class_archive import archive_of
from holdfast.engine.session.java import find_java
from holdfast.errors import HoldfastError

# A JVM that compiles little and starts quickly, for jobs as short as these.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_QUIET = "-Xlog:cds*=off"


def using(archive: Path) -> str:
    """Options of a JVM that maps an archive; of one that it cannot use it says nothing."""
    return f"-XX:SharedArchiveFile={archive} {_QUIET}"


def making(archive: Path) -> str:
    """Options of a JVM that keeps the classes which it has loaded."""
    return f"-XX:ArchiveClassesAtExit={archive} {_QUIET}"


def quick_jvm() -> str:
    """Options of a JVM that is to start quickly."""
    try:
        archive = archive_of(find_java(os.environ), Path(sys.prefix), os.environ)
    except HoldfastError:
        archive = None
    return f"{SHORT_LIVED} {'' if archive is None else archive.options()}".strip()
