"""Make the checkpoints of a declarative pipeline anew: `python tests/golden/make_pipeline.py`.

Needs in JAVA_HOME a Java that has the module of vectors. The pipeline has run twice: once with all three
tables, and once with a full refresh of one of them.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from golden_queries import pack

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

from pipeline_runs import Pipeline  # noqa: E402 - from there

# The checkpoint has the addresses of its input in it: one that says nothing of the machine.
PLACE = Path("/tmp/cafe")
TARGET = HERE / "pipeline-4.2.tar.xz"


def main() -> None:
    """Run the pipeline and pack its checkpoints."""
    shutil.rmtree(PLACE, ignore_errors=True)
    pipeline = Pipeline(PLACE, os.environ)
    for minute in (1, 2, 3):
        pipeline.add(minute)
    pipeline.run()
    pipeline.add(4)
    pipeline.run("--full-refresh", "totals")
    pack(pipeline.storage, TARGET)
    shutil.rmtree(PLACE)
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes")  # noqa: T201 - says what it has made


if __name__ == "__main__":
    main()
