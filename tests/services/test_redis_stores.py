"""State in Redis by the command, without Spark: moved, shown, saved, restored; and what can be wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import cli_in
from command import Holdfast
from redis_server import RedisServer, started

from golden import golden_on_disk
from holdfast.external import redis_scripts
from holdfast.external.redis_place import redis_place

pytestmark = [pytest.mark.services, pytest.mark.slow]

SCALA = Path(__file__).parents[2] / "jvm" / "src" / "holdfast" / "state" / "RedisScripts.scala"
DATABASE = "redis://{}/3"


@pytest.fixture
def holdfast(tmp_path: Path, home: Path) -> Holdfast:
    """Run the command without a process of its own."""
    return cli_in(tmp_path, home)


@pytest.fixture
def holdfast_at_once(holdfast: Holdfast, guards_wait_no_time: None) -> Holdfast:
    """The same for checkpoints that nobody uses."""
    return holdfast


@pytest.fixture
def guarded_redis() -> Iterator[RedisServer]:
    """A server that asks for a password."""
    yield from started("--requirepass", "open sesame")


@pytest.fixture
def moved(holdfast_at_once: Holdfast, own_redis: RedisServer, tmp_path: Path) -> Path:
    """A checkpoint whose state was moved to Redis."""
    source, made = golden_on_disk("4.2/aggregate-memory", tmp_path / "heap"), tmp_path / "outside"
    words = ("--backend", "redis", "--database", DATABASE.format(own_redis.address), "--stopped")
    done = holdfast_at_once("state", "migrate", str(source), str(made), *words)
    assert done.returncode == 0, done.stderr
    return made


def stores_of(checkpoint: Path) -> list[str]:
    """The stores that a checkpoint names."""
    return [json.loads(file.read_text())["store"] for file in sorted(checkpoint.rglob("external.json"))]


def test_scripts_are_those_of_the_state_stores() -> None:
    """Whoever reads from Python reads by the same rules as Spark's tasks."""
    parts = dict(re.findall(r'val (\w+)(?:: String)? =[^"]*"""(.*?)"""', SCALA.read_text(), re.DOTALL))
    given = {name: re.sub(r"(?m)^ *\|", "", text) for name, text in parts.items()}
    assert given["common"] + given["layers"] + given["scan"] == redis_scripts.SCAN


def test_every_verb_that_reads_files(holdfast: Holdfast, moved: Path, tmp_path: Path) -> None:
    """What they say of it is what they said of it on the heap."""

    def said(*words: str) -> str:
        done = holdfast(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = json.loads(said("checkpoint", "show", str(moved), "--json"))
    assert shown["provider"] == "RedisStateStoreProvider"
    assert shown["database"].startswith("redis://127.0.0.1:")
    assert "redis://" in said("checkpoint", "show", str(moved))
    assert json.loads(said("checkpoint", "verify", str(moved), "--json"))["problems"] == []
    catalog = tmp_path / "savepoints"
    taken = json.loads(said("savepoint", "take", str(moved), str(catalog), "--json"))
    said("savepoint", "verify", taken["savepoint"], "--deep")
    assert "redis://" in said("savepoint", "show", taken["savepoint"])
    for verb in ("restore", "fork"):
        plan = json.loads(said(verb, taken["savepoint"], str(tmp_path / verb), "--dry-run", "--json"))
        assert plan["database"] == shown["database"]
        said(verb, taken["savepoint"], str(tmp_path / verb))
        assert not set(stores_of(tmp_path / verb)) & set(stores_of(moved))
        said("savepoint", "diff", str(moved), str(tmp_path / verb))
    said("rescale", taken["savepoint"], str(tmp_path / "wider"), "--partitions", "5")
    assert len(stores_of(tmp_path / "wider")) == 5
    for place in (tmp_path / "wider", tmp_path / "heap"):
        said("savepoint", "diff", str(moved), str(place))


def test_a_part_that_something_else_has_deleted(
    holdfast: Holdfast, own_redis: RedisServer, moved: Path
) -> None:
    """It is damage, whoever looks."""
    buckets = own_redis.ask("-n", "3", "KEYS", "*:d:*").split()
    own_redis.ask("-n", "3", "DEL", buckets[0])
    for words in (("checkpoint", "verify"), ("savepoint", "take")):
        done = holdfast(*words, str(moved))
        said = done.stdout + done.stderr
        assert (done.returncode, "has deleted a part of it" in said) == (6, True), said
    own_redis.ask("-n", "3", "FLUSHDB")
    done = holdfast("checkpoint", "show", str(moved))
    assert (done.returncode, "the state is not in Redis" in done.stderr) == (6, True)


def test_a_server_that_is_gone(
    holdfast: Holdfast, own_redis: RedisServer, moved: Path, tmp_path: Path
) -> None:
    """One line says which, and a savepoint is whole without it."""
    taken = json.loads(holdfast("savepoint", "take", str(moved), str(tmp_path / "sp"), "--json").stdout)
    own_redis.kill()
    for words in (
        ("checkpoint", "show", str(moved)),
        ("restore", taken["savepoint"], str(tmp_path / "again")),
    ):
        done = holdfast(*words)
        assert (done.returncode, "Redis does not answer" in done.stderr) == (5, True), done.stderr
    assert holdfast("savepoint", "verify", taken["savepoint"], "--deep").returncode == 0
    assert not (tmp_path / "again").exists()
    own_redis.start()
    assert holdfast("restore", taken["savepoint"], str(tmp_path / "again")).returncode == 0


def test_a_version_that_is_not_kept(holdfast: Holdfast, own_redis: RedisServer, moved: Path) -> None:
    """It says which are."""
    for head in own_redis.ask("-n", "3", "KEYS", "*:v").split():
        version = own_redis.ask("-n", "3", "HKEYS", head).strip()
        own_redis.ask("-n", "3", "HDEL", head, version)
    done = holdfast("savepoint", "take", str(moved), str(moved) + ".savepoints")
    assert (done.returncode, "does not keep the state of batch" in done.stderr) == (3, True), done.stderr


def test_passwords_come_from_the_environment_and_are_not_shown(
    holdfast_at_once: Holdfast, guarded_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one the error names the variable."""
    source = golden_on_disk("4.2/aggregate-memory", tmp_path / "heap")
    words = ("state", "migrate", str(source), str(tmp_path / "outside"), "--backend", "redis", "--stopped")
    address = DATABASE.format(guarded_redis.address)
    done = holdfast_at_once(*words, "--database", address)
    assert (done.returncode, "HOLDFAST_REDIS_PASSWORD" in done.stderr) == (2, True), done.stderr
    done = holdfast_at_once(*words, "--database", address.replace("//", "//:open sesame@"))
    assert (done.returncode, "sesame" in done.stdout + done.stderr) == (2, False)
    monkeypatch.setenv("HOLDFAST_REDIS_PASSWORD", "open sesame")
    done = holdfast_at_once(*words, "--database", address)
    assert (done.returncode, "sesame" in done.stdout + done.stderr) == (0, False), done.stderr
    texts = [file.read_bytes() for file in (tmp_path / "outside").rglob("*") if file.is_file()]
    assert not any(b"sesame" in text for text in texts)


@pytest.mark.parametrize(
    ("golden", "words", "code", "why"),
    [
        ("4.2/state-format2", ("--backend", "redis", "--database", "redis://127.0.0.1:1/0"), 7, "RocksDB"),
        ("4.2/aggregate-memory", ("--backend", "redis"), 2, "--database"),
        (
            "4.2/aggregate-memory",
            ("--backend", "rocksdb", "--database", "redis://127.0.0.1:1/0"),
            2,
            "no database",
        ),
        (
            "4.2/aggregate-memory",
            ("--backend", "redis", "--database", "http://127.0.0.1:1"),
            2,
            "redis://HOST",
        ),
    ],
)
def test_what_cannot_be(
    holdfast_at_once: Holdfast, tmp_path: Path, golden: str, words: tuple[str, ...], code: int, why: str
) -> None:
    """It is said before anything is made."""
    source = golden_on_disk(golden, tmp_path / "checkpoint")
    done = holdfast_at_once("state", "migrate", str(source), str(tmp_path / "made"), *words, "--stopped")
    assert (done.returncode, why in done.stderr) == (code, True), done.stderr
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("address", "given", "expected"),
    [
        ("redis://db:7000/2", {}, "redis://db:7000/2"),
        ("redis://[::1]:6379/0", {}, "redis://[::1]:6379/0"),
        ("redis://db:7000/2", {"HOLDFAST_REDIS_ADDRESS": "other:7001"}, "redis://other:7001/2"),
        ("rediss://db:7000/2", {"HOLDFAST_REDIS_ADDRESS": "other"}, "rediss://other:6379/2"),
        ("redis://db:7000/2", {"HOLDFAST_REDIS_ADDRESS": "rediss://other:1/4"}, "rediss://other:1/4"),
    ],
)
def test_another_way_to_the_same_server(address: str, given: dict[str, str], expected: str) -> None:
    """The checkpoint says where the executors found it, and the environment how it is reached from here."""
    assert str(redis_place(address, given)) == expected
