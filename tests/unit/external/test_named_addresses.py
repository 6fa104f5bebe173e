"""A database is connected to only if the operator has named it, whatever a checkpoint says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Holdfast
from loopback import free_ports

from holdfast.config.database_stores import Cassandra, Redis
from holdfast.config.spark_defaults import REDIS_PROVIDER
from holdfast.errors import Invalid
from holdfast.external.databases import address_of_backend, require_named
from holdfast.external.named_addresses import name_database
from holdfast.external.view import with_state
from holdfast.jobs.registry.registry import Registry
from holdfast.savepoints.external_stores import outside
from holdfast.storage.memory import MemoryStorage

REDIS, CASSANDRA = "HOLDFAST_REDIS_ADDRESS", "HOLDFAST_CASSANDRA_ADDRESS"


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that other tests of this process have started are named in its environment."""
    for name in (REDIS, CASSANDRA):
        monkeypatch.delenv(name, raising=False)


def files(address: str) -> dict[str, bytes]:
    """A checkpoint that names a Redis."""
    confs = {"spark.sql.streaming.stateStore.providerClass": REDIS_PROVIDER}
    batch = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": confs})
    return {
        "metadata": b'{"id":"3b1c5a52-7f0c-4f5e-9d51-1b1de9f0a001"}',
        "offsets/0": f"v1\n{batch}\n-".encode(),
        "commits/0": b'v1\n{"nextBatchWatermarkMs":0}',
        "state/0/0/external.json": json.dumps({"database": address, "store": "a"}).encode(),
    }


@pytest.mark.parametrize(
    ("address", "environ"),
    [
        # The variable's one address replaces the one that was read.
        ("redis://evil:6379/0", {REDIS: "own:6379"}),
        ("redis://own:6379/3", {REDIS: "other:6379 own:6379"}),
        ("redis://own:6379/3", {REDIS: "other:6379 redis://own:6379/0"}),
        ("rediss://own:6379/3", {REDIS: "other:6379 own:6379"}),
        ("cassandra://a:9042/shop", {CASSANDRA: "b,c a:9042"}),
        ("cassandra://a:9042,b:9042/shop", {CASSANDRA: "c b,a"}),
    ],
)
def test_an_address_in_the_environment_is_named(address: str, environ: dict[str, str]) -> None:
    require_named(address, "file", environ)


@pytest.mark.parametrize(
    ("address", "environ"),
    [
        ("redis://evil:6379/0", {}),
        ("redis://127.0.0.1:6379/0", {}),
        ("redis://evil:6379/0", {REDIS: "other:6379 own:6379"}),
        ("redis://own:6380/0", {REDIS: "other:6379 own:6379"}),
        # The operator asked for TLS.
        ("redis://own:6379/0", {REDIS: "other:6379 rediss://own:6379/0"}),
        ("redis://own:6379/0", {CASSANDRA: "own:6379"}),
        ("cassandra://a:9042/shop", {REDIS: "a:9042"}),
        ("cassandra://a:9042,evil:9042/shop", {CASSANDRA: "c b,a"}),
    ],
)
def test_any_other_address_is_refused_with_the_variable_to_set(address: str, environ: dict[str, str]) -> None:
    with pytest.raises(
        Invalid, match=r"refused to connect to a .* server with an address that is set only in a file"
    ) as refused:
        require_named(address, "ck/state/0/0/external.json", environ)
    variable = CASSANDRA if address.startswith("cassandra") else REDIS
    assert refused.value.where == "ck/state/0/0/external.json"
    assert refused.value.found == address
    assert str(refused.value.hint).startswith(f"if you trust this server, set {variable}=")


def test_a_hint_can_be_pasted_into_a_shell() -> None:
    with pytest.raises(Invalid) as refused:
        require_named("redis://$(reboot):6379/0", "file", {})
    assert str(refused.value.hint).endswith("HOLDFAST_REDIS_ADDRESS='redis://$(reboot):6379/0'")


def test_a_backend_of_a_job_names_its_address() -> None:
    for backend, address in (
        (Redis("of-a-job:7001", database=2), "redis://of-a-job:7001/2"),
        (Redis("of-a-job:7002", tls=True), "rediss://of-a-job:7002/0"),
        (Cassandra("of-a-job:1,two", keyspace="shop"), "cassandra://of-a-job:1,two/shop"),
    ):
        assert address_of_backend(backend) == address
        with pytest.raises(Invalid, match="refused to connect"):
            require_named(address, "file", {})
        name_database(address)
        require_named(address, "file", {})
    require_named("cassandra://two:9042/other", "file", {})
    with pytest.raises(Invalid, match="refused to connect"):
        require_named("redis://of-a-job:7002/0", "file", {})


def test_nothing_is_asked_of_a_server_that_only_a_checkpoint_names() -> None:
    view = with_state(MemoryStorage(files("redis://only-in-a-file.invalid:6379/0")))
    with pytest.raises(Invalid, match="refused to connect"):
        view.list("state/0/0")
    with pytest.raises(Invalid, match="refused to connect"):
        view.read("state/0/0/1.snapshot")


def test_nor_of_one_that_only_a_savepoint_names(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.formats.providers import ExternalState

    (port,) = free_ports(1)
    external = ExternalState(REDIS_PROVIDER, f"redis://127.0.0.1:{port}/0", "holdfast")
    with pytest.raises(Invalid, match="refused to connect"):
        outside(external, None, "savepoint")


def test_a_verb_connects_to_what_a_job_of_the_state_home_names(
    holdfast: Holdfast, tmp_path: Path, home: Path
) -> None:
    (port,) = free_ports(1)
    address = f"redis://127.0.0.1:{port}/0"
    for path, data in files(address).items():
        (tmp_path / "ck" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ck" / path).write_bytes(data)
    refused = holdfast("checkpoint", "show", "./ck")
    assert (refused.returncode, "refused to connect" in refused.stderr) == (2, True), refused.stderr
    assert f"HOLDFAST_REDIS_ADDRESS={address}" in refused.stderr
    home.mkdir(exist_ok=True)
    Registry(home / "registry.db").queries_started("shop", 1, [], 5, [address])
    silent = holdfast("checkpoint", "show", "./ck")
    assert (silent.returncode, "Redis does not answer" in silent.stderr) == (5, True), silent.stderr
