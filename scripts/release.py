"""Build a release in `dist/`: wheel, source distribution, bill of materials, checksums.

`make release` builds the committed files with pinned tools, so the same commit gives the same bytes. With
HOLDFAST_SIGNING_KEY, the path of a maintainer's SSH key, the file of checksums is signed. A public key is
enough if an agent has the private one. `allowed_signers` must list the key.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
SIGNERS = ROOT / "allowed_signers"
# What `allowed_signers` calls the maintainers, and what their signatures are for.
SIGNER = "holdfast"
NAMESPACE = "holdfast-release"
_LOCKED = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\\n]+?))? \\\n"
    r"(?P<hashes>(?: +--hash=\S+.*\n?)+)",
    re.MULTILINE,
)


def build(source: Path, target: Path) -> list[Path]:
    """Build the source distribution, and the wheel from it, with the pinned tools; return both.

    Args:
        source: The tree.
        target: The folder for both files.
    """
    pinned = ("--build-constraint", str(source / "scripts/pins/build.txt"), "--require-hashes")
    command = (
        str(Path(sys.executable).parent / "uv"),
        "build",
        "--quiet",
        *pinned,
        "--out-dir",
        str(target),
        str(source),
    )
    # With what set up this tree, if it is still in uv's cache.
    if subprocess.run([*command, "--offline"], check=False, capture_output=True).returncode != 0:
        subprocess.run(command, check=True)
    return sorted([*target.glob("*.tar.gz"), *target.glob("*.whl")])


def locked(text: str) -> dict[str, tuple[str, list[str]]]:
    """Return the version and the hashes of each package of a lock file, for this Python."""
    found: dict[str, tuple[str, list[str]]] = {}
    for match in _LOCKED.finditer(text):
        if match["marker"] is None or Marker(match["marker"]).evaluate():
            hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", match["hashes"])
            found[canonicalize_name(match["name"])] = (match["version"], hashes)
    return found


def required(requirements: list[str], extras: frozenset[str] = frozenset()) -> set[str]:
    """Return the names of all packages that these requirements bring, as they are installed here."""
    found: set[str] = set()
    waiting = [(Requirement(line), extras) for line in requirements]
    seen = set()
    while waiting:
        requirement, asked = waiting.pop()
        contexts = [{"extra": extra} for extra in (*asked, "")]
        if requirement.marker and not any(requirement.marker.evaluate(context) for context in contexts):
            continue
        name = canonicalize_name(requirement.name)
        wanted = frozenset(requirement.extras)
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        found.add(name)
        waiting += [(Requirement(line), wanted) for line in metadata.requires(name) or []]
    return found


def bill_of_materials(version: str, files: list[Path]) -> dict[str, Any]:
    """Return a CycloneDX document: the package, and all that `holdfast[all]` installs from the lock file."""
    lock = locked((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    names = sorted(required(["holdfast[all]"]) - {"holdfast"})
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{lock[name][0]}",
            "name": name,
            "version": lock[name][0],
            "purl": f"pkg:pypi/{name}@{lock[name][0]}",
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in lock[name][1]],
        }
        for name in names
    ]
    reference = f"pkg:pypi/holdfast@{version}"
    digests = [sha256(file) for file in files]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ' '.join(digests))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": reference,
                "name": "holdfast",
                "version": version,
                "purl": reference,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in digests],
            }
        },
        "components": components,
        "dependencies": [{"ref": reference, "dependsOn": [component["bom-ref"] for component in components]}],
    }


def sha256(file: Path) -> str:
    """Return the checksum of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def version_of(files: list[Path]) -> str:
    """Return the version in the name of the source distribution."""
    [source] = [file.name for file in files if file.name.endswith(".tar.gz")]
    return source.removeprefix("holdfast-").removesuffix(".tar.gz")


def release(target: Path, revision: str = "HEAD") -> list[Path]:
    """Build a release of a commit into an empty folder; return its files."""
    with tempfile.TemporaryDirectory() as work:
        archive, source = Path(work, "source.tar"), Path(work, "holdfast")
        subprocess.run(["git", "-C", str(ROOT), "archive", "-o", str(archive), revision], check=True)
        with tarfile.open(archive) as files:
            files.extractall(source, filter="data")
        built = build(source, target)
    version = version_of(built)
    bill = target / f"holdfast-{version}.cdx.json"
    text = json.dumps(bill_of_materials(version, built), indent=1)
    bill.write_text(f"{text}\n", encoding="utf-8")
    sums = target / "SHA256SUMS"
    sums.write_text("".join(f"{sha256(file)}  {file.name}\n" for file in (*built, bill)), encoding="utf-8")
    return [*built, bill, sums]


def sign(sums: Path, key: Path, signers: Path = SIGNERS) -> Path:
    """Sign the file of checksums and return the signature, which those who have the signers' keys can verify.

    Raises:
        SystemExit: The key cannot sign, or is not one of the signers'.
    """
    signature = sums.with_name(f"{sums.name}.sig")
    signature.unlink(missing_ok=True)
    signed = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(sums)]
    verified = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", SIGNER, "-n", NAMESPACE]
    if subprocess.run(signed, check=False).returncode != 0:
        raise SystemExit(
            f"error: {key} did not sign {sums}; expected an SSH key, or a public one with its agent"
        )
    done = subprocess.run(
        [*verified, "-s", str(signature)], input=sums.read_bytes(), check=False, capture_output=True
    )
    if done.returncode != 0:
        signature.unlink()
        raise SystemExit(f"error: {signers} does not list {key}, so nobody could verify the release")
    return signature


def main() -> None:
    """Build a release of the newest commit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path, nargs="?", default=ROOT / "dist")
    target = parser.parse_args().target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    files = release(target)
    key = os.environ.get("HOLDFAST_SIGNING_KEY")
    if key:
        files.append(sign(files[-1], Path(key)))
    for file in files:
        print(f"{sha256(file)}  {file}")
    if not key:
        print("not signed: HOLDFAST_SIGNING_KEY names no key", file=sys.stderr)


if __name__ == "__main__":
    main()
