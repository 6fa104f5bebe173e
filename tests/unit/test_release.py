"""A release: its bill of materials is that of the lock file, and two builds have the same bytes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import release

ROOT = Path(__file__).parents[2]


def test_the_bill_of_materials_has_all_that_an_install_brings(tmp_path: Path) -> None:
    wheel = tmp_path / "holdfast-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    bill = release.bill_of_materials("0.1.0", [wheel])
    versions = {component["name"]: component["version"] for component in bill["components"]}
    assert {"rocksdict", "typer", "pyspark", "duckdb", "fastapi", "s3fs"} <= set(versions)
    assert versions["pyspark"].startswith("4.2.")
    # Tools of developers are not installed with the package.
    assert not {"pytest", "ruff", "sphinx", "mypy"} & set(versions)
    assert all(component["hashes"] for component in bill["components"])
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": release.sha256(wheel)}]
    assert bill == release.bill_of_materials("0.1.0", [wheel])


def test_windows_is_answered_with_one_message() -> None:
    code = "import sys; sys.platform = 'win32'; from holdfast.__main__ import main; main()"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.returncode == 7
    assert "Windows Subsystem for Linux" in said.stderr
    assert "Traceback" not in said.stderr


def test_the_version_is_that_of_the_source_distribution() -> None:
    files = [Path("dist/holdfast-0.1.0-py3-none-any.whl"), Path("dist/holdfast-0.1.0.tar.gz")]
    assert release.version_of(files) == "0.1.0"


@pytest.mark.slow
def test_two_builds_have_the_same_bytes(tmp_path: Path) -> None:
    """From two copies with other times, in other folders."""
    digests = []
    for number, name in enumerate(("first", "the second")):
        source = tmp_path / name / "holdfast"
        for part in ("src", "scripts"):
            shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
        for page in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / page, source / page)
        for file in source.rglob("*"):
            os.utime(file, (1_000_000_000 + number * 86_400,) * 2)
        target = tmp_path / name / "dist"
        digests.append({file.name: release.sha256(file) for file in release.build(source, target)})
    assert len(digests[0]) == 2
    assert digests[0] == digests[1]


VERIFY = re.compile(r"^```bash\n(ssh-keygen -Y verify .*?)^```$", re.MULTILINE | re.DOTALL)


class SignedRelease:
    """A release in a folder, signed with a key of this test, as a user receives it.

    Attributes:
        folder: The files, and `allowed_signers` with the key.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = self.new_key("maintainer")
        self.signers = folder / "allowed_signers"
        public = self.key.with_suffix(".pub").read_text()
        self.signers.write_text(f'{release.SIGNER} namespaces="{release.NAMESPACE}" {public}')
        wheel = folder / "holdfast-0.1.0-py3-none-any.whl"
        wheel.write_bytes(bytes(range(256)))
        self.sums = folder / "SHA256SUMS"
        self.sums.write_text(f"{release.sha256(wheel)}  {wheel.name}\n")
        self.files = [wheel, self.sums]

    def new_key(self, name: str) -> Path:
        key = self.folder / name
        words = ("-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key))
        subprocess.run(["ssh-keygen", *words], check=True)
        return key

    def sign(self, key: Path | None = None) -> Path:
        return release.sign(self.sums, key or self.key, self.signers)

    def verified(self) -> bool:
        """Verify as the guide says."""
        [call] = VERIFY.findall((ROOT / "docs" / "guides" / "install.md").read_text(encoding="utf-8"))
        done = subprocess.run(
            ["bash", "-e", "-c", call], cwd=self.folder, capture_output=True, text=True, check=False
        )
        return done.returncode == 0


@pytest.fixture
def signed(tmp_path: Path) -> SignedRelease:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed: install openssh-client")
    made = SignedRelease(tmp_path)
    made.sign()
    return made


def test_a_signed_release_is_verified_as_the_guide_says(signed: SignedRelease) -> None:
    assert signed.verified()


@pytest.mark.parametrize("number", [0, 1], ids=["wheel", "checksums"])
def test_a_flipped_bit_is_refused(signed: SignedRelease, number: int) -> None:
    file = signed.files[number]
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(content)
    assert not signed.verified()


def test_checksums_that_another_key_has_signed_are_refused(signed: SignedRelease) -> None:
    other = signed.new_key("other")
    signature = signed.folder / "SHA256SUMS.sig"
    signature.unlink()
    words = ("-q", "-Y", "sign", "-f", str(other), "-n", release.NAMESPACE, str(signed.sums))
    subprocess.run(["ssh-keygen", *words], check=True)
    assert not signed.verified()


def test_a_signature_for_another_purpose_is_refused(signed: SignedRelease) -> None:
    (signed.folder / "SHA256SUMS.sig").unlink()
    words = ("-q", "-Y", "sign", "-f", str(signed.key), "-n", "git", str(signed.sums))
    subprocess.run(["ssh-keygen", *words], check=True)
    assert not signed.verified()


def test_a_key_that_nobody_could_verify_signs_nothing(signed: SignedRelease) -> None:
    with pytest.raises(SystemExit, match="does not list"):
        signed.sign(signed.new_key("other"))
    assert not (signed.folder / "SHA256SUMS.sig").exists()
    with pytest.raises(SystemExit, match="did not sign"):
        signed.sign(signed.folder / "missing")


def test_the_committed_signers_are_ones_that_ssh_reads() -> None:
    """Comments, or a key for this purpose alone."""
    for line in release.SIGNERS.read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(
            rf'#.*|{release.SIGNER} namespaces="{release.NAMESPACE}"\S* ssh-\S+ \S+( .*)?', line
        ), line
