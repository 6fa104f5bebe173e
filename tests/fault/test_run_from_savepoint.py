"""A job that goes on from savepoints of its queries, somewhere else, and as they were written."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from running_job import JOBS, running

from holdfast import checkpoints, savepoints
from holdfast.config.spark_defaults import FORMAT_KEY

pytestmark = pytest.mark.fault

QUERIES = ("visits", "spent")


def arrive(folder: Path, number: int) -> list[tuple[str, int]]:
    rows = [(f"c{(number + each) % 4}", 10 * number + each) for each in range(6)]
    (folder / "arrivals").mkdir(exist_ok=True)
    text = "".join(json.dumps({"customer": who, "amount": amount}) + "\n" for who, amount in rows)
    (folder / "arrivals" / f"{number}.json").write_text(text)
    return rows


def told(path: Path) -> dict[int, dict[str, int]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["batch"]: line["totals"] for line in lines}


def model(rows: list[tuple[str, int]], newest: list[tuple[str, int]]) -> dict[str, dict[str, int]]:
    """What the batch of the newest rows puts out."""
    visits = Counter(who for who, _ in rows)
    spent: Counter[str] = Counter()
    for who, amount in rows:
        spent[who] += amount
    came = {who for who, _ in newest}
    return {"visits": {who: visits[who] for who in came}, "spent": {who: spent[who] for who in came}}


def test_both_queries_go_on_exactly_once(tmp_path: Path) -> None:
    rows = [row for number in range(2) for row in arrive(tmp_path, number)]
    # As plain Spark writes it; nothing in the checkpoint says so.
    with running(JOBS / "counted.py", tmp_path, conf={FORMAT_KEY: "1"}) as job:
        assert job.ended().code == 0
    taken = {query: savepoints.take(tmp_path / "checkpoint" / query, tmp_path / "sp") for query in QUERIES}
    assert {each.manifest.batch_id for each in taken.values()} == {1}
    for query in QUERIES:
        found = checkpoints.verify(tmp_path / "checkpoint" / query, home=tmp_path / "home")
        assert (found.problems, found.recorded_batch) == ((), 1)
    newest = arrive(tmp_path, 2)
    addresses = {query: each.uri for query, each in taken.items()}
    settings = {"checkpoint.storage": "elsewhere", "out": "again"}
    with running(JOBS / "counted.py", tmp_path, settings=settings, savepoints=addresses) as job:
        ended = job.ended()
    assert ended.code == 0, ended.words
    restored = [event for event in ended.events if event.get("event") == "restored"]
    assert {(event["query"], event["batch_id"], event["state_format"]) for event in restored} == {
        ("visits", 1, 1),
        ("spent", 1, 1),
    }
    expected = model(rows + newest, newest)
    for query in QUERIES:
        assert told(tmp_path / "again" / query) == {2: expected[query]}
        found = checkpoints.verify(tmp_path / "elsewhere" / query, home=tmp_path / "home")
        assert (found.problems, found.recorded_batch) == ((), 2)
        assert savepoints.verify(addresses[query]).ok
