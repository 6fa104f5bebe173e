"""The entry point of `holdfast` and of `python -m holdfast`."""

from __future__ import annotations

# `signal` is made of this, and takes milliseconds to load, in which Ctrl-C would still be a traceback.
import _signal as signal  # type: ignore[import-not-found]  # it is in no stub
import os
import sys


def main() -> None:
    """Run the `holdfast` command; Ctrl-C ends it with one line, also during the import of its modules."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if raises:
        # An exception in the middle of an import may come out as another one. Nothing has begun yet.
        signal.signal(signal.SIGINT, _end)
    from holdfast.cli import interrupts
    from holdfast.cli import main as run

    try:
        if raises:
            interrupts.remember()
        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


def _end(number: int, frame: object) -> None:  # noqa: ARG001 - as handlers are called
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
