"""Render the chart of `deploy/helm` with Helm, for the tests that need no Helm: `render.py HELM`.

Each file begins with the digest of the chart that it is of.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
CHART: Final = ROOT / "deploy" / "helm" / "holdfast"
_KUBERNETES: Final = "1.37.0"  # of the schemas; a Helm that is built by `go build` takes 1.20 by itself
_CODE: Final = ("--set-file", "job.code=deploy/jobs/counts.py")
# The options of each release that is rendered.
RELEASES: Final = {
    "chart-alone": _CODE,
    "chart-several": (
        *_CODE,
        "--set=image.repository=holdfast-s3a",
        "--set=ha.elections=s3://bucket/elections",
        "--set=envFrom[0].secretRef.name=bucket",
        "--set=monitoring.serviceMonitor=true",
    ),
}


def digest() -> str:
    """Return the digest of all files that a rendered release depends on."""
    digest = hashlib.sha256()
    for file in sorted([*CHART.rglob("*"), ROOT / "deploy" / "jobs" / "counts.py"]):
        if file.is_file():
            digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def rendered(helm: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Return what Helm renders of a release `counts` with these options, or says of them."""
    return subprocess.run(
        [str(helm), "template", "counts", str(CHART), f"--kube-version={_KUBERNETES}", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def text(helm: Path, release: str) -> str:
    """Return the file of a release."""
    done = rendered(helm, *RELEASES[release])
    if done.returncode != 0:
        raise ValueError(done.stderr)
    return f"# chart {digest()}\n{done.stdout}"


if __name__ == "__main__":
    for name in RELEASES:
        Path(__file__).with_name(f"{name}.yaml").write_text(text(Path(sys.argv[1]), name), encoding="utf-8")
