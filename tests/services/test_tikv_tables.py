"""Stores in TiKV where its regions move, connections end and servers stop: nothing is lost or mixed."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import grid_queries
import pytest
from grid_runs import PARTITIONS_KEY, run
from jvm_table import ExternalError, JvmTable, tikv_place
from required import require
from test_external_tables import made
from tikv_server import RUN, TikvServer, started

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services]

Settings = Callable[[dict[str, str]], None]


class Keys:
    """The keys of a cluster, as they lie there.

    Args:
        spark: The session whose JVM has TiKV's client.
        address: Where the cluster is.
    """

    def __init__(self, spark: SparkSession, address: str) -> None:
        jvm: Any = spark._jvm
        self._place = tikv_place(spark, address)
        self._client = jvm.holdfast.state.TiKvClients.take(self._place).plain()
        self._jvm = jvm

    def of(self, store: str, kind: str = "") -> dict[bytes, bytes]:
        """The keys of a store with their values: of its head "h", its rows "d" or its index "i"."""
        start = f"{store}\0{kind}".encode()
        end = start[:-1] + bytes([start[-1] + 1])
        pairs = self._client.scan(self._bytes(start), self._bytes(end))
        return {bytes(pair.getKey().toByteArray()): bytes(pair.getValue().toByteArray()) for pair in pairs}

    def put(self, pairs: dict[bytes, bytes]) -> None:
        """Write keys."""
        for key, value in pairs.items():
            self._client.put(self._bytes(key), self._bytes(value))

    def delete(self, key: bytes) -> None:
        """Delete a key."""
        self._client.delete(self._bytes(key))

    def close(self) -> None:
        """End the connection."""
        self._jvm.holdfast.state.TiKvClients.giveBack(self._place)

    def _bytes(self, text: bytes) -> Any:
        return self._jvm.org.tikv.shade.com.google.protobuf.ByteString.copyFrom(text)


@pytest.fixture
def keys(spark: SparkSession, tikv_address: str) -> Iterator[Keys]:
    """The keys of the cluster that all tests share."""
    found = Keys(spark, tikv_address)
    yield found
    found.close()


def attempt_of(row: bytes) -> int:
    """Which attempt has written a row."""
    return ~int.from_bytes(row[-13:-5], "big", signed=True)


def test_regions_that_split_and_leaders_that_move_change_nothing(
    spark: SparkSession, own_tikv: TikvServer
) -> None:
    """In the middle of everything: each eleventh request finds that its region has another place."""
    chance = Random(5)
    own_tikv.tell("disturb 11")
    table = JvmTable.tikv(spark, own_tikv.address, "moves", patience_ms=30_000)
    held: dict[bytes, bytes] = {}
    for version in range(8):
        changes: dict[bytes, bytes | None] = {
            str(chance.randrange(300)).encode(): chance.choice([None, b"x" * chance.randrange(200)])
            for _ in range(chance.choice([10, 200]))
        }
        before = dict(held)
        held |= {field: value for field, value in changes.items() if value is not None}
        held = {field: value for field, value in held.items() if changes.get(field, b"") is not None}
        attempt = table.begin(version, "run")
        for part in (dict(list(changes.items())[::2]), changes):
            table.stage(attempt, part)
        assert table.commit(attempt, "run") == len(held)
        assert table.scan(version + 1) == held
        assert table.scan(version) == before
        asked = [str(number).encode() for number in chance.sample(range(300), 50)]
        assert table.read(version + 1, asked) == [held.get(field) for field in asked]
        if version % 3 == 2:
            table.clean(1)
    table.check()
    table.close()
    assert int(own_tikv.tell("requests")) > 200


def test_a_clean_that_is_cut_at_any_request_can_be_done_again(
    spark: SparkSession, own_tikv: TikvServer
) -> None:
    """The versions that are kept read the same, and the next one leaves nothing behind."""
    undisturbed = False
    for cut_at in itertools.count(1):
        store = f"clean{cut_at}"
        direct = JvmTable.tikv(spark, own_tikv.address, store)
        made(direct, 0, "run", {b"a": b"1", b"b": b"1", b"c": b"1"})
        direct.stage(direct.begin(1, "run"), {b"a": b"never", b"d": b"never"})
        made(direct, 1, "run", {b"a": b"2", b"b": None})
        made(direct, 2, "run", {b"c": b"3", b"d": b"3"})
        direct.close()
        own_tikv.tell(f"cut {cut_at}")
        table = JvmTable.tikv(spark, own_tikv.address, store, patience_ms=0, answer_ms=150)
        try:
            table.clean(1)
            undisturbed = True
        except ExternalError:
            pass
        table.close()
        own_tikv.tell("mend")
        direct = JvmTable.tikv(spark, own_tikv.address, store)
        assert direct.scan(3) == {b"a": b"2", b"c": b"3", b"d": b"3"}, cut_at
        assert direct.scan(2) == {b"a": b"2", b"c": b"1"}, cut_at
        direct.check()
        direct.clean(1)
        keys = Keys(spark, own_tikv.address)
        rows = [(key[-14:-13], attempt_of(key)) for key in keys.of(store, "d")]
        assert sorted(rows) == [(b"a", 3), (b"c", 1), (b"c", 4), (b"d", 4)], cut_at
        assert len(keys.of(store, "i")) == 1
        keys.close()
        direct.close()
        if undisturbed:
            break
    assert cut_at > 8


def test_attempts_that_begin_at_once_have_numbers_of_their_own(
    spark: SparkSession, tikv_address: str
) -> None:
    tables = [JvmTable.tikv(spark, tikv_address, f"{RUN}at-once") for _ in range(6)]
    with ThreadPoolExecutor(len(tables)) as pool:
        begun = list(pool.map(lambda table: table.begin(0, "run"), tables))
    assert sorted(attempt.number() for attempt in begun) == list(range(1, 7))
    for table in tables:
        table.close()


def test_what_a_dead_attempt_still_writes_is_never_read(
    spark: SparkSession, tikv_address: str, keys: Keys
) -> None:
    """Its writes come when what it had written was deleted, and later attempts made all kept versions."""
    store = f"{RUN}zombie"
    table = JvmTable.tikv(spark, tikv_address, store)
    made(table, 0, "run", {b"a": b"1"})
    zombie = table.begin(1, "run")
    table.stage(zombie, {b"a": b"wrong", b"z": b"wrong"})
    late = {key: value for key, value in keys.of(store, "d").items() if attempt_of(key) == zombie.number()}
    assert len(late) == 2
    for version in range(1, 6):
        made(table, version, "run", {str(version).encode(): b"x"})
        table.clean(1)
    with pytest.raises(ExternalError, match=r"version 1 of store .* is no longer in"):
        table.stage(zombie, {b"z": b"wrong"})
    keys.put(late)
    expected = {b"a": b"1", **{str(version).encode(): b"x" for version in range(1, 6)}}
    assert table.scan(6) == expected
    assert table.read(6, [b"a", b"z"]) == [b"1", None]
    table.check()
    made(table, 6, "run", {b"a": b"2"})
    table.clean(1)
    assert table.scan(7) == {**expected, b"a": b"2"}
    assert table.scan(6) == expected
    table.close()


def test_cleaning_leaves_the_rows_that_are_read_and_no_others(
    spark: SparkSession, tikv_address: str, keys: Keys
) -> None:
    store = f"{RUN}cleaned"
    table = JvmTable.tikv(spark, tikv_address, store)
    for version in range(6):
        table.stage(table.begin(version, "run"), {b"never": b"committed"})
        made(table, version, "run", {str(number).encode(): b"x" for number in range(version, version + 100)})
    table.discard(table.begin(6, "run"))
    table.clean(1)
    # 0 to 103 as version 5 has them, and 5 to 104 as version 6 has written them.
    assert len(keys.of(store, "d")) == 104 + 100
    assert len(keys.of(store, "i")) == 1
    made(table, 6, "run", {str(number).encode(): None for number in range(105)})
    made(table, 7, "run", {})
    table.clean(1)
    assert len(keys.of(store, "d")) == 0
    assert table.scan(8) == {}
    table.close()


def test_a_store_of_which_something_else_has_deleted_a_part_is_refused(
    spark: SparkSession, tikv_address: str, keys: Keys
) -> None:
    store = f"{RUN}damaged"
    table = JvmTable.tikv(spark, tikv_address, store)
    made(table, 0, "run", {str(number).encode(): b"x" for number in range(50)})
    table.check()
    keys.delete(min(keys.of(store, "d")))
    with pytest.raises(
        ExternalError, match=r"has 49 of 50 fields\. The others were deleted outside Holdfast"
    ):
        table.check()
    table.close()


def test_a_store_says_what_its_rows_are_and_a_query_which_batch_was_committed_last(
    spark: SparkSession, settings: Settings, tikv_address: str, keys: Keys, tmp_path: Path
) -> None:
    settings({**hf.TiKV(tikv_address, prefix=RUN).spark_conf(), PARTITIONS_KEY: "2"})
    for number, sides in enumerate(grid_queries.files(2, count=2, size=20)):
        grid_queries.write(tmp_path, number, sides)
        run(spark, "aggregate", tmp_path, tmp_path / "checkpoint")
    query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    stores = keys.of(f"{RUN}:stores:{query}")
    names = {
        json.loads(file.read_text())["store"]
        for file in (tmp_path / "checkpoint" / "state").rglob("external.json")
    }
    assert {key.partition(b"\0")[2].decode() for key in stores} == names
    assert len(names) == 2
    facts = [dict(line.split(" ", 1) for line in text.decode().splitlines()) for text in stores.values()]
    assert facts[0] == facts[1]
    assert [field["name"] for field in json.loads(facts[0]["keySchema"])["fields"]] == ["who"]
    assert (facts[0]["encoder"], facts[0]["layout"]) == ("plain", "1")
    newest = max(int(file.name) for file in (tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    # Spark tells of a batch a moment after it has committed it.
    spark._jsc.sc().listenerBus().waitUntilEmpty()
    said = keys.of(f"{RUN}:query:{query}")
    assert {key.partition(b"\0")[2] for key in said} == {b"batch", b"generation"}
    batch, of_run = said[f"{RUN}:query:{query}\0batch".encode()].decode().splitlines()
    assert batch == f"batch {newest}"
    assert re.fullmatch("run [0-9a-f-]{36}", of_run)


def test_a_key_that_tikv_would_not_take_is_refused_before_anything_is_written(
    spark: SparkSession, tikv_address: str, keys: Keys
) -> None:
    store = f"{RUN}long"
    table = JvmTable.tikv(spark, tikv_address, store)
    attempt = table.begin(0, "run")
    with pytest.raises(
        ExternalError, match=r"a key of the state has \d+ bytes in .* TiKV allows at most 4096"
    ):
        table.stage(attempt, {b"short": b"1", b"k" * 4090: b"1"})
    assert keys.of(store, "d") == {}
    table.close()


def test_a_server_that_is_frozen_for_longer_than_an_answer_takes_is_asked_again(
    spark: SparkSession, own_tikv: TikvServer
) -> None:
    table = JvmTable.tikv(spark, own_tikv.address, "frozen", patience_ms=30_000, answer_ms=300)
    attempt = table.begin(0, "run")
    table.stage(attempt, {b"a": b"1"})
    own_tikv.freeze()
    timer = threading.Timer(1, own_tikv.thaw)
    timer.start()
    assert table.commit(attempt, "run") == 1
    timer.join()
    assert table.scan(1) == {b"a": b"1"}
    table.close()


def tls_files(folder: Path) -> tuple[str, str, str]:
    """Write an authority with the certificates of servers and of clients; names what clients need."""

    program = str(require("openssl"))

    def openssl(*words: str) -> None:
        subprocess.run([program, *words], cwd=folder, check=True, capture_output=True)

    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *key, "-subj", "/CN=tests", "-keyout", "ca-key.pem", "-out", "ca.pem")
    for name in ("server", "client"):
        openssl("req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}-key.pem", "-out", f"{name}.csr")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca-key.pem"),
            *("-set_serial", "1", "-extfile", "names", "-out", f"{name}.pem"),
        )
    return str(folder / "ca.pem"), str(folder / "client.pem"), str(folder / "client-key.pem")


def test_a_cluster_that_speaks_tls_asks_for_a_certificate(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    files, others = tls_files(tmp_path), tls_files(tmp_path / "other")
    for server in started("-tls", str(tmp_path)):
        table = JvmTable.tikv(spark, server.address, "tls", tls=files)
        assert made(table, 0, "run", {b"a": b"1"}) == 1
        assert table.scan(1) == {b"a": b"1"}
        table.close()
        stranger = JvmTable.tikv(
            spark, server.address, "tls", patience_ms=0, answer_ms=300, tls=(files[0], *others[1:])
        )
        with pytest.raises(ExternalError, match="did not answer"):
            stranger.begin(1, "run")
        nothing = JvmTable.tikv(spark, server.address, "tls", tls=(files[0], files[1], "/no/such.key"))
        with pytest.raises(
            ExternalError, match=r"the file /no/such\.key, which TLS to .* cannot be read on this machine"
        ):
            nothing.begin(1, "run")
