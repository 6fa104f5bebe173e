"""Symbolic links and pipes in a checkpoint, and in the directory that a restore is to write.

Whoever writes the checkpoint makes links to a secret of the operator, and pipes that nobody writes to. The
operator takes a savepoint, looks at the checkpoint, and restores into a directory that others have prepared.
The secret must get into no catalog and no message, nothing may be written behind a link, no verb may hang.
Prints `refused` (exit 0), or what was let in (exit 1).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from golden import golden_on_disk

HOLDFAST = Path(sys.executable).with_name("holdfast")
GOLDEN = "4.2/aggregate-changelog"
SECRET = "aws_secret_access_key = hunter2"
PATIENCE_S = 60


class Attack:
    """One checkpoint of the operator's, and a secret beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = golden_on_disk(GOLDEN, folder / "checkpoint")
        self.catalog = folder / "catalog"
        self.secret = folder / "private" / "credentials"
        self.secret.parent.mkdir()
        self.secret.write_text(f"[default]\n{SECRET}\n")

    def run(self, *arguments: object) -> str:
        """Return the output of a verb; `hangs` where it does not end."""
        command = [str(HOLDFAST), *map(str, arguments)]
        environment = {**os.environ, "HOLDFAST_HOME": str(self.folder / "home")}
        try:
            ended = subprocess.run(
                command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "hangs"
        return (ended.stdout + ended.stderr).decode(errors="replace")

    def link(self, path: str) -> None:
        """Replace a file of the checkpoint by a link to the secret."""
        place = self.checkpoint / path
        place.parent.mkdir(exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(self.secret)

    def leaks(self) -> Iterator[Path]:
        """The files, but the secret itself, that have its bytes; what a link leads to is not looked at."""
        for file in self.folder.rglob("*"):
            if file == self.secret or file.is_symlink() or not file.is_file():
                continue
            if SECRET.encode() in file.read_bytes():
                yield file
        for file in (self.catalog / "objects").rglob("*"):
            if file.is_symlink():
                yield file


def linked(folder: Path) -> Iterator[str]:
    """Links to the secret in a checkpoint."""
    attack = Attack(folder)
    for path in ("_holdfast/anything", "_holdfast/operator-orders.json"):
        attack.link(path)
        attack.run("savepoint", "take", attack.checkpoint, attack.catalog)
        for file in attack.leaks():
            yield f"a link at {path}: the secret is in {file.relative_to(folder)}"
            file.unlink()
        (attack.checkpoint / path).unlink()
    for path, verb in (("offsets/12", "show"), ("metadata", "verify")):
        attack.link(path)
        output = attack.run("checkpoint", verb, attack.checkpoint)
        if "hunter2" in output or "[default]" in output:
            yield f"a link at {path}: {verb} printed {output[:200]!r}"


def waiting(folder: Path) -> Iterator[str]:
    """Pipes that nobody writes to, in a checkpoint."""
    attack = Attack(folder)
    os.mkfifo(attack.checkpoint / "offsets/12")
    for verb in (("checkpoint", "show"), ("checkpoint", "verify"), ("state", "list")):
        if attack.run(*verb, attack.checkpoint) == "hangs":
            yield f"a pipe at offsets/12: {' '.join(verb)} hangs"


def restored(folder: Path) -> Iterator[str]:
    """A target of a restore, prepared with a link to a directory of the operator's."""
    attack = Attack(folder)
    attack.run("savepoint", "take", attack.checkpoint, attack.catalog)
    (savepoint,) = (attack.catalog / "savepoints").iterdir()
    for number, name in enumerate(("_holdfast", "state")):
        victim, target = folder / f"victim-{number}", folder / f"target-{number}"
        victim.mkdir()
        target.mkdir()
        (target / name).symlink_to(victim)
        output = attack.run("restore", savepoint, target)
        written = sorted(victim.rglob("*"))
        if written:
            yield f"a link at {name} of the target: the restore wrote {written[0].relative_to(folder)}"
        elif "link" not in output:
            yield f"a link at {name} of the target: {output!r}"


def main() -> int:
    """Try every attack."""
    let_in: list[str] = []
    with tempfile.TemporaryDirectory() as root:
        for number, attack in enumerate((linked, waiting, restored)):
            folder = Path(root) / str(number)
            folder.mkdir()
            let_in += attack(folder)
    sys.stdout.write("\n".join(let_in or ["refused"]) + "\n")
    return 1 if let_in else 0


if __name__ == "__main__":
    sys.exit(main())
