"""The supervisor of a scripted job, as a process that takes itself for one of another machine.

`supervisor_of_a_machine.py SCRIPT HOME LEASE_S HOST`. It prints its events as lines of JSON, and at last how
the job ended.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from telling_supervisor import supervise


def main(script: str, home: str, lease_s: str, host: str) -> None:
    socket.gethostname = lambda: host
    Path(home).mkdir(parents=True, exist_ok=True)
    supervise(script, home, lease_s=float(lease_s), machine=host)


if __name__ == "__main__":
    main(*sys.argv[1:])
