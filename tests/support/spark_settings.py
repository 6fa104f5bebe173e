"""Settings of the shared session that a test changes, put back afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from holdfast.config.spark_defaults import LOCAL_FILES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[Callable[[dict[str, str]], None]]:
    """Changes settings; each is as before when the test is over."""
    before: dict[str, str | None] = {}

    def use(given: dict[str, str]) -> None:
        for key, value in given.items():
            before.setdefault(key, spark.conf.get(key, None))
            spark.conf.set(key, value)

    yield use
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


@pytest.fixture
def unprepared(spark: SparkSession, settings: Callable[[dict[str, str]], None]) -> SparkSession:
    """The session without its settings for local files, as a user has it."""
    settings(LOCAL_FILES)
    for key in LOCAL_FILES:
        spark.conf.unset(key)
    return spark
