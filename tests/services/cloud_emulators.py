"""Emulators of Google Cloud Storage and Azure for the tests: loopback, free port, ended by their pid."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from loopback import free_ports, listens
from required import SERVICES, require

from holdfast.storage.remote import connect

PATIENCE_S = 60
# The published account of every Azurite.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Emulator:
    """A running emulator, whose content ends with it.

    Args:
        scheme: The scheme of its addresses: `gs` or `abfss`.
        folder: The directory of its log.
    """

    def __init__(self, scheme: str, folder: Path) -> None:
        self._scheme = scheme
        self._buckets = count()
        (port,) = free_ports(1)
        self.endpoint = f"http://127.0.0.1:{port}"
        log = folder / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                self._google(port) if scheme == "gs" else self._azure(port),
                stdout=output,
                stderr=output,
                cwd=folder,
                start_new_session=True,
            )
        if not listens(self._process, port, PATIENCE_S):
            pytest.fail(f"the emulator for {scheme}: does not start:\n{log.read_text()}")

    def environment(self) -> dict[str, str]:
        """Where the libraries look for their connection."""
        if self._scheme == "gs":
            # Without it each first use of a bucket asks over gRPC, which the emulator does not serve.
            return {"STORAGE_EMULATOR_HOST": self.endpoint, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
        blobs = f"BlobEndpoint={self.endpoint}/{_ACCOUNT}"
        account = f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};{blobs}"
        return {"AZURE_STORAGE_CONNECTION_STRING": account}

    def spark_conf(self) -> dict[str, str]:
        """A session's settings that reach Google Cloud Storage through Google's connector."""
        require("gcs-connector")
        settings = {
            "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
            "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
            "fs.gs.storage.root.url": self.endpoint,
            "fs.gs.auth.service.account.enable": "false",
            "fs.gs.auth.null.enable": "true",
            "fs.gs.project.id": "holdfast",
            # Hadoop 3.5 has defaults such as 64m, which this connector cannot parse.
            "fs.gs.block.size": str(64 << 20),
            "fs.gs.outputstream.buffer.size": str(8 << 20),
            "fs.gs.inputstream.inplace.seek.limit": str(8 << 20),
            "fs.gs.inputstream.min.range.request.size": str(2 << 20),
            "fs.gs.rewrite.max.chunk.size": str(512 << 20),
        }
        jars = ",".join(str(jar) for jar in sorted((SERVICES / "gcs-connector").glob("*.jar")))
        return {**{f"spark.hadoop.{key}": value for key, value in settings.items()}, "spark.jars": jars}

    def bucket(self) -> str:
        """The URI of a new, empty bucket or container; the environment has to be set."""
        name = f"bucket-{next(self._buckets)}"
        if self._scheme == "gs":
            connect("gs", "", "gs://").mkdir(name)
            return f"gs://{name}"
        host = f"{name}@{_ACCOUNT}.dfs.core.windows.net"
        connect("abfs", host, f"abfss://{host}").mkdir(name)
        return f"abfss://{host}"

    def stop(self) -> None:
        """End the emulator."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    @staticmethod
    def _google(port: int) -> list[str]:
        program = SERVICES / "bin" / "fake-gcs-server"
        address = f"127.0.0.1:{port}"
        command = [str(program), "-backend", "memory", "-scheme", "http", "-log-level", "error"]
        return [*command, "-host", "127.0.0.1", "-port", str(port), "-public-host", address]

    @staticmethod
    def _azure(port: int) -> list[str]:
        program = SERVICES / "azurite" / "node_modules" / ".bin" / "azurite-blob"
        command = [str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
        # The library's newest version of the API may be newer than the emulator.
        return [*command, "--skipApiVersionCheck", "--disableTelemetry", "--silent"]


def _emulator(scheme: str, folder: Path) -> Iterator[Emulator]:
    emulator = Emulator(scheme, folder)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in emulator.environment().items():
            patched.setenv(name, value)
        yield emulator
    emulator.stop()


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """One emulator of Google Cloud Storage for the whole session."""
    require("gcs", "gcsfs")
    yield from _emulator("gs", tmp_path_factory.mktemp("gcs"))


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """One emulator of Azure's blobs for the whole session."""
    require("azurite", "adlfs")
    yield from _emulator("abfss", tmp_path_factory.mktemp("azure"))


# The fixture of each remote storage's server.
REMOTE = {"s3": "s3_gateway", "webhdfs": "hdfs_cluster", "gs": "gcs", "abfss": "azure"}


def empty_directory(name: str, server: Any) -> str:
    """An empty bucket or directory of the server of a storage in `REMOTE`, as a canonical URI."""
    return str(server.root() if name == "webhdfs" else server.bucket()).replace("s3:", "s3a:")


@pytest.fixture(params=REMOTE)
def above(request: pytest.FixtureRequest) -> str:
    """An empty bucket or directory on each remote storage, as a canonical URI."""
    return empty_directory(request.param, request.getfixturevalue(REMOTE[request.param]))
