"""One Spark session for all Spark tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as Holdfast makes it, on two cores."""
    from holdfast.engine.session import session

    place = tmp_path_factory.mktemp("spark")
    started = session(
        "holdfast-tests",
        master="local[2]",
        home=place / "home",
        conf={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(place / "warehouse"),
            "spark.driver.memory": "1g",
        },
    )
    started.sparkContext.setLogLevel("ERROR")
    yield started
    started.stop()
