"""Pack compiled classes into a jar, the same bytes each time, with a digest of their sources."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "jvm"
DIGEST = "META-INF/holdfast-sources.sha256"
# The earliest time that a zip file can hold.
_TIME = (1980, 1, 1, 0, 0, 0)
_MANIFEST = b"Manifest-Version: 1.0\r\nAutomatic-Module-Name: holdfast.state\r\n\r\n"


def sources_digest(folder: Path = SOURCES) -> str:
    """One hash of all sources: of their names and contents."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*.scala")):
        total.update(f"{path.relative_to(folder)}\n".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def pack(classes: Path, jar: Path) -> None:
    """Write the jar."""
    entries = {"META-INF/MANIFEST.MF": _MANIFEST, DIGEST: sources_digest().encode()}
    for path in sorted(classes.rglob("*.class")):
        entries[str(path.relative_to(classes))] = path.read_bytes()
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, data in entries.items():
            packed.writestr(zipfile.ZipInfo(name, _TIME), data, zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))
