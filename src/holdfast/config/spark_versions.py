"""The Spark versions that Holdfast supports, and the differences between them."""

from __future__ import annotations

import re
from importlib import metadata

from holdfast.errors import NotFound, Unsupported

OLDEST = (4, 2)
TOO_NEW = (4, 4)
RANGE = ">=4.2,<4.4"


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
            hint=f"run `pip install 'pyspark{RANGE}'`",
        )
    return version
