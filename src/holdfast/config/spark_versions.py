"""The Spark versions that Holdfast supports, and the differences between them."""

from __future__ import annotations

import re
from importlib import metadata

from holdfast.errors import NotFound, Unsupported

# For jobs, keyed state and the sessions that Holdfast creates.
OLDEST = (4, 2)
TOO_NEW = (4, 4)
RANGE = ">=4.2,<4.4"
# For queries of programs that create their own session: `hf.guard`, `hf.watch`, `hf.check`.
OLDEST_OF_PROGRAMS = (3, 5)
OLDEST_OVER_CONNECT = (4, 0)
# It does not write the number of state partitions to offset logs of version 2 that it begins.
UNFIXED_PARTITIONS = (4, 2)
OLDEST_JAVA_OF_PROGRAMS = 11


def installed(package: str) -> str | None:
    """Return the installed version of a package without importing it; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def minor(version: str) -> tuple[int, int]:
    """Return the major and minor number of a version: (4, 2) for `4.2.0`."""
    numbers = re.findall(r"\d+", version)
    return int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0


def spark_version() -> str:
    """Return the version of the installed pyspark if Holdfast supports it.

    Raises:
        NotFound: pyspark is not installed.
        Unsupported: The installed version is older or newer than the supported ones.
    """
    version = installed("pyspark")
    if version is None:
        raise NotFound(
            "pyspark is not installed",
            code="HF-E3031",
            where="this Python",
            hint="run `pip install 'holdfast[spark]'`",
        )
    if not OLDEST <= minor(version) < TOO_NEW:
        raise Unsupported(
            "unsupported Spark version",
            code="HF-E7041",
            where="the installed pyspark",
            found=version,
            expected=RANGE,
            hint=f"run `pip install 'pyspark{RANGE}'`; with Spark {_text(OLDEST_OF_PROGRAMS)} and newer a"
            " program with its own session can use hf.guard, hf.watch and hf.check",
        )
    return version


def refuse_older_spark() -> None:
    """Raise an error if the installed pyspark is older than the oldest with keyed state.

    Raises:
        Unsupported: The installed version is too old.
    """
    version = installed("pyspark")
    if version is not None and minor(version) < OLDEST:
        spark_version()


def require_spark_of_program(
    version: str, where: str, *, java: str | None = None, connect: bool = False
) -> None:
    """Check that the Spark and the Java of a program's own session are supported.

    Args:
        version: The version of Spark, with any suffix of a vendor.
        where: The call, for the error message.
        java: Java's `java.specification.version`: `17`, or `1.8` for Java 8; None if unknown.
        connect: Whether the session is one of Spark Connect.

    Raises:
        Unsupported: The version of Spark or Java is not supported.
    """
    oldest = OLDEST_OVER_CONNECT if connect else OLDEST_OF_PROGRAMS
    if not oldest <= minor(version) < TOO_NEW:
        raise Unsupported(
            "Spark Connect of this version is not supported" if connect else "this Spark is not supported",
            code="HF-E7137",
            where=where,
            found=f"Spark {version}",
            expected=f"Spark {_text(oldest)} or newer, below {_text(TOO_NEW)}",
            hint="monitor the checkpoint's files with `holdfast watch CHECKPOINT`; all commands on files read"
            " checkpoints of Spark 3.4 to 4.3",
        )
    if java is not None and int(java.removeprefix("1.").partition(".")[0]) < OLDEST_JAVA_OF_PROGRAMS:
        raise Unsupported(
            "the Java of this session is not supported",
            code="HF-E7135",
            where=where,
            found=f"Java {java.removeprefix('1.')}",
            expected=f"Java {OLDEST_JAVA_OF_PROGRAMS} or newer",
            hint=f"run Spark {version} with Java 17: set JAVA_HOME on the machine of the driver",
        )


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
