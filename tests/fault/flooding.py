"""A client that means no good: `PORT COUNT HELD` opens COUNT connections in turn and holds the last HELD.

It sends nothing on them, says `done` once the last one is open, and lets go when its standard input ends.
"""

from __future__ import annotations

import resource
import socket
import sys
from collections import deque
from contextlib import suppress


def main(port: int, count: int, held: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, held + 100), hard))
    open_ones: deque[socket.socket] = deque()
    for _ in range(count):
        made = socket.socket()
        made.settimeout(60)
        with suppress(OSError):  # refused, or closed again: it has been open for as long as the server liked
            made.connect(("127.0.0.1", port))
        open_ones.append(made)
        if len(open_ones) > held:
            open_ones.popleft().close()
    sys.stdout.write("done\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
