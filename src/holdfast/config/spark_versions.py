"""Known Spark versions, and the differences between them."""

from __future__ import annotations

import re
from importlib import metadata

from holdfast.errors import NotFound, Unsupported

OLDEST = (4, 2)
TOO_NEW = (4, 4)
RANGE = ">=4.2,<4.4"


def installed(package: str) -> str | None:
    """The installed version of a package, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def minor(version: str) -> tuple[int, int]:
    """(4, 2) for `4.2.0`."""
    numbers = re.findall(r"\d+", version)
    return int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0


def spark_version() -> str:
    """The installed pyspark, if it is one that Holdfast was built and tested for.

    Raises:
        NotFound: pyspark is not installed.
        Unsupported: It is older or newer than what Holdfast knows.
    """
    version = installed("pyspark")
    if version is None:
        raise NotFound(
            "pyspark is not installed",
            code="HF-E3031",
            where="this Python",
            hint="pip install 'holdfast[spark]'",
        )
    if not OLDEST <= minor(version) < TOO_NEW:
        raise Unsupported(
            "this Spark is not one that Holdfast knows",
            code="HF-E7041",
            where="the installed pyspark",
            found=version,
            expected=RANGE,
            hint=f"pip install 'pyspark{RANGE}'",
        )
    return version
