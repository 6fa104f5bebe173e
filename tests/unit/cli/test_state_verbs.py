"""The verbs that look into state: what they print, what they write, and their exit codes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import golden_model as model
import pyarrow.parquet as pq
import pytest
from command import Holdfast

from golden import golden_files, golden_on_disk

NAME = "4.2/aggregate-format2"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return golden_on_disk(NAME, tmp_path / "ck")


def told(said: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    assert said.returncode == code, said.stderr
    return json.loads(said.stdout)


def expected() -> dict[str, tuple[int, int]]:
    return model.aggregate(model.taken(golden_files(NAME)))


@pytest.mark.usefixtures("checkpoint")
def test_a_key_is_got_listed_and_explained(holdfast: Holdfast) -> None:
    [operator] = told(holdfast("state", "list", "./ck", "--json"))["operators"]
    [state] = operator["states"]
    assert (state["name"], state["key"], state["form"]) == ("aggregate", {"customer": "string"}, "value")
    visits, spend = expected()["c1"]
    got = told(holdfast("state", "get", "./ck", "aggregate", "c1", "--json"))
    assert got["value"] == {"count": visits, "sum": spend}
    older = told(
        holdfast("state", "get", f"./ck@{got['batch_id'] - 1}", "aggregate", "customer=c1", "--json")
    )
    assert older["batch_id"] == got["batch_id"] - 1
    plain = holdfast("state", "get", "./ck", "aggregate", "c1")
    assert f'{{"count": {visits}, "sum": {spend}}}' in plain.stdout
    history = told(holdfast("state", "history", "./ck", "aggregate", "c1", "--json"))
    assert history["versions"][-1]["value"] == got["value"]
    why = told(holdfast("state", "explain", "./ck", "aggregate", "c1", "--json"))
    assert (why["written_batch"], why["rank"]["keys"]) == (got["batch_id"], len(expected()))
    assert "by batch" in holdfast("state", "explain", "./ck", "aggregate", "c1").stdout


@pytest.mark.usefixtures("checkpoint")
def test_the_only_state_need_not_be_named(holdfast: Holdfast) -> None:
    visits, spend = expected()["c1"]
    for words in (["c1"], ["customer=c1"], ['{"customer": "c1"}']):
        got = told(holdfast("state", "get", "./ck", *words, "--json"))
        assert got["value"] == {"count": visits, "sum": spend}
    assert told(holdfast("state", "history", "./ck", "c1", "--json"))["versions"][-1]["value"] == got["value"]
    assert told(holdfast("state", "explain", "./ck", "c1", "--json"))["written_batch"] == got["batch_id"]
    assert len(told(holdfast("state", "scan", "./ck", "--json"))["rows"]) == len(expected())


@pytest.mark.usefixtures("checkpoint")
def test_what_is_not_there_has_its_exit_code(holdfast: Holdfast) -> None:
    assert told(holdfast("state", "get", "./ck", "aggregate", "nobody", "--json"), 3)["kind"] == "not-found"
    assert told(holdfast("state", "get", "./ck", "visits", "c1", "--json"), 3)["expected"] == "aggregate"
    assert told(holdfast("state", "get", "./ck@99", "aggregate", "c1", "--json"), 3)
    assert told(holdfast("state", "get", "./ck", "nobody", "--json"), 3)["kind"] == "not-found"
    assert told(holdfast("state", "scan", "./ck", "aggregate", "--where", "nope > 1", "--json"), 2)
    assert told(holdfast("ttl", "./ck", "--json"), 2)["kind"] == "invalid"


@pytest.mark.usefixtures("checkpoint")
def test_rows_are_filtered_asked_and_written(holdfast: Holdfast, tmp_path: Path) -> None:
    many = {customer for customer, (visits, _) in expected().items() if visits > 11}
    rows = told(holdfast("state", "scan", "./ck", "aggregate", "--where", "count > 11", "--json"))["rows"]
    assert {row["customer"] for row in rows} == many
    query = 'select sum("count") as n from "aggregate"'
    [answer] = told(holdfast("state", "scan", "./ck", "--sql", query, "--json"))["rows"]
    assert answer == {"n": sum(visits for visits, _ in expected().values())}
    for name in ("rows.parquet", "rows.jsonl"):
        wrote = told(holdfast("state", "scan", "./ck", "aggregate", "--output", name, "--json"))
        assert wrote == {"file": name, "rows": len(expected())}
    table = pq.read_table(tmp_path / "rows.parquet").to_pylist()
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert table == lines
    assert {row["customer"]: (row["count"], row["sum"]) for row in table} == expected()
    again = told(holdfast("state", "scan", "./ck", "aggregate", "--output", "rows.jsonl", "--json"), 4)
    assert again["kind"] == "conflict"
    assert told(holdfast("state", "scan", "./ck", "aggregate", "--output", "rows.csv", "--json"), 2)
    assert not [each.name for each in tmp_path.iterdir() if each.name.endswith(".part")]


@pytest.mark.usefixtures("checkpoint")
@pytest.mark.slow
def test_a_query_reaches_nothing_but_the_states(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    for query in (
        "select * from read_csv('secret.csv')",
        "select * from 'secret.csv'",
        "copy (select 1) to 'out.csv'",
        "attach 'other.db'",
        "select 1; select 2",
        "set enable_external_access=true",
        "select * from rows",
    ):
        assert told(holdfast("state", "scan", "./ck", "--sql", query, "--json"), 2)["kind"] == "invalid", (
            query
        )
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.usefixtures("checkpoint")
def test_two_batches_are_compared_under_state_too(holdfast: Holdfast) -> None:
    newest = told(holdfast("state", "list", "./ck", "--json"))["batch_id"]
    [state] = told(holdfast("state", "diff", f"./ck@{newest - 1}", "./ck", "--json"))["states"]
    files = model.taken(golden_files(NAME))
    before, after = (model.aggregate(files[:count]) for count in (newest, newest + 1))
    assert state["changed"] == sum(before.get(key) != value for key, value in after.items())
    found = told(holdfast("ttl", "./ck", "--what-if", "24h", "--json"))["states"]
    assert [each["what"] for each in found] == ["rows of this state have no timestamp"]
