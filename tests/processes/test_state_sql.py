"""SQL over state in a process of its own: what ends it, and what is told of that."""

from __future__ import annotations

import asyncio
import http.client
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from served import Served

from holdfast.errors import Invalid, Unavailable
from holdfast.server.api_v1 import state
from holdfast.server.bounded import Limits, Lines, ask
from holdfast.server.bounded_work import MODULE
from holdfast.server.process.listening import listen
from holdfast.server.process.serving import Serving
from holdfast.server.server_settings import ServerSettings

PATIENCE_S = 60.0
LONG_S = 600.0
ENDLESS = "with recursive r as (select 1 as n union all select n + 1 from r) select max(n) from r"
# Each table is planned twice for the next one, so that planning takes for ever and running is never reached.
DOUBLED = ", ".join(f"t{at + 1} as not materialized (select a.x from t{at} a, t{at} b)" for at in range(30))
PLANNED_FOR_EVER = f"with t0 as (select 1 as x), {DOUBLED} select count(*) from t30"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    made = Served(tmp_path)
    made.job(checkpoint=made.checkpoint())
    return made


def asked(shop: Served, sql: str, *, rows: int = 1000, **limits: Any) -> Lines:
    within = Limits(**{"seconds": LONG_S, "memory_bytes": 2 << 30, "answer_bytes": 1 << 20, **limits})
    question: dict[str, Any] = {
        "address": shop.registry.job("shop").checkpoint,
        "batch": None,
        "sql": sql,
        "rows": rows,
        "bytes": within.answer_bytes,
        "databases": [],
    }
    # In a thread of its own: the browser's tests have a loop in this one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(ask(MODULE, question, within))).result()


def test_rows_are_told_as_they_are_and_whether_there_are_more(shop: Served) -> None:
    sql = "select i, repeat('é', 3) as text from range(5) r(i) order by i"
    answer = asked(shop, sql, rows=5)
    assert [json.loads(line) for line in answer.lines] == [{"i": at, "text": "ééé"} for at in range(5)]
    assert answer.facts == {"columns": ["i", "text"], "more": False, "left_out": None}
    answer = asked(shop, sql, rows=4)
    assert (len(answer.lines), answer.facts["more"], answer.facts["left_out"]) == (4, True, "rows")


def test_an_answer_is_bounded_in_bytes(shop: Served) -> None:
    # Each row is {"t":"xxxx…"}: 8 characters around its text.
    sql = "select repeat('x', 992) as t from range(100000)"
    answer = asked(shop, sql, rows=10_000, answer_bytes=1001 * 50)
    assert (len(answer.lines), answer.facts["more"], answer.facts["left_out"]) == (50, True, "bytes")
    with pytest.raises(Invalid, match="a row of the result exceeds the size limit"):
        asked(shop, "select repeat('x', 100000) as t", answer_bytes=1000)


def test_sql_over_state(shop: Served) -> None:
    asked = {"sql": 'select count(*) as customers, max("count") as most from aggregate'}
    answer = shop.client().post("/api/v1/jobs/shop/sql", json=asked)
    assert answer.status_code == 200, answer.text
    assert answer.json()["columns"] == ["customers", "most"]
    assert answer.json()["rows"] == [{"customers": 10, "most": 12}]


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')",
        "set enable_external_access = true",
        "select * from glob('/*')",
    ],
)
def test_sql_reads_states_and_nothing_else(shop: Served, sql: str) -> None:
    answer = shop.client().post("/api/v1/jobs/shop/sql", json={"sql": sql})
    assert answer.status_code == 400, answer.text
    assert answer.json()["kind"] == "invalid"
    assert "root:" not in answer.text


def test_planning_is_within_the_time(shop: Served) -> None:
    with pytest.raises(Unavailable, match="exceeded its time limit") as told:
        asked(shop, PLANNED_FOR_EVER, seconds=5.0)
    assert told.value.expected is not None
    assert told.value.expected.startswith("at most 5 s")
    assert told.value.hint is not None
    check_nothing_is_left()


def test_memory_is_bounded_whoever_takes_it(shop: Served) -> None:
    for sql, most in (
        ("select list(i) from range(1000000000) r(i)", 2 << 30),  # DuckDB has a bound of its own
        ("select repeat('x', 1000000) as t from range(10000)", 700 << 20),  # Arrow
        ("select count(*) from aggregate", 60 << 20),  # what is loaded before
    ):
        with pytest.raises(Unavailable, match="exceeded its memory limit"):
            asked(shop, sql, rows=10_000, memory_bytes=most)
    check_nothing_is_left()


def test_over_http_the_bounds_are_told(shop: Served) -> None:
    wanted = {"sql": "select repeat('x', 1000000) as t from range(100)", "limit": 100}
    answer = shop.client().post("/api/v1/jobs/shop/sql", json=wanted).json()
    assert (len(answer["rows"]), answer["more"], answer["left_out"]) == (8, True, "bytes")
    described = shop.client().get("/api/v1/openapi.json").json()["paths"]["/api/v1/jobs/{job}/sql"]["post"]
    for bound in ("20 s", "2048 MiB", "8 MiB", "503"):
        assert bound in described["description"]


def test_nobody_works_for_a_client_that_has_gone(shop: Served) -> None:
    with served(shop) as serving:
        client = http.client.HTTPConnection("127.0.0.1", serving.port, timeout=PATIENCE_S)
        request(client, ENDLESS)
        until(lambda: len(queries()) == 1, "the query runs")
        client.close()
        until(lambda: not queries(), "the query has ended")
        check_nothing_is_left()


def test_the_process_of_a_query_is_not_handed_the_token(
    shop: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", "a-token-that-is-long-enough")
    monkeypatch.setenv("AWS_PROFILE", "shop")
    with served(shop) as serving:
        client = http.client.HTTPConnection("127.0.0.1", serving.port, timeout=PATIENCE_S)
        request(client, ENDLESS)
        until(lambda: len(queries()) == 1, "the query runs")
        (query,) = queries()
        environment = (Path("/proc") / str(query) / "environ").read_bytes()
        assert b"a-token-that-is-long-enough" not in environment
        # What reaches the state does reach it.
        assert b"AWS_PROFILE=shop" in environment.split(b"\0")
        client.close()
        until(lambda: not queries(), "the query has ended")


def test_so_many_ask_at_the_same_time(shop: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_WAIT_S", 0.1)
    with served(shop) as serving:
        clients = [
            http.client.HTTPConnection("127.0.0.1", serving.port, timeout=PATIENCE_S)
            for _ in range(state.SQL_AT_ONCE + 1)
        ]
        for client in clients[:-1]:
            request(client, ENDLESS)
        until(lambda: len(queries()) == state.SQL_AT_ONCE, "they run")
        request(clients[-1], "select 1")
        answer = clients[-1].getresponse()
        told = json.loads(answer.read())
        assert (answer.status, told["kind"], told["error"]) == (
            503,
            "unavailable",
            "too many SQL queries are running",
        )
        assert int(answer.headers["retry-after"]) > 0
        for client in clients:
            client.close()
        until(lambda: not queries(), "they have ended")


def request(client: http.client.HTTPConnection, sql: str) -> None:
    headers = {"content-type": "application/json"}
    client.request("POST", "/api/v1/jobs/shop/sql", json.dumps({"sql": sql}), headers)


@contextmanager
def served(shop: Served) -> Iterator[Serving]:
    settings = ServerSettings(port=0)
    serving = Serving(shop.home.path, settings, listen(settings))
    serving.start()
    try:
        yield serving
    finally:
        serving.close()


def queries() -> list[int]:
    """The processes that answer queries for this one."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and MODULE.encode() in (entry / "cmdline").read_bytes():
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                if (Path("/proc/self/task") / parent).exists():
                    found.append(int(entry.name))
    return found


def check_nothing_is_left() -> None:
    until(lambda: not list(Path(tempfile.gettempdir()).iterdir()), "nothing is left on the disk")
    assert queries() == []


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    waiting = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"it never came to this: {what}"
        waiting.wait(0.02)
