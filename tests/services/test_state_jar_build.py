"""The committed jar has the classes that its sources give, byte by byte."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from required import require

import holdfast as hf

pytestmark = pytest.mark.services

ROOT = Path(__file__).parents[2]


def test_the_sources_give_the_bytes_of_the_committed_jar(tmp_path: Path) -> None:
    """A digest of the sources tells whether the jar is old, and not whether its classes are theirs."""
    [pinned] = re.findall(r"^pyspark==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    if pyspark.__version__ != pinned:
        pytest.skip(f"the jar is compiled with pyspark {pinned}, and this is {pyspark.__version__}")
    require("java", "redis-client", "cassandra-client", "tikv-client")
    jar = tmp_path / "built.jar"
    built = subprocess.run(
        [str(ROOT / "scripts" / "jar.sh"), sys.executable, str(jar)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    assert jar.read_bytes() == Path(hf.state_jar()).read_bytes(), "run `make jar` and commit the jar"
