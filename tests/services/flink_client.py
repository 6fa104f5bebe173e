"""Flink's own command line, as it is published, with nothing of it changed."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from class_archive import making, using
from required import require

HOME = Path(__file__).resolve().parents[2] / ".services" / "flink"
PATIENCE_S = 120
_CONFIG = """\
rest:
  address: 127.0.0.1
  port: {port}
client:
  timeout: 10 min
"""
_OPENED = ("java.lang", "java.util")


@dataclass(frozen=True, slots=True)
class Said:
    """What the command line has said."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class FlinkClient:
    """Flink's command line against a server on a port of this machine."""

    folder: Path
    port: int

    def __call__(self, *words: str) -> Said:
        done = subprocess.run(
            [*self._command(), *words],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if self._fresh.exists():
            self._fresh.replace(self._archive)
        return Said(done.returncode, done.stdout)

    def installed(self) -> Path:
        """A folder with the command line as `flink`, for a PATH."""
        folder = self.folder / "flink-bin"
        folder.mkdir()
        script = folder / "flink"
        script.write_text(f'#!/bin/sh\nexec {shlex.join(self._command())} "$@"\n')
        script.chmod(0o755)
        return folder

    def _command(self) -> list[str]:
        conf = self.folder / "flink-conf"
        conf.mkdir(exist_ok=True)
        (conf / "config.yaml").write_text(_CONFIG.format(port=self.port))
        return [
            "env",
            f"FLINK_CONF_DIR={conf}",
            "java",
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            *self._classes(),
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
            "-cp",
            str(HOME / "lib" / "*"),
            "org.apache.flink.client.cli.CliFrontend",
        ]

    @property
    def _archive(self) -> Path:
        return self.folder / "flink.jsa"

    @property
    def _fresh(self) -> Path:
        return self._archive.with_suffix(".new")

    def _classes(self) -> list[str]:
        """The first call keeps the classes that it has loaded, for the others to start quicker."""
        options = using(self._archive) if self._archive.exists() else making(self._fresh)
        return options.split()


@pytest.fixture(scope="session")
def flink_client() -> type[FlinkClient]:
    """The client, to be pointed at a server."""
    require("flink", "java")
    return FlinkClient
