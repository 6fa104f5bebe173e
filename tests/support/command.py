"""The `holdfast` command as a person would call it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

PROGRAM = str(Path(sys.executable).parent / "holdfast")

Holdfast = Callable[..., "subprocess.CompletedProcess[str]"]


# A JVM that compiles little and starts quickly, for jobs as short as these.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# What a person would write down for them.
DEFAULTS = f"""\
spark.ui.enabled false
spark.ui.showConsoleProgress false
spark.driver.memory 512m
spark.driver.extraJavaOptions {QUICK_JVM}
"""


def command_in(folder: Path, home: Path) -> Holdfast:
    """The command, to be called in a directory with a state home and Spark defaults of its own."""
    conf = folder / "spark-conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(DEFAULTS)

    def call(
        *arguments: str, environ: Mapping[str, str] | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, *arguments],
            cwd=folder,
            env={
                **os.environ,
                "HOLDFAST_HOME": str(home),
                "SPARK_CONF_DIR": str(conf),
                **(environ or {}),
            },
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return call
