"""The supervisor of a scripted job, as a process that takes itself for one of another machine.

`supervisor_of_a_machine.py SCRIPT HOME LEASE_S HOST [ELECTIONS]`. It prints its events as lines of JSON, and
at last how the job ended.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from telling_supervisor import supervise

from holdfast.config.policies import Leading
from holdfast.ownership.elections import elections


def main(script: str, home: str, lease_s: str, host: str, address: str | None = None) -> None:
    socket.gethostname = lambda: host
    Path(home).mkdir(parents=True, exist_ok=True)
    leading = Leading.of(address, f"{lease_s}s", Path.cwd(), Path(home)) if address else None
    elected = None if leading is None else elections(leading)
    supervise(script, home, lease_s=float(lease_s), machine=host, elections=elected)


if __name__ == "__main__":
    main(*sys.argv[1:])
