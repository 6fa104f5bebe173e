"""One of several supervisors of a scripted job, as a process.

`one_of_several.py SCRIPT HOME ADDRESS LEASE [MACHINE]`. It prints its events as lines of JSON, and at last
how the job ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

from telling_supervisor import supervise

from holdfast.config.policies import Leading
from holdfast.ownership.elections import elections


def main(script: str, home: str, address: str, lease: str, machine: str | None = None) -> None:
    leading = Leading.of(address, lease, Path.cwd(), Path(home))
    assert leading is not None
    supervise(script, home, elections=elections(leading), machine=machine)


if __name__ == "__main__":
    main(*sys.argv[1:])
