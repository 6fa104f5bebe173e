from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from served import NOW_MS, SHOP, Served, batch

from holdfast.jobs.recovery import RecoveryTimes
from holdfast.jobs.registry.operation_log import (
    Arguments,
    Dispose,
    MakeCheckpoint,
    Operations,
    TakeSavepoint,
    Verify,
    decode,
)
from holdfast.model import Failure, JobState
from holdfast.observe.alerting import Alert, AlertEvent, AlertStore
from holdfast.savepoints import take
from holdfast.server.server_settings import ServerSettings

if TYPE_CHECKING:
    from starlette.testclient import TestClient

PAGE = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
HERE = {"origin": "http://127.0.0.1:8081"}
EVIL = '<script>alert("x")</script><img src=x onerror=alert(1)>\'"&'
PAGES = [
    "/",
    "/ui/jobs",
    "/ui/alerts",
    "/ui/jobs/shop",
    "/ui/jobs/shop/checkpoints",
    "/ui/jobs/shop/savepoints",
    "/ui/jobs/shop/state",
    "/ui/jobs/shop/state?key=c1",
]


@pytest.fixture
def shop(tmp_path: Path) -> Served:
    served = Served(tmp_path)
    checkpoint = served.checkpoint()
    served.job(checkpoint=checkpoint)
    taken = take(checkpoint, tmp_path / "savepoints", label="before the upgrade")
    served.savepoint(taken.uri, taken.manifest.batch_id)
    return served


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A shop that nobody changes."""
    served = Served(tmp_path_factory.mktemp("still"))
    checkpoint = served.checkpoint()
    served.job(checkpoint=checkpoint)
    taken = take(checkpoint, served.folder / "savepoints", label="before the upgrade")
    served.savepoint(taken.uri, taken.manifest.batch_id)
    return served


@pytest.fixture(scope="module")
def asker(still: Served) -> TestClient:
    """Asks it."""
    return still.client()


def page(client: TestClient, path: str, status: int = 200) -> str:
    answer = client.get(path, headers=PAGE)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    return str(answer.text)


def text_of(source: str) -> str:
    """What a person reads of a page."""
    read = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", source, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", read)).split())


class Tags(HTMLParser):
    """Tags and attributes of a page, and whether they fit into each other."""

    VOID = ("meta", "link", "input", "br", "path", "circle", "use", "img")

    def __init__(self, source: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(source)
        assert self.open == [], "a tag is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.slow
def test_every_page_answers_as_json_too(asker: TestClient, path: str) -> None:
    client = asker
    source = page(client, path)
    place, _, query = path.partition("?")
    name = "/ui/jobs.json" if place == "/" else f"{place}.json"
    suffixed = client.get(f"{name}?{query}" if query else name, headers=PAGE)
    accepted = client.get(path, headers={"accept": "application/json"})
    assert suffixed.status_code == accepted.status_code == 200
    assert suffixed.json() == accepted.json()
    assert suffixed.headers["content-type"].startswith("application/json")
    assert f'href="{html.escape(f"{name}?{query}" if query else name)}"' in source


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_sound_and_needs_nothing_from_elsewhere(asker: TestClient, path: str) -> None:
    answer = asker.get(path, headers=PAGE)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    tags = Tags(answer.text)
    ids = [attrs["id"] for _, attrs in tags.seen if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs in tags.seen:
        assert not any(name.startswith("on") or name == "style" for name in attrs), (tag, attrs)
        for name in ("src", "href", "action"):
            assert (attrs.get(name) or "/").startswith(("/", "#")), (tag, attrs)
        if tag == "button" and "popovertarget" in attrs:
            assert attrs["popovertarget"] in ids
    assert [tag for tag, _ in tags.seen].count("h1") == 1


@pytest.mark.slow
def test_the_jobs_page(shop: Served) -> None:
    shop.job("till", state=JobState.FAILED)
    with shop.supervised():
        found = shop.client().get("/ui/jobs.json").json()
        read = text_of(page(shop.client(), "/"))
    assert [(each["name"], each["health"]) for each in found["jobs"]] == [("till", "bad"), ("shop", "good")]
    line = found["jobs"][1]
    # Three batches a second apart, ten rows each, the first of which only says where counting begins.
    assert (line["batch"], line["duration_ms"], line["rows_per_second"]) == (2, 50, 10.0)
    assert (line["state_rows"], line["state_bytes"], line["restarts"]) == (102, 10_000, 1)
    assert line["recent_ms"] == [50, 50, 50]
    assert "1 running 1 failing" in read
    assert "shop Running 2 58 s ago 50 ms 10 102 9.8 KiB 1" in read


@pytest.mark.slow
def test_a_job_without_its_supervisor_says_what_to_do(shop: Served) -> None:
    read = text_of(page(shop.client(), "/ui/jobs/shop"))
    assert "No supervisor" in read
    assert "holdfast run shop.py" in read
    assert "Stop…" not in read


@pytest.mark.slow
def test_a_job_page(shop: Served) -> None:
    phases = {
        "detect": 100,
        "pause": 1000,
        "verify": 0,
        "start": 2000,
        "load": 0,
        "replay": 400,
        "commit": 50,
    }
    cause = "user code: ZeroDivisionError: division by zero"
    shop.registry.add_recovery("shop", RecoveryTimes(2, NOW_MS - 85_000, cause, phases))
    with shop.supervised():
        found = shop.client().get("/ui/jobs/shop.json").json()
        source = page(shop.client(), "/ui/jobs/shop")
    assert [each["key"] for each in found["query"]["charts"]] == [
        "duration",
        "rate",
        "state_rows",
        "state_bytes",
    ]
    (operator,) = found["query"]["operators"]
    assert (operator["name"], operator["rows"], operator["partitions"]) == ("stateStoreSave", 102, 2)
    (recovery,) = found["recoveries"]
    assert (recovery["took_ms"], recovery["cause"]) == (3550, cause)
    assert {each["name"]: each["ms"] for each in recovery["phases"]} == phases
    # One recovery and no change of the state since: the next one is taken to be like it.
    assert found["expected"]["took_ms"] > 0
    read = text_of(source)
    assert "Batch duration 50 ms" in read
    assert "Stop after this batch" in read
    assert "Late rows 6" in read
    assert "start 2.0 s" in read
    assert "verify" not in read
    assert "/ui/jobs/shop/ask" in source


@pytest.mark.slow
def test_a_query_is_chosen(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.job(queries=("visits", "drinks"))
    client = served.client()
    assert client.get("/ui/jobs/shop.json").json()["query"]["name"] == "visits"
    assert client.get("/ui/jobs/shop.json?query=drinks").json()["query"]["name"] == "drinks"
    assert "has no query" in text_of(page(client, "/ui/jobs/shop?query=x", 404))


def test_the_page_of_checkpoints(asker: TestClient) -> None:
    found = asker.get("/ui/jobs/shop/checkpoints.json").json()
    assert (found["batch"], found["kept"], found["provider"]) == (11, 7, "RocksDBStateStoreProvider")
    (store,) = found["stores"]
    assert sum(each["size_bytes"] for each in store["partitions"]) == found["size_bytes"]
    assert found["batches"][0]["batch"] == 11
    assert found["charts"][0]["newest"] == found["size_bytes"]
    cost = found["cost"]
    assert [state["checkpoint_bytes"] for state in cost["states"]] == [found["size_bytes"]]
    assert cost["money"]["local"] > 0
    shown = text_of(page(asker, "/ui/jobs/shop/checkpoints"))
    assert "Cost" in shown
    assert "USD per month" in shown


@pytest.mark.slow
def test_a_checkpoint_that_is_not_there_is_told_readably(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.job()
    client = served.client()
    assert client.get("/ui/jobs/shop/checkpoints.json").json()["problem"]["kind"] == "not-found"
    for name in ("checkpoints", "state"):
        read = text_of(page(client, f"/ui/jobs/shop/{name}"))
        assert "Traceback" not in read


def test_a_key_with_its_history(asker: TestClient) -> None:
    found = asker.get("/ui/jobs/shop/state.json?key=c1").json()
    assert (found["found"]["key"], found["found"]["exists"]) == ({"customer": "c1"}, True)
    assert found["found"]["value"] == {"count": 12, "sum": 706}
    # Every batch of the golden query has one event of each customer.
    assert [each["batch"] for each in found["history"]] == sorted(
        (each["batch"] for each in found["history"]), reverse=True
    )
    assert found["history"][0]["value"] == found["found"]["value"]
    assert [each["value"]["count"] for each in found["history"]] == list(
        range(12, 12 - len(found["history"]), -1)
    )
    unknown = asker.get("/ui/jobs/shop/state.json?key=nobody").json()
    assert (unknown["found"]["exists"], unknown["found"]["value"]) == (False, None)


def test_rows_of_a_state_and_of_a_savepoint(asker: TestClient) -> None:
    found = asker.get("/ui/jobs/shop/state.json").json()
    assert sorted(each["key"]["customer"] for each in found["rows"]) == [f"c{number}" for number in range(10)]
    assert (found["more"], found["offset"]) == (False, 0)
    assert asker.get("/ui/jobs/shop/state.json?offset=7").json()["rows"] == found["rows"][7:]
    (catalog,) = asker.get("/ui/jobs/shop/savepoints.json").json()["catalogs"]
    (saved,) = catalog["savepoints"]
    assert saved["label"] == "before the upgrade"
    of_it = asker.get(f"/ui/jobs/shop/state.json?savepoint={saved['id']}").json()
    assert of_it["rows"] == found["rows"]
    assert asker.get("/ui/jobs/shop/state.json?savepoint=../../x").json()["problem"]["kind"] == "not-found"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ui/nowhere", 404),
        ("/ui/jobs/nobody", 404),
        ("/ui/jobs/shop/nothing", 404),
        ("/ui/jobs/shop/state?offset=-1", 400),
        ("/ui/jobs/shop/state?offset=1e9", 400),
        (f"/ui/operations/{'0' * 32}", 404),
    ],
)
def test_what_is_not_there_is_a_page_words_or_json_as_it_is_asked_for(
    asker: TestClient, path: str, status: int
) -> None:
    source = page(asker, path, status)
    Tags(source)
    answer = asker.get(path, headers={"accept": "application/json"})
    assert answer.status_code == status
    fact = answer.json()["error"]
    assert html.escape(fact).replace("&#x27;", "&#39;") in source
    words = asker.get(path, headers={"accept": "*/*"})
    assert (words.status_code, words.headers["content-type"]) == (status, "text/plain; charset=utf-8")
    assert words.text.startswith(f"error: {fact} [HF-E")


@pytest.mark.slow
def test_a_terminal_is_told_the_jobs_and_where_the_rest_is(shop: Served) -> None:
    answer = shop.client().get("/")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = [line.split() for line in answer.text.splitlines()]
    assert lines[2:4] == [
        ["JOB", "STATE", "BATCH", "COMMITTED", "TOOK", "STATE", "ROWS", "STATE", "SIZE"],
        ["shop", "No", "supervisor", "2", "58", "s", "ago", "50", "ms", "102", "9.8", "KiB"],
    ]
    here = "http://127.0.0.1:8081"
    told = {line.partition("  ")[0]: line.split()[-1] for line in answer.text.splitlines()[5:]}
    assert told == {
        "as JSON": f"{here}/ui/jobs.json",
        "REST": f"{here}/api/v1/openapi.json",
        "Flink's REST": f"{here}/jobs/overview",
        "metrics": f"{here}/metrics",
        "in a browser": f"{here}/",
    }
    for address in told.values():
        assert shop.client().get(address).status_code == 200
    for path in PAGES:
        read = shop.client().get(path)
        assert (read.status_code, read.headers["content-type"]) == (200, "text/plain; charset=utf-8"), path
        address = re.search(r"^as JSON +(\S+)$", read.text, re.MULTILINE)
        assert address is not None
        assert shop.client().get(address[1]).json()


def test_a_browser_gets_a_page_where_flinks_client_gets_flinks_error(shop: Served) -> None:
    client = shop.client()
    for path, fact in (
        ("/nowhere", "unknown page"),
        ("/jobs/" + "0" * 32, f"Job {'0' * 32} not found"),
    ):
        assert fact in text_of(page(client, path, 404))
        for accept in ("*/*", "application/json"):
            assert list(client.get(path, headers={"accept": accept}).json()) == ["errors"]
    assert client.get("/api/v1/nowhere", headers=PAGE).json()["kind"] == "not-found"


def test_who_is_refused_sees_nothing_of_the_server(shop: Served) -> None:
    for headers, beginning in (
        (PAGE, "<!doctype html>"),
        ({}, "error: unknown host name\n"),
    ):
        answer = shop.client().get("/", headers={**headers, "host": "elsewhere.example"})
        assert answer.status_code == 403
        assert answer.text.startswith(beginning)
        assert "unknown host name" in answer.text
        assert str(shop.folder) not in answer.text


@pytest.mark.slow
def test_alerts(shop: Served) -> None:
    since = NOW_MS - 60_000
    slow = Alert("checkpoint_duration", ("shop", "visits"), "firing", since, None, 75.0, 60.0)
    events = [AlertEvent("firing", since, slow), AlertEvent("cleared", NOW_MS - 1000, slow)]
    AlertStore(shop.home.path).save(
        "shop", NOW_MS, samples=[], totals={}, standing={slow.key: slow}, events=events
    )
    client = shop.client()
    found = client.get("/ui/alerts.json").json()
    assert [(each["job"], each["phase"]) for each in found["standing"]] == [("shop", "firing")]
    assert [each["phase"] for each in found["events"]] == ["cleared", "firing"]
    assert "A batch of query visits takes 1 min 15 s" in text_of(page(client, "/ui/alerts")).replace(
        "a batch", "A batch"
    )
    assert client.get("/ui/jobs.json").json()["jobs"][0]["firing"] == 1
    assert client.get("/ui/jobs/shop.json").json()["alerts"] == found["standing"]


def test_a_windowed_key_is_shown_and_linked_as_it_is_written_on_the_command_line(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.job(checkpoint=served.checkpoint("4.2/windowed-memory"))
    client = served.client()
    source = page(client, "/ui/jobs/shop/state")
    read = text_of(source)
    assert re.search(r"2026-03-05 08:1\d – 2026-03-05 08:1\d c\d", read)
    example = re.search(r"Example key: (2026-03-05 08:1\d,c\d) : window, customer", read)
    assert example is not None
    assert f"?{urlencode({'state': 'aggregate', 'key': example[1]})}".replace("&", "&amp;") in source
    found = client.get("/ui/jobs/shop/state.json", params={"key": example[1]}).json()
    assert (found["found"]["exists"], found["example"]) == (True, example[1])


@pytest.mark.slow
def test_an_operation_is_told_in_words(shop: Served) -> None:
    asked = TakeSavepoint("file:///backups", queries=("visits",), deep=True, running=True)
    Operations(shop.home).ask("b" * 32, "savepoint", "shop", asked, NOW_MS)
    read = text_of(page(shop.client(), f"/ui/operations/{'b' * 32}"))
    told = "Directory file:///backups Queries visits Read every row yes Operation " + "b" * 32
    assert f"Request {told}" in read


def test_an_empty_home_says_how_to_begin(tmp_path: Path) -> None:
    served = Served(tmp_path)
    read = text_of(page(served.client(), "/"))
    assert "No job has run here yet" in read
    assert f"holdfast run job.py --home {served.home.path}" in read


@pytest.mark.slow
def test_what_comes_from_others_is_never_markup(shop: Served, tmp_path: Path) -> None:
    shop.job("till", checkpoint=tmp_path / EVIL, queries=(EVIL,))
    shop.registry.set_state("till", JobState.FAILED, NOW_MS, EVIL)
    number = shop.registry.start_attempt("till", 1, NOW_MS - 500, recovers=True)
    shop.registry.end_attempt(
        "till", number, "failed", Failure("query", EVIL, EVIL, EVIL, EVIL), NOW_MS - 400
    )
    noisy = replace(batch(5, EVIL), operators=(replace(batch(5).operators[0], name=EVIL),))
    shop.registry.add_batch("till", number, noisy)
    operation = Operations(shop.home).ask("a" * 32, "verify", "shop", Verify(EVIL), NOW_MS)
    begun = Operations(shop.home).begin(operation.operation_id, EVIL, NOW_MS)
    assert begun is not None
    Operations(shop.home).fail(
        begun, {"error": EVIL, "where": EVIL, "found": EVIL, "expected": None, "hint": EVIL}, NOW_MS
    )
    client = shop.client()
    paths = [
        "/",
        "/ui/jobs/till",
        "/ui/jobs/till/checkpoints",
        "/ui/jobs/shop/savepoints",
        f"/ui/operations/{'a' * 32}",
    ]
    hostile = ["/ui/jobs/shop/state", "/ui/jobs/shop", "/ui/jobs/till/state"]
    answers = [client.get(path, headers=PAGE) for path in paths]
    answers += [
        client.get(path, params={"key": EVIL, "state": EVIL, "query": EVIL}, headers=PAGE) for path in hostile
    ]
    for answer in answers:
        for tag, attrs in Tags(answer.text).seen:
            assert tag != "img"
            assert tag != "script" or (attrs.get("src") or "").startswith("/static/"), attrs
            assert not any(name.startswith("on") for name in attrs)
    assert html.escape("<script>") in answers[1].text


def ask(served: Served, fields: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
    return served.client().post(
        "/ui/jobs/shop/ask", data=fields, headers=HERE if headers is None else headers, follow_redirects=False
    )


@pytest.mark.slow
def test_buttons_ask_for_operations(shop: Served, tmp_path: Path) -> None:
    (catalog,) = shop.client().get("/ui/jobs/shop/savepoints.json").json()["catalogs"]
    savepoint = catalog["savepoints"][0]["savepoint"]
    asked: list[tuple[dict[str, Any], str, Arguments]] = [
        (
            {
                "verb": "savepoint",
                "catalog": catalog["catalog"],
                "label": "now",
                "deep": "1",
                "drop_expired": "1",
            },
            "savepoint",
            TakeSavepoint(catalog["catalog"], "now", deep=True, drop_expired=True),
        ),
        ({"verb": "verify", "savepoint": savepoint}, "verify", Verify(savepoint, deep=False)),
        (
            {"verb": "fork", "savepoint": savepoint, "checkpoint": f"{tmp_path}/checkpoints/new"},
            "fork",
            MakeCheckpoint(savepoint, f"file://{tmp_path}/checkpoints/new"),
        ),
        ({"verb": "dispose", "savepoint": savepoint}, "dispose", Dispose((savepoint,))),
    ]
    for fields, verb, arguments in asked:
        answer = ask(shop, fields)
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/jobs/shop/savepoints")
        newest = Operations(shop.home).newest("shop", 1)[0]
        assert (newest.verb, newest.job) == (verb, "shop")
        assert decode(newest.verb, newest.arguments) == arguments
    read = text_of(page(shop.client(), "/ui/jobs/shop/savepoints"))
    assert read.count("Waiting") == 4


@pytest.mark.slow
def test_two_savepoints_are_compared_the_older_one_first(shop: Served, tmp_path: Path) -> None:
    later = take(tmp_path / "checkpoints" / "aggregate-changelog", tmp_path / "savepoints").uri
    (catalog,) = shop.client().get("/ui/jobs/shop/savepoints.json").json()["catalogs"]
    newer, older = (each["savepoint"] for each in catalog["savepoints"])
    assert newer == later
    answer = ask(shop, {"verb": "diff", "with": [newer, older]})
    operation = Operations(shop.home).newest("shop", 1)[0]
    assert answer.headers["location"] == f"/ui/operations/{operation.operation_id}"
    assert (operation.arguments["first"], operation.arguments["second"]) == (older, newer)


@pytest.mark.slow
def test_a_job_is_stopped_and_cancelled_by_its_buttons(shop: Served) -> None:
    assert ask(shop, {"verb": "stop"}).status_code == 409  # nobody supervises it
    with shop.supervised():
        assert ask(shop, {"verb": "stop"}).headers["location"] == "/ui/jobs/shop"
        assert ask(shop, {"verb": "cancel"}).status_code == 303
    assert shop.registry.take_requests("shop", 0) == ["stop", "cancel"]


@pytest.mark.slow
def test_a_bad_form_changes_nothing(shop: Served) -> None:
    bad: list[tuple[dict[str, Any], int, str]] = [
        ({}, 400, "invalid"),
        ({"verb": "drop"}, 400, "invalid"),
        ({"verb": "verify"}, 400, "invalid"),
        ({"verb": "verify", "savepoint": "/etc/passwd"}, 400, "invalid"),
        ({"verb": "fork", "savepoint": "file:///etc/savepoints/x", "checkpoint": "/tmp/x"}, 400, "invalid"),
        ({"verb": "savepoint", "catalog": "/etc"}, 400, "invalid"),
        ({"verb": "savepoint", "catalog": "relative"}, 400, "invalid"),
        ({"verb": "savepoint", "label": "x" * 5000}, 400, "invalid"),
        ({"verb": "diff", "with": ["one"]}, 400, "invalid"),
        ({"verb": "stop-with-savepoint"}, 409, "conflict"),
        ({f"f{number}": "" for number in range(60)}, 400, "invalid"),
    ]
    client = shop.client()
    for fields, status, kind in bad:
        answer = client.post("/ui/jobs/shop/ask", data=fields, headers=HERE, follow_redirects=False)
        assert (answer.status_code, answer.json()["kind"]) == (status, kind), fields
        told = client.post("/ui/jobs/shop/ask", data=fields, headers={**HERE, **PAGE})
        assert told.headers["content-type"].startswith("text/html")
    assert Operations(shop.home).newest() == []
    assert shop.registry.take_requests("shop", 0) == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 400),
        ({"origin": "http://elsewhere.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 409),
    ],
)
def test_only_our_own_pages_may_press_buttons(shop: Served, headers: dict[str, str], status: int) -> None:
    assert ask(shop, {"verb": "stop"}, headers).status_code == status


@pytest.mark.slow
def test_a_page_that_has_not_changed_is_not_sent_again(shop: Served) -> None:
    client = shop.client()
    first = client.get("/ui/jobs/shop", headers=PAGE)
    again = client.get("/ui/jobs/shop", headers={**PAGE, "if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    # Later on the clock nothing is new either: the page tells times by itself.
    later = shop.client(now_ms=NOW_MS + 60_000)
    assert later.get("/ui/jobs/shop/savepoints", headers=PAGE).headers["etag"]
    number = len(shop.registry.attempts("shop"))
    shop.registry.add_batch("shop", number, batch(3))
    fresh = shop.client().get("/ui/jobs/shop", headers={**PAGE, "if-none-match": first.headers["etag"]})
    assert fresh.status_code == 200


def test_files_of_pages_are_kept_for_good(asker: TestClient) -> None:
    tags = Tags(page(asker, "/")).seen
    files = {str(attrs.get("src") or attrs.get("href")) for tag, attrs in tags if tag in ("script", "link")}
    assert len(files) == 4
    for path in files:
        answer = asker.get(path)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    digest = next(iter(files)).split("/")[2]
    for imported in re.findall(r'from "\./([a-z]+\.js)"', asker.get(f"/static/{digest}/dashboard.js").text):
        assert asker.get(f"/static/{digest}/{imported}").status_code == 200
    for path in (f"/static/{digest}/nothing.js", "/static/0/style.css", f"/static/{digest}/..%2fpages.py"):
        assert asker.get(path).status_code == 404


def test_who_has_no_token_is_led_to_the_form(tmp_path: Path) -> None:
    served = Served(tmp_path, ServerSettings(token="correct horse battery"))
    served.job()
    client = served.client()
    answer = client.get("/ui/jobs/shop", headers=PAGE, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=/ui/jobs/shop")
    answer = client.get("/ui/jobs/shop/state?key=a%26b", headers=PAGE, follow_redirects=False)
    assert answer.headers["location"] == "/login?next=/ui/jobs/shop/state%3Fkey%3Da%2526b"
    assert client.get("/ui/jobs/shop.json").status_code == 401
    source = page(client, "/login?next=/ui/jobs/shop")
    Tags(source)
    assert 'type="password"' in source
    assert str(served.home.path) not in source
    wrong = client.post("/login", data={"token": "x", "next": "/ui/jobs/shop"}, headers={**HERE, **PAGE})
    assert (wrong.status_code, "Wrong token" in wrong.text) == (401, True)
    assert 'value="/ui/jobs/shop"' in wrong.text
    right = client.post(
        "/login", data={"token": "correct horse battery", "next": "/ui/jobs/shop"}, headers={**HERE, **PAGE}
    )
    assert (right.status_code, right.url.path) == (200, "/ui/jobs/shop")
    assert "Log out" in right.text
    client.post("/logout", headers=HERE)
    assert client.get("/", headers=PAGE, follow_redirects=False).status_code == 303


def test_a_job_called_like_a_file_has_pages_too(tmp_path: Path) -> None:
    served = Served(tmp_path)
    record = served.job("shop.json")
    source = page(served.client(), "/")
    assert f"/ui/jobs/{record.job_id}" in source
    assert "shop.json" in text_of(page(served.client(), f"/ui/jobs/{record.job_id}"))
    assert record.job_id != SHOP


def test_json_of_pages_holds_plain_values(asker: TestClient) -> None:
    for path in PAGES:
        found = asker.get(path, headers={"accept": "application/json"}).json()
        assert json.loads(json.dumps(found)) == found
        assert found["now_ms"] == NOW_MS


def test_a_fault_of_ours_is_logged_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A person is told that something went wrong; who mends it needs to know where."""
    asker = Served(tmp_path).client()

    def broken(_: object) -> None:
        raise RuntimeError("lost in a page")

    monkeypatch.setattr("holdfast.server.control_plane.ControlPlane.jobs", broken)
    answer = asker.get("/ui/jobs", headers=PAGE)
    assert answer.status_code == 500
    assert "lost in a page" not in answer.text
    record = next(record for record in caplog.records if record.name == "holdfast.server")
    assert record.exc_info is not None
    assert "/ui/jobs" in record.getMessage()
    assert "lost in a page" in str(record.exc_info[1])


def test_a_catalog_is_listed_for_pages_and_for_resources_at_the_same_time(shop: Served) -> None:
    """Both look at the same list, whoever has asked for it first."""
    asker = shop.client()
    listed = asker.get("/api/v1/savepoints").json()
    shown = asker.get("/ui/jobs/shop/savepoints.json").json()
    assert asker.get("/api/v1/savepoints").json() == listed
    ids = [savepoint["savepoint"] for catalog in shown["catalogs"] for savepoint in catalog["savepoints"]]
    assert ids == [one["savepoint"] for catalog in listed["catalogs"].values() for one in catalog]
    assert len(ids) == 1
