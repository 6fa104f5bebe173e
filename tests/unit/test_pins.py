"""What is fetched is what was looked at: every tool and every jar has a pinned hash."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
PINS = SCRIPTS / "pins"


@pytest.mark.parametrize("name", ["uv.txt", "build.txt", "flink.txt"])
def test_each_tool_has_one_version_and_its_hashes(name: str) -> None:
    text = (PINS / name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip()]
    assert lines
    for line in lines:
        assert re.match(r"[a-z0-9-]+==[0-9.]+ ", line)
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", line)


@pytest.mark.parametrize("pins", sorted((PINS / "peers").iterdir()), ids=lambda pins: pins.stem)
def test_each_engine_of_the_bench_has_one_version_and_its_hashes(pins: Path) -> None:
    lines = pins.read_text().replace("\\\n", " ").splitlines()
    assert lines
    for line in lines:
        assert re.match(r"[a-z0-9-]+==[0-9a-z.]+ .*--hash=sha256:[0-9a-f]{64}", line)
    assert "--require-hashes" in (SCRIPTS / "peers.sh").read_text()


def test_what_builds_the_wheel_is_the_pinned_one() -> None:
    [wanted] = re.findall(
        r'^requires = \["hatchling==([0-9.]+)"\]$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert f"hatchling=={wanted} " in (PINS / "build.txt").read_text()
    setup = (SCRIPTS / "setup.sh").read_text()
    assert "--require-hashes -r scripts/pins/uv.txt" in setup
    assert "--build-constraint scripts/pins/build.txt" in setup
    assert "--require-hashes" in (SCRIPTS / "services.sh").read_text()


def test_each_fetch_of_jars_names_a_list_that_is_there() -> None:
    fetches = [
        found[1]
        for script in SCRIPTS.glob("services-*.sh")
        for found in re.finditer(r"^\s*fetch \S+ \S+ (\S+) ", script.read_text(), re.MULTILINE)
    ]
    assert len(fetches) >= 3
    for name in fetches:
        lines = (PINS / name).read_text().splitlines()
        assert lines
        assert all(re.fullmatch(r"[0-9a-f]{64}  [^/ ]+\.jar", line) for line in lines)


def pinned(jars: Path, pin: Path) -> subprocess.CompletedProcess[str]:
    command = '. "$1"; pinned Kafka "$2" "$3"'
    return subprocess.run(
        ["bash", "-c", command, "bash", str(SCRIPTS / "maven.sh"), str(jars), str(pin)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("change", ["another byte", "one more", "one less"])
def test_jars_that_are_not_the_pinned_ones_are_refused(tmp_path: Path, change: str) -> None:
    jars, pin = tmp_path / "jars", tmp_path / "pin"
    jars.mkdir()
    for name in ("a-1.jar", "B_2.jar", "b-1.jar"):
        (jars / name).write_bytes(name.encode())
    names = ("B_2.jar", "a-1.jar", "b-1.jar")  # in the order of bytes
    pin.write_text("".join(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in names))
    assert pinned(jars, pin).returncode == 0
    if change == "another byte":
        (jars / "a-1.jar").write_bytes(b"a-1.jaR")
    elif change == "one more":
        (jars / "c-1.jar").touch()
    else:
        (jars / "a-1.jar").unlink()
    said = pinned(jars, pin)
    assert said.returncode == 6
    assert "is not what" in said.stderr


def test_each_promise_names_a_test_that_is_there() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    promised = text.partition("## What is promised")[2].partition("## What is not promised")[0]
    points = re.split(r"\n- ", promised)[1:]
    assert len(points) > 10
    for point in points:
        named = re.findall(r"`(tests/[^`]+\.py)`", point)
        assert named, point
        assert all((ROOT / name).is_file() for name in named), point
