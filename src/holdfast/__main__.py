"""The entry point of `holdfast` and of `python -m holdfast`."""

from __future__ import annotations

# `signal` imports this module but takes milliseconds to load, during which Ctrl-C would print a traceback.
import _signal as signal  # type: ignore[import-not-found]  # no type stub has it
import os
import sys


def main() -> None:
    """Run the `holdfast` command; Ctrl-C ends it with one line, also during the import of its modules."""
    if sys.platform == "win32":
        from holdfast.extras import NOT_ON_WINDOWS

        sys.stderr.write(f"error: {NOT_ON_WINDOWS}\n")
        sys.exit(7)
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if raises:
        # An exception during an import may be replaced by a different one. No work has started yet.
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


def _end(number: int, frame: object) -> None:  # noqa: ARG001 - the signature of signal handlers
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
