"""A real S3 gateway for the tests: private directory, loopback, free port, ended by its pid."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from loopback import free_ports, listens
from required import require

from holdfast.storage.remote import connect

SERVICES = Path(__file__).parents[2] / ".services"
PROGRAM = SERVICES / "bin" / "versitygw"
# Spark's client of S3, and the file manager that Spark has for it.
S3A_JARS, CLOUD_JARS = SERVICES / "s3a", SERVICES / "s3a-cloud"
PATIENCE_S = 30
# Of a line in the gateway's access log: the operation, the key, and the address.
_REQUEST = re.compile(r" s3_(\w+) (\S+) (\S+) \d+ ")
# What S3A says in each request, of which step of its own it is.
_WHY = re.compile(r"/hadoop/1/(op_\w+)/")
ACCESS, SECRET = "holdfast", "holdfast-secret"


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked: the operation, the key or prefix, and the step of S3A's that it belongs to."""

    verb: str
    key: str
    why: str


class Gateway:
    """A running gateway, whose buckets are directories."""

    def __init__(self, folder: Path) -> None:
        self._buckets = count()
        for name in ("root", "iam"):
            (folder / name).mkdir()
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        self.endpoint = f"http://{address}"
        self._log = folder / "log"
        self._requests = folder / "requests"
        command = [str(PROGRAM), "--access", ACCESS, "--secret", SECRET, "--port", address]
        command += ["--access-log", str(self._requests)]
        command += ["--iam-dir", str(folder / "iam"), "posix", str(folder / "root")]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        if not listens(self._process, port, PATIENCE_S):
            pytest.fail(f"the S3 gateway does not start:\n{self._log.read_text()}")

    def environment(self) -> dict[str, str]:
        """Where s3fs looks for its connection."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def spark_conf(self, *folders: Path) -> dict[str, str]:
        """A session's settings that reach it through S3A, with the jars of these folders."""
        require(*(folder.name for folder in folders))
        s3a = {
            "endpoint": self.endpoint,
            "endpoint.region": "us-east-1",
            "access.key": ACCESS,
            "secret.key": SECRET,
            "path.style.access": "true",
        }
        jars = ",".join(str(jar) for folder in folders for jar in sorted(folder.glob("*.jar")))
        return {**{f"spark.hadoop.fs.s3a.{key}": value for key, value in s3a.items()}, "spark.jars": jars}

    def requests(self, bucket: str) -> list[Request]:
        """Every request to a bucket by now, oldest first."""
        asked = []
        for line in self._requests.read_text(encoding="utf-8").splitlines():
            match = _REQUEST.search(line)
            if match is None or not match[3].startswith(f"/{bucket}"):
                continue
            prefix = parse_qs(urlsplit(match[3]).query).get("prefix", [""])[0]
            why = _WHY.search(line)
            key = prefix if match[2] == "-" else unquote(match[2])
            asked.append(Request(match[1], key, "" if why is None else why[1]))
        return asked

    def bucket(self) -> str:
        """The URI of a new, empty bucket; the environment has to be set."""
        name = f"bucket-{next(self._buckets)}"
        filesystem().mkdir(name)
        return f"s3://{name}"

    def stop(self) -> None:
        """End the gateway."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)


def filesystem() -> Any:
    """The file system of the environment, as `RemoteStorage` opens it."""
    return connect("s3", "", "s3://")


@pytest.fixture(scope="session")
def s3_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for the whole session."""
    require("s3", "s3fs")
    import s3fs  # type: ignore[import-untyped]  # it has no types

    gateway = Gateway(tmp_path_factory.mktemp("s3"))
    with pytest.MonkeyPatch.context() as patched:
        for name, value in gateway.environment().items():
            patched.setenv(name, value)
        # Connections that were made before have no credentials, and keep to that.
        s3fs.S3FileSystem.clear_instance_cache()
        yield gateway
    gateway.stop()
