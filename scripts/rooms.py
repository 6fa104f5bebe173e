"""Say which rooms have more modules side by side than a newcomer takes in; `make lint` calls it."""

from __future__ import annotations

import sys
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


if __name__ == "__main__":
    sys.exit("\n".join(line for package in PACKAGES for line in crowded(package)) or None)
