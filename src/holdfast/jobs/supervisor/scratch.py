"""The temporary files of a driver's JVM, which the JVM deletes unless it is killed."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

# The directories that Spark creates in its local directories.
_FOLDER: Final = re.compile(r"(?:spark|blockmgr)-[0-9a-f-]{36}")
_LIBRARY: Final = ".so"


def libraries_of(java_pid: int | None) -> tuple[str, ...]:
    """Return the native libraries that a live JVM has unpacked into the directory for temporary files.

    Empty if the kernel does not report them, or if the process is gone.
    """
    try:
        lines = (Path("/proc") / str(java_pid) / "maps").read_text().splitlines()
    except OSError:
        return ()
    paths = {Path(fields[5]) for line in lines if len(fields := line.split(maxsplit=5)) == 6}
    folder = Path(tempfile.gettempdir())
    return tuple(sorted(str(path) for path in paths if path.parent == folder and path.suffix == _LIBRARY))


def remove_scratch(paths: Iterable[str]) -> None:
    """Delete the directories and the native libraries of a JVM that was killed, and no other path."""
    for path in map(Path, paths):
        if _FOLDER.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix == _LIBRARY and path.parent == Path(tempfile.gettempdir()):
            for file in (path, path.with_name(f"{path.name}.lck")):
                file.unlink(missing_ok=True)
