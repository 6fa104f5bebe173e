"""A process that has loaded the command line, and becomes the `holdfast` command as often as it is asked.

A request is one message of a socket, with the descriptors of its standard streams; a fork answers it.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Sequence
from typing import Any, Final

# What is answered: the number of the process, then its exit code.
ANSWER: Final = struct.Struct("i")
# The version of the sets of capabilities that all kernels know, and three sets of two words each.
_CAPABILITIES: Final = 0x20080522
_SETS: Final = 6


def main(requests: socket.socket) -> None:
    """Fork for each request until nobody makes one any more."""
    import holdfast.__main__
    import holdfast.cli  # loaded once for all

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, received, _, _ = socket.recv_fds(requests, 1 << 20, 4)
        if not data:
            return
        if os.fork() == 0:
            answers, *streams = received
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if not (pid := os.fork()):
                break
            requests.close()
            for stream in streams:
                os.close(stream)
            os.write(answers, ANSWER.pack(pid))
            os.write(answers, ANSWER.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
            os._exit(0)
        for descriptor in received:
            os.close(descriptor)
    requests.detach()  # it is closed with all others
    _become(json.loads(data), streams)
    holdfast.__main__.main()


def _become(request: dict[str, Any], streams: Sequence[int]) -> None:
    """The process that a shell would have started."""
    os.setsid()
    left = list(streams)
    standard = [left.pop(0) if is_open else None for is_open in request["streams"]]
    # The descriptors that came are above those of the standard streams, which are open until here.
    for number, stream in enumerate(standard):
        if stream is None:
            os.close(number)
        else:
            os.dup2(stream, number)
    os.closerange(3, 1 << 12)
    if standard[0] is not None and os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    os.chdir(request["cwd"])
    if request["powerless"]:
        _lay_down_rights()
    if request["user"] is not None:
        os.setgroups([])
        os.setgid(request["user"])
        os.setuid(request["user"])
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "utf-8").partition(":")
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        opened = None
        if standard[number] is not None:
            # Standard error escapes what it cannot show, as Python has it.
            wrong = "backslashreplace" if number == 2 else errors or "strict"
            opened = open(number, mode, encoding=encoding, errors=wrong, closefd=False)  # noqa: SIM115 - as open as the process
        setattr(sys, name, opened)
    sys.argv = request["argv"]


def _lay_down_rights() -> None:
    """Root becomes as any other user: the mode of a file binds its owner, and only the owner changes it."""
    library = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0)
    if library.capset(header, (ctypes.c_uint32 * _SETS)()):
        raise OSError(ctypes.get_errno(), "capset")


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
