"""What a Spark session of a test is set to: small, and quick to start."""

from __future__ import annotations

from class_archive import quick_jvm


def small_driver(memory: str = "512m", *, jvm: str | None = None) -> dict[str, str]:
    """Settings that change nothing of a query.

    Args:
        memory: The driver's.
        jvm: Options of the JVM, if not those that let it start quickly.
    """
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": quick_jvm() if jvm is None else jvm,
    }


def small_session(memory: str = "512m", *, jvm: str | None = None) -> dict[str, str]:
    """The same for a session whose batches are too short for more partitions."""
    return {**small_driver(memory, jvm=jvm), "spark.sql.shuffle.partitions": "2"}
