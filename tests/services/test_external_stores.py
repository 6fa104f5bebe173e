"""State in a database by the command, without Spark: moved, shown, saved, restored; what can be wrong."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from cassandra_server import CassandraServer
from cli_runner import cli_in
from command import Holdfast
from redis_server import RedisServer, started
from state_databases import CassandraState, StateDatabase

from golden import golden_on_disk
from holdfast.errors import Conflict
from holdfast.external import redis_store
from holdfast.external.redis_connection import RedisAddress, open_redis
from holdfast.external.redis_store import RedisStore

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
def moved(holdfast_at_once: Holdfast, own_database: StateDatabase, tmp_path: Path) -> Path:
    """A checkpoint whose state was moved to the database."""
    source, made = golden_on_disk("4.2/aggregate-memory", tmp_path / "heap"), tmp_path / "outside"
    words = ("--backend", own_database.kind, "--database", own_database.address, "--confirm-stopped")
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
    assert given["common"] + given["layers"] + given["scan"] == redis_store.SCAN


class Losing(redis.Connection):
    """Loses the first answer that says that a store was made."""

    made = hashlib.sha1(redis_store.CREATE.encode()).hexdigest()
    lost = 0
    sent: tuple[object, ...] = ()

    def send_command(self, *args: object, **options: object) -> None:
        self.sent = args
        super().send_command(*args, **options)  # type: ignore[no-untyped-call]

    def read_response(self, *args: object, **options: object) -> object:
        answer = super().read_response(*args, **options)
        if self.made in self.sent and answer == 1 and not Losing.lost:
            Losing.lost += 1
            raise redis.exceptions.ConnectionError("the answer is lost")
        return answer


def test_a_store_is_made_also_where_the_answer_is_lost(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sends the script once more."""
    monkeypatch.setattr(Losing, "lost", 0)
    connection = open_redis(RedisAddress("127.0.0.1", redis_server.port, 3), {})
    client = connection.client
    client.connection_pool.connection_class = Losing
    store = RedisStore(connection, "test:{lost}")
    rows = [(b"a", b"1"), (b"b", b"2")]
    assert store.write(3, rows, {"encoder": "plain"}, "test:index") == 2
    assert Losing.lost == 1
    assert store.scan(3)[1] == dict(rows)
    make = client.register_script(redis_store.CREATE)
    assert make(keys=[store.name], args=[4, "another"]) == 0, "another one's store was taken for its own"
    client.hset(store.name, "run", "a query's")
    with pytest.raises(Conflict, match="a query already uses a store"):
        store.write(3, rows, {"encoder": "plain"}, "test:index")


def test_every_verb_that_reads_files(
    holdfast: Holdfast, own_database: StateDatabase, moved: Path, tmp_path: Path
) -> None:
    """What they say of it is what they said of it on the heap."""

    def said(*words: str) -> str:
        done = holdfast(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = json.loads(said("checkpoint", "show", str(moved), "--json"))
    assert shown["provider"] == f"{own_database.title}StateStoreProvider"
    assert shown["database"] == own_database.address
    assert own_database.address in said("checkpoint", "show", str(moved))
    assert shown["size_bytes"] > 0
    assert json.loads(said("checkpoint", "verify", str(moved), "--json"))["problems"] == []
    catalog = tmp_path / "savepoints"
    taken = json.loads(said("savepoint", "take", str(moved), str(catalog), "--json"))
    said("savepoint", "verify", taken["savepoint"], "--deep")
    assert own_database.address in said("savepoint", "show", taken["savepoint"])
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
    holdfast: Holdfast, own_database: StateDatabase, moved: Path
) -> None:
    """It is damage, whoever looks."""
    own_database.delete_part(stores_of(moved)[0])
    for words in (("checkpoint", "verify"), ("savepoint", "take")):
        done = holdfast(*words, str(moved))
        said = done.stdout + done.stderr
        assert (done.returncode, "rows were deleted outside Holdfast" in said) == (6, True), said
    own_database.delete_all()
    done = holdfast("checkpoint", "show", str(moved))
    assert (
        done.returncode,
        f"the store that the checkpoint names is missing from {own_database.title}" in done.stderr,
    ) == (6, True), done.stderr


def test_a_server_that_is_gone(
    holdfast: Holdfast, own_database: StateDatabase, moved: Path, tmp_path: Path
) -> None:
    """One line says which, and a savepoint is whole without it."""
    taken = json.loads(holdfast("savepoint", "take", str(moved), str(tmp_path / "sp"), "--json").stdout)
    own_database.server.kill()
    for words in (
        ("checkpoint", "show", str(moved)),
        ("restore", taken["savepoint"], str(tmp_path / "again")),
    ):
        done = holdfast(*words)
        assert (done.returncode, f"{own_database.title} does not answer" in done.stderr) == (5, True), (
            done.stderr
        )
    assert holdfast("savepoint", "verify", taken["savepoint"], "--deep").returncode == 0
    assert not (tmp_path / "again").exists()
    own_database.server.start()
    assert holdfast("restore", taken["savepoint"], str(tmp_path / "again")).returncode == 0


def test_a_version_that_is_not_kept(holdfast: Holdfast, own_database: StateDatabase, moved: Path) -> None:
    """It says which are."""
    for store in stores_of(moved):
        own_database.forget_versions(store)
    done = holdfast("savepoint", "take", str(moved), str(moved) + ".savepoints")
    assert (done.returncode, "no longer has the state of batch" in done.stderr) == (3, True), done.stderr


def test_passwords_come_from_the_environment_and_are_not_shown(
    holdfast_at_once: Holdfast, guarded_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one the error names the variable."""
    source = golden_on_disk("4.2/aggregate-memory", tmp_path / "heap")
    words = (
        "state",
        "migrate",
        str(source),
        str(tmp_path / "outside"),
        "--backend",
        "redis",
        "--confirm-stopped",
    )
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
        ("4.2/state-format2", ("--backend", "cassandra", "--database", "127.0.0.1:1"), 7, "Cassandra cannot"),
        ("4.2/aggregate-memory", ("--backend", "cassandra"), 2, "the address of the Cassandra database"),
        (
            "4.2/aggregate-memory",
            ("--backend", "cassandra", "--database", "127.0.0.1:1"),
            5,
            "Cassandra does not",
        ),
        (
            "4.2/aggregate-memory",
            ("--backend", "cassandra", "--database", "redis://127.0.0.1:1/0"),
            2,
            "cassandra://HOST:PORT",
        ),
        ("4.2/aggregate-memory", ("--backend", "redis"), 2, "--database"),
        (
            "4.2/aggregate-memory",
            ("--backend", "rocksdb", "--database", "redis://127.0.0.1:1/0"),
            2,
            "without a database backend",
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
    done = holdfast_at_once(
        "state", "migrate", str(source), str(tmp_path / "made"), *words, "--confirm-stopped"
    )
    assert (done.returncode, why in done.stderr) == (code, True), done.stderr
    assert not (tmp_path / "made").exists()


def test_from_one_database_to_another(
    holdfast_at_once: Holdfast,
    own_database: StateDatabase,
    moved: Path,
    redis_server: RedisServer,
    tmp_path: Path,
) -> None:
    """A restore stays with the kind of database, and a migration changes it."""
    taken = json.loads(
        holdfast_at_once("savepoint", "take", str(moved), str(tmp_path / "sp"), "--json").stdout
    )
    target, other = str(tmp_path / "other"), f"redis://{redis_server.address}/5"
    if own_database.kind == "redis":
        restored = holdfast_at_once(
            "restore", taken["savepoint"], target, "--database", "cassandra://a:9042/k"
        )
        assert (restored.returncode, "invalid Redis address" in restored.stderr) == (2, True), restored.stderr
        return
    done = holdfast_at_once(
        "state", "migrate", taken["savepoint"], target, "--backend", "redis", "--database", other
    )
    assert done.returncode == 0, done.stderr
    assert "backend cassandra to redis" in done.stderr
    assert holdfast_at_once("savepoint", "diff", str(moved), target).returncode == 0
    again = holdfast_at_once("restore", taken["savepoint"], str(tmp_path / "again"), "--database", other)
    assert (again.returncode, "invalid Cassandra address" in again.stderr) == (2, True), again.stderr


def test_a_keyspace_that_is_not_there_and_a_table_that_forgets(
    holdfast_at_once: Holdfast, own_cassandra: CassandraServer, tmp_path: Path
) -> None:
    """What is to be done there is said before anything is made."""
    source = golden_on_disk("4.2/aggregate-memory", tmp_path / "heap")
    words = (
        "state",
        "migrate",
        str(source),
        str(tmp_path / "made"),
        "--backend",
        "cassandra",
        "--confirm-stopped",
    )
    address = f"cassandra://{own_cassandra.address}/not_there"
    done = holdfast_at_once(*words, "--database", address)
    assert (done.returncode, "CREATE KEYSPACE not_there" in done.stderr) == (2, True), done.stderr
    forgetful = CassandraState(own_cassandra, "forgetful")
    own_cassandra.ask("CREATE TABLE forgetful.state_queries (query text PRIMARY KEY)")
    own_cassandra.ask("ALTER TABLE forgetful.state_queries WITH default_time_to_live = 60")
    done = holdfast_at_once(*words, "--database", forgetful.address)
    assert (done.returncode, "default_time_to_live = 0" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "made" / "metadata").exists()
