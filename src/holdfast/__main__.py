"""`holdfast`, and `python -m holdfast`."""

import sys


def main() -> None:
    """The `holdfast` command; Ctrl-C ends it in one line, also while its modules load."""
    try:
        from holdfast.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
