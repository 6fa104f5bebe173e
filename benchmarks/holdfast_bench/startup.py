"""How long the verbs take that start no JVM."""

from __future__ import annotations

import sys

from holdfast_bench.measure import Bench, time_commands


def startup(runs: int) -> Bench:
    """Time `--help`, `list` and `doctor` as whole processes, beside importing pyspark alone."""
    holdfast = [sys.executable, "-m", "holdfast"]
    commands = {
        "holdfast --help": [*holdfast, "--help"],
        "holdfast list": [*holdfast, "list"],
        "holdfast doctor": [*holdfast, "doctor"],
        "python -c 'import pyspark.sql'": [sys.executable, "-c", "import pyspark.sql"],
    }
    series = time_commands(commands, runs)
    baseline = series[-1].median
    return Bench(
        "startup",
        "whole processes; the last is what a tool pays that imports Spark",
        series,
        {f"{each.name} / import pyspark.sql": each.median / baseline for each in series[:-1]},
    )
