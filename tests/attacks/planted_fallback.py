"""Notes of a fallback that whoever writes the checkpoint has planted, and `holdfast run` of the job.

Each note tries to move a directory of the checkpoint to where its writer may not write: beside the job file,
where Python imports it. Prints `refused` (exit 0), or what was let in (exit 1).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HOLDFAST = Path(sys.executable).with_name("holdfast")
JOB = """
import holdfast as hf


@hf.job(name="visits", checkpoint={checkpoint!r})
def visits(spark):
    raise SystemExit("no attack gets here")
"""
SAVEPOINT = "savepoints/20260305T080000.000Z-1f0c33aa-b41-9d2e"
# The time in a note names a directory; a note of an earlier version has none.
TIMES = {
    "paths": "20260305T080000Z",
    "paths and no time": None,
    "a path as the time": "x/../../project/json",
}


def attack(folder: Path, stamp: str | None) -> str | None:
    """Return what a note has moved or executed; None if nothing."""
    checkpoint, project = folder / "checkpoint", folder / "project"
    evil, target, executed = checkpoint / "evil", project / "json", folder / "executed"
    evil.mkdir(parents=True)
    project.mkdir()
    (evil / "__init__.py").write_text(f"open({str(executed)!r}, 'w').close()\n")
    job = project / "job.py"
    job.write_text(JOB.format(checkpoint=str(checkpoint)))
    note = {
        "query": "evil",
        "checkpoint": f"file://{evil}",
        "aside": str(target),
        "savepoint": f"file://{checkpoint}/.evil.holdfast.fallback/{SAVEPOINT}",
        "batch_id": 1,
        "newest": 2,
        "own": True,
    }
    if stamp is not None:
        note["stamp"] = stamp
    (checkpoint / ".evil.holdfast.fallback.json").write_text(json.dumps(note))
    command = [str(HOLDFAST), "run", str(job), "--no-rest", "--home", str(folder / "home")]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if target.exists() or not (evil / "__init__.py").exists():
        subprocess.run(command, cwd=folder, capture_output=True, timeout=300, check=False)
        return f"a directory was moved{', and executed by the next run' if executed.exists() else ''}"
    if ended.returncode == 0 or "fallback" not in ended.stderr + ended.stdout:
        return f"the run did not end with an error about the note: {ended.stderr or ended.stdout}"
    return None


def main() -> int:
    """Try every note."""
    let_in = []
    with tempfile.TemporaryDirectory() as root:
        for number, (name, stamp) in enumerate(TIMES.items()):
            found = attack(Path(root) / str(number), stamp)
            if found is not None:
                let_in.append(f"{name}: {found}")
    sys.stdout.write("\n".join(let_in or ["refused"]) + "\n")
    return 1 if let_in else 0


if __name__ == "__main__":
    sys.exit(main())
