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
# The version of the sets of capabilities that all kernels know: three sets of two words each.
_CAPABILITIES: Final = 0x20080522
# Those to use any file, CAP_DAC_OVERRIDE to CAP_FOWNER; and what lets another user keep them.
_ANY_FILE: Final = 0b1110
_PR_SET_KEEPCAPS: Final = 8
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


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
            os.write(answers, ANSWER.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
            os._exit(0)
        for descriptor in received:
            os.close(descriptor)
    requests.detach()  # it is closed with all others
    # While an interpreter starts, Ctrl-C ends it as the system does.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.setsid()
    # Who can send it signals finds it, and its group.
    os.write(answers, ANSWER.pack(os.getpid()))
    _become(json.loads(data), streams)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        holdfast.__main__.main()
    except KeyboardInterrupt:
        # It came before the first line of the command, which answers every later one.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def _become(request: dict[str, Any], streams: Sequence[int]) -> None:
    """The process that a shell would have started."""
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
        _keep_rights(0)
    if request["user"] is not None:
        _be(request["user"])
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "utf-8").partition(":")
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        opened = None
        if standard[number] is not None:
            # Standard error escapes what it cannot show, as Python has it.
            wrong = "backslashreplace" if number == 2 else errors or "strict"
            opened = open(number, mode, encoding=encoding, errors=wrong, closefd=False)  # noqa: SIM115 - as open as the process
        setattr(sys, name, opened)
    sys.argv = request["argv"]


def _be(user: int) -> None:
    """Become another user, who may use every file, since the interpreter may be in root's own."""
    os.setgroups([])
    os.setgid(user)
    if _LIBC.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    os.setuid(user)
    _keep_rights(_ANY_FILE)


def _keep_rights(rights: int) -> None:
    """Keep these of root's rights; without any, the mode of a file binds its owner, and all others."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0)
    if _LIBC.capset(header, (ctypes.c_uint32 * 6)(rights, rights, 0, 0, 0, 0)):
        raise OSError(ctypes.get_errno(), "capset")


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
