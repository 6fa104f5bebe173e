"""Make the checkpoint of the README's plain query anew: `python tests/golden/make_visits.py`.

The examples in the help of the verbs go over it, so it has their names: batches 0 to 2, and customer ann.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from golden_queries import pack

ROOT = Path(__file__).parents[2]
# The checkpoint has the addresses of its input in it: one that says nothing of the machine.
PLACE = Path("/tmp/visits")
TARGET = Path(__file__).parent / "visits.tar.xz"


def main() -> None:
    """Run the query as the README does, and pack what it leaves."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    subprocess.run([sys.executable, str(ROOT / "docs/examples/plain_query.py")], cwd=PLACE, check=True)
    pack(PLACE / "checkpoints" / "visits", TARGET)
    shutil.rmtree(PLACE)
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes")  # noqa: T201 - says what it has made


if __name__ == "__main__":
    main()
