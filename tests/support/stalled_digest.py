"""The `holdfast` command whose digests take until somebody interrupts it.

As a program it says `digesting` on standard error when the rows of a savepoint are about to be counted, and
waits there for a signal.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import NoReturn

from holdfast.savepoints import digests

PROGRAM = (sys.executable, str(Path(__file__)))


def _until_interrupted(*_: object, **__: object) -> NoReturn:
    sys.stderr.write("digesting\n")
    sys.stderr.flush()
    while True:
        signal.pause()


if __name__ == "__main__":
    from holdfast.cli import main

    digests.digest = _until_interrupted
    main()
