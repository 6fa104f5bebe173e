"""The parts of `make proof`, as `tests/proof_parts.txt` lists them.

`python tests/support/proof_parts.py` prints all parts, and with a number the files of that part.
"""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PARTS: Final = ROOT / "tests" / "proof_parts.txt"


def patterns() -> list[tuple[int, str]]:
    """Return the number of a part and a pattern of files, for each line."""
    lines = PARTS.read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return [(int(number), pattern) for number, pattern in words]


def parts_of(path: str) -> list[int]:
    """Return the parts that a test file is in."""
    return [number for number, pattern in patterns() if fnmatchcase(path, pattern)]


def test_files() -> list[str]:
    """Return all test files, from the root of the repository on."""
    return sorted(str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py"))


def files_of(part: int) -> list[str]:
    """Return the test files of a part."""
    return [file for file in test_files() if part in parts_of(file)]


def main(words: list[str]) -> int:
    """Print what is asked for."""
    parts = sorted({number for number, _ in patterns()})
    if not words:
        print(*parts)  # noqa: T201 - what `make` reads
        return 0
    if words[0] not in map(str, parts):
        print(f"error: unknown part {words[0]!r}; expected one of {parts}", file=sys.stderr)  # noqa: T201
        return 2
    print(*files_of(int(words[0])))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
