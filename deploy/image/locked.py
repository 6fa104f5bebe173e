"""Print of a lock file what a list of packages names: `LOCK NEEDED`.

The list has names and versions as `uv pip compile` writes them. Each of its packages is printed with the
hashes of the lock file; one that the lock file does not have at that version ends the program.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_PACKAGE = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)")


def entries(lock: str) -> dict[tuple[str, str], list[str]]:
    """The entries of a lock file by name and version: one for each environment that it tells apart."""
    found: dict[tuple[str, str], list[str]] = {}
    for entry in re.split(r"\n(?=[A-Za-z0-9])", lock):
        if (package := _package(entry)) is not None:
            found.setdefault(package, []).append(entry.rstrip())
    return found


def locked(lock: str, needed: str) -> str:
    """What of a lock file a list needs.

    Raises:
        ValueError: A package is not in the lock file at that version.
    """
    known = entries(lock)
    names = [package for line in needed.splitlines() if (package := _package(line)) is not None]
    absent = [f"{name}=={version}" for name, version in names if (name, version) not in known]
    if absent:
        raise ValueError(f"not in the lock file: {', '.join(absent)}")
    return "".join(f"{entry}\n" for package in names for entry in known[package])


def _package(text: str) -> tuple[str, str] | None:
    found = _PACKAGE.match(text)
    return None if found is None else (re.sub(r"[-_.]+", "-", found["name"]).lower(), found["version"])


if __name__ == "__main__":
    try:
        sys.stdout.write(locked(*(Path(name).read_text(encoding="utf-8") for name in sys.argv[1:3])))
    except ValueError as error:
        sys.exit(f"error: {error}")
