"""The wheel that is built from this tree, in an environment of its own, as `pip install` would leave it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from command import DEFAULTS

from holdfast.engine.session.java import find_java, java_home_for_spark

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
# What belongs to the person who runs the tests, and not to the one who reads the documents.
_FOREIGN = ("HOLDFAST_", "PYTHON", "PYSPARK_", "VIRTUAL_ENV", "SPARK_")


def build_wheel(folder: Path) -> Path:
    """Build the source distribution, and the wheel from it, with the pinned tools."""
    pinned = ("--build-constraint", str(ROOT / "scripts" / "pins" / "build.txt"), "--require-hashes")
    build = (str(UV), "build", "--quiet", *pinned, "--out-dir", str(folder), str(ROOT))
    # With what set up this tree, if it is still in uv's cache.
    if subprocess.run([*build, "--offline"], check=False, capture_output=True).returncode != 0:
        subprocess.run(build, check=True, timeout=300)
    [wheel] = folder.glob("*.whl")
    return wheel


def install(wheel: Path, place: Path) -> Path:
    """Make an environment for it; returns its programs' directory.

    It sees the packages that this Python has, but not what their `.pth` files add: the sources of the tree.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, timeout=60)
    python = place / "bin" / "python"
    into = (
        str(UV),
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--python",
        str(python),
        str(wheel),
    )
    subprocess.run(into, check=True, timeout=60)
    scheme = sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)})
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (Path(scheme) / "dependencies.pth").write_text("".join(f"{folder}\n" for folder in sorted(dependencies)))
    return python.parent


def readers_environment(programs: Path, port: int) -> Mapping[str, str]:
    """What the reader of a document has around him: the installed programs, Java, a terminal of 80 columns.

    Spark's sessions are small, as in all tests; nothing else is other than he finds it.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    own = str(Path(sys.executable).parent)
    others = [folder for folder in kept["PATH"].split(os.pathsep) if folder != own]
    settings = shlex.join(word for item in DEFAULTS.items() for word in ("--conf", "=".join(item)))
    return {
        **kept,
        "PATH": os.pathsep.join((str(programs), *others)),
        "JAVA_HOME": str(java_home_for_spark(find_java(os.environ), programs)),
        "TZ": "UTC",
        "COLUMNS": "80",
        "HOLDFAST_PORT": str(port),
        "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell",
    }
