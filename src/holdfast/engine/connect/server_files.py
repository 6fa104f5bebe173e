"""Files that a server of Spark Connect reaches, read by a client through the server's own reader of files.

That reader shows nothing of a `_spark_metadata` folder, where a table of files notes its batches.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What Spark would take for a pattern of names.
_PATTERN: Final = re.compile(r"([\\*?\[\]{}])")
_ABSENT: Final = "PATH_NOT_FOUND"


def read_bytes(spark: SparkSession, address: str) -> bytes | None:
    """A file's bytes, or None if there is none. Costs one small Spark job.

    Raises:
        Unavailable: The server, or its storage, does not answer.
    """
    from pyspark.errors import AnalysisException, PySparkException

    reader = spark.read.format("binaryFile").load(_PATTERN.sub(r"\\\1", address))
    try:
        rows = reader.select("content").collect()
    except AnalysisException as error:
        if error.getCondition() == _ABSENT:
            return None
        raise _unavailable(address, error) from error
    except PySparkException as error:
        raise _unavailable(address, error) from error
    return bytes(rows[0][0]) if rows else None


def _unavailable(address: str, error: Exception) -> Unavailable:
    return Unavailable(
        "the server of Spark Connect cannot read a file",
        where=address,
        found=next(iter(str(error).splitlines()), type(error).__name__),
        hint="see that the server runs and that it reaches the address, then start again",
    )
