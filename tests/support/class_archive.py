"""Spark's classes in a form that a JVM maps instead of reading and checking them, made once for all tests.

They start more than a hundred JVMs, and each is up in two thirds of the time. Run with the name of the
file to make, and with this folder in PYTHONPATH. One that does not go with the Java or the jars of a run is
not used; without Java none is made.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Beside the packages whose classes it has.
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
# A JVM that compiles little and starts quickly, for jobs as short as these.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def using(archive: Path) -> str:
    """Options of a JVM that maps an archive; of one that it cannot use it says nothing."""
    return f"-XX:SharedArchiveFile={archive} {_QUIET}"


def making(archive: Path) -> str:
    """Options of a JVM that keeps the classes which it has loaded."""
    return f"-XX:ArchiveClassesAtExit={archive} {_QUIET}"


_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def quick_jvm() -> str:
    """Options of a JVM that is to start quickly."""
    if not ARCHIVE.is_file() or " " in str(ARCHIVE):
        return SHORT_LIVED
    return f"{SHORT_LIVED} {using(ARCHIVE)}"


def make(archive: Path) -> None:
    """Run small queries of the usual kinds, and keep the classes that they needed."""
    import at_rest_queries
    from pyspark import SparkContext
    from small_session import small_session

    import holdfast as hf

    fresh = archive.with_suffix(".new")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        at_rest_queries.write_input(folder / "in", 2)
        options = f"{SHORT_LIVED} {making(fresh)}"
        spark = hf.session(
            "classes",
            master="local[2]",
            home=folder / "home",
            conf=small_session("1g", jvm=options),
        )
        spark.sparkContext.setLogLevel("ERROR")
        for name in ("aggregate", "keyed"):
            kind = at_rest_queries.KINDS[name]
            writer = kind.build(spark, folder / "in").writeStream.outputMode(kind.mode)
            writer = writer.option("checkpointLocation", str(folder / name)).trigger(availableNow=True)
            writer.foreachBatch(_collected).start().awaitTermination()
        gateway = SparkContext._gateway
        assert gateway is not None
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()  # the archive is written at its very end
    fresh.replace(archive)


def _collected(frame: DataFrame, batch_id: int) -> None:
    frame.collect()


if __name__ == "__main__":
    try:
        make(Path(sys.argv[1]))
    except HoldfastError as error:
        print(f"no archive of Spark's classes: {error}", file=sys.stderr)  # noqa: T201 - a program of its own
