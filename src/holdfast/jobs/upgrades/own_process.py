"""Call a function in a process of its own: the code of each job has its own modules and its own Spark.

The process ends with its caller, whatever ends that.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from holdfast.errors import HoldfastError, Unavailable

T = TypeVar("T")

_LOOK_S: Final = 0.5


def call_apart(
    function: Callable[..., T], *args: Any, look: Callable[[], None] | None = None, **kw: Any
) -> T:
    """Call a public function in a new process, and return what it returns.

    What the process prints goes to standard error.

    Args:
        function: A function of a module; its arguments and its result can be pickled.
        args: Its arguments.
        look: Called twice a second while the call lasts.
        kw: Its keyword arguments.

    Raises:
        HoldfastError: The function raised it.
        Unavailable: The process ended without an answer.
    """
    ours, theirs = os.pipe()
    command = [sys.executable, "-m", __name__, str(theirs)]
    with os.fdopen(ours, "rb") as answers:
        try:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command, stdin=subprocess.PIPE, stdout=2, pass_fds=(theirs,)
            )
        finally:
            os.close(theirs)
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        try:
            process.stdin.write(pickle.dumps((function, args, kw)))
            process.stdin.flush()
            while not select.select([answers], [], [], _LOOK_S)[0]:
                if look is not None:
                    look()
            answer = answers.read()
        finally:
            process.stdin.close()  # it ends if it has not answered
            code = process.wait()
    if not answer:
        raise Unavailable(
            "a process of the command ended early",
            code="HF-E5075",
            found=f"exit code {code}",
            hint="repeat the command, which continues an unfinished upgrade",
        )
    value, error = pickle.loads(answer)  # noqa: S301 - from our own process
    if error is not None:
        raise error
    return value  # type: ignore[no-any-return]  # as the function


def _main() -> None:
    function, args, kw = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
    threading.Thread(target=_end_with_caller, daemon=True).start()
    value, failure = None, None
    try:
        value = function(*args, **kw)
    except HoldfastError as error:
        failure = error
    with os.fdopen(int(sys.argv[1]), "wb") as answers:
        pickle.dump((value, failure), answers)


def _end_with_caller() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    _main()
