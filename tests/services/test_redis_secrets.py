"""A Redis with a password and TLS: state goes there, and the password goes nowhere else."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grid_queries
import pytest
from grid_queries import KINDS
from grid_runs import PARTITIONS_KEY, run
from loopback import free_ports
from redis_server import started
from self_signed import self_signed

import holdfast as hf
from holdfast import shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services]

Settings = Callable[[dict[str, str]], None]
PASSWORD: Final = "open-sesame-7"
STORE_PASSWORD: Final = "mellon-12"


@pytest.fixture
def certificates() -> Iterator[Path]:
    """A key, its certificate for this machine, and a key store with it for Java."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-tls-"))
    certificate, _ = self_signed(folder)
    store = folder / "trusted.p12"
    pack = ["keytool", "-importcert", "-noprompt", "-alias", "redis", "-storetype", "PKCS12"]
    pack += ["-file", str(certificate), "-keystore", str(store), "-storepass", STORE_PASSWORD]
    subprocess.run(pack, check=True, capture_output=True)
    yield folder
    shutil.rmtree(folder)


def test_state_goes_to_a_server_with_a_password_and_tls_and_the_password_is_nowhere(
    spark: SparkSession,
    settings: Settings,
    certificates: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (port,) = free_ports(1)
    words = ["--requirepass", PASSWORD, "--tls-port", str(port), "--tls-auth-clients", "no"]
    words += ["--tls-cert-file", str(certificates / "certificate.pem")]
    words += ["--tls-key-file", str(certificates / "key.pem")]
    words += ["--tls-ca-cert-file", str(certificates / "certificate.pem")]
    address = f"127.0.0.1:{port}"
    store = hf.Redis(
        address,
        password=PASSWORD,
        tls=True,
        trust_store=str(certificates / "trusted.p12"),
        trust_store_password=STORE_PASSWORD,
    )
    for _ in started(*words):
        settings({**store.spark_conf(), **store.secrets({}), PARTITIONS_KEY: "2"})
        sides = grid_queries.files(3, count=1, size=40)[0]
        grid_queries.write(tmp_path, 0, sides)
        rows = run(spark, "aggregate", tmp_path, tmp_path / "checkpoint")
        kind = KINDS["aggregate"]
        assert grid_queries.in_the_end(rows, kind.key_columns) == kind.model(*sides)
        for file in (tmp_path / "checkpoint").rglob("*"):
            text = file.read_bytes() if file.is_file() else b""
            assert PASSWORD.encode() not in text, file
            assert STORE_PASSWORD.encode() not in text, file
        monkeypatch.setenv("HOLDFAST_REDIS_PASSWORD", PASSWORD)
        monkeypatch.setenv("HOLDFAST_REDIS_CA", str(certificates / "certificate.pem"))
        query_id = str(json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"])
        state = shared.redis(f"rediss://{address}/0", query_id)
        assert state.key_columns


@pytest.mark.parametrize(
    ("given", "words"), [(None, "requires a password"), ("wrong-word-3", "rejected the user or the password")]
)
def test_a_password_that_is_missing_or_wrong_is_said_and_not_repeated(
    spark: SparkSession, settings: Settings, tmp_path: Path, given: str | None, words: str
) -> None:
    for server in started("--requirepass", PASSWORD):
        store = hf.Redis(server.address, password=given)
        settings({**store.spark_conf(), **store.secrets({}), PARTITIONS_KEY: "2"})
        grid_queries.write(tmp_path, 0, grid_queries.files(3, count=1, size=4)[0])
        with pytest.raises(Exception, match=words) as refused:
            run(spark, "aggregate", tmp_path, tmp_path / "checkpoint")
        assert given is None or given not in str(refused.value)
