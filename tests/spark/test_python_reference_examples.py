"""The examples of the Python reference that need a session run in one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import reference_examples
from spark_directory import working_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("public", reference_examples.examples(with_spark=True), ids=lambda it: it.name)
def test_an_example_with_spark_runs(public: Any, spark: SparkSession, tmp_path: Path) -> None:
    stream = reference_examples.events(spark, tmp_path / "arrivals")
    shop = tmp_path / "shop"
    folder = reference_examples.example_folder(shop)
    with reference_examples.settings_restored(spark), folder, working_in(spark, shop):
        reference_examples.run(public.example, spark=spark, events=stream)
