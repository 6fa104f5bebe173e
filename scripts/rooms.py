"""Say which rooms have too many modules, and which tests share a name; `make lint` calls it."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = (ROOT / "src" / "holdfast", ROOT / "benchmarks" / "holdfast_bench")
MOST = 15
# One module a verb.
FLAT = {"cli"}


def crowded(source: Path) -> list[str]:
    """The rooms with too many modules, each with how many it has."""
    rooms = (folder for folder in sorted(source.rglob("*")) if (folder / "__init__.py").is_file())
    counts = {
        room.relative_to(source).as_posix(): sum(
            module.name not in ("__init__.py", "__main__.py") for module in room.glob("*.py")
        )
        for room in (source, *rooms)
    }
    return [
        f"{room}/ has {count} modules side by side, at most {MOST} may be: give some a room of their own"
        for room, count in counts.items()
        if count > MOST and room not in FLAT
    ]


def doubled(tests: Path) -> list[str]:
    """The names that two test files have: pytest imports the first and refuses the other."""
    places = defaultdict(list)
    for file in sorted(tests.rglob("test_*.py")):
        places[file.name].append(file.relative_to(tests).as_posix())
    return [f"tests have one name: {' and '.join(files)}" for files in places.values() if len(files) > 1]


if __name__ == "__main__":
    complaints = [line for package in PACKAGES for line in crowded(package)]
    sys.exit("\n".join([*complaints, *doubled(ROOT / "tests")]) or None)
