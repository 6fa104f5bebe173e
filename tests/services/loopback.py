"""Ports of this machine for the servers that tests start."""

from __future__ import annotations

import socket
import subprocess
import time


def free_ports(number: int) -> list[int]:
    """So many ports that nobody listens on now."""
    probes = [socket.socket() for _ in range(number)]
    for each in probes:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in probes]
    for each in probes:
        each.close()
    return ports


def listens(process: subprocess.Popen[bytes], port: int, patience_s: float) -> bool:
    """Wait until a server listens on its port; False if it ends before, or takes too long."""
    until = time.monotonic() + patience_s
    while process.poll() is None and time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.05)
    return False
