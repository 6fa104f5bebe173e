"""A call that a hint names can be pasted: it means the same directory, whatever that is called."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from command import Holdfast

from golden import golden_files, golden_on_disk
from holdfast import savepoints
from holdfast.advice.cost_report import Situation, changes
from holdfast.advice.prices import Prices
from holdfast.advice.usage import measure
from holdfast.cli import next_step
from holdfast.config.checks import place_word
from holdfast.storage.memory import MemoryStorage


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = golden_on_disk("4.2/aggregate-format2", tmp_path / "my ck")
    savepoints.take(folder, tmp_path / "my saved", label="first")
    return folder


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["state", "list", "my ck@9999"], ["checkpoint", "history", "{}/my ck"]),
        (["savepoint", "take", "my ck", "other", "--batch", "9999"], ["checkpoint", "history", "{}/my ck"]),
        (["savepoint", "show", "my saved@second"], ["savepoint", "list", "{}/my saved"]),
        (
            ["savepoint", "show", "my saved/savepoints/20260305T080000.000Z-c8c0d424-b11-9d2e"],
            ["savepoint", "list", "{}/my saved"],
        ),
    ],
)
@pytest.mark.usefixtures("checkpoint")
def test_a_directory_with_a_blank_is_one_word(
    holdfast: Holdfast, tmp_path: Path, asked: list[str], words: list[str]
) -> None:
    refused = holdfast(*asked, "--json")
    assert refused.returncode == 3, refused.stderr
    [call] = re.findall("`holdfast (.*?)`", json.loads(refused.stdout)["hint"])
    assert shlex.split(call) == [word.format(tmp_path) for word in words]
    assert holdfast(*shlex.split(call)).returncode == 0


@pytest.mark.parametrize(
    ("name", "older", "newer", "called"),
    [
        # Counts that Spark keeps beside the rows of a join differ too, and have no name of a person's. The
        # first row that differs is gone, so it is explained where it was.
        ("4.2/join-format2", 11, 12, ["./my ck@11", "join.left", "c4"]),
        # A session is stored under its start as well.
        ("3.5/session-memory", 10, 11, ["./my ck@11", "c8"]),
        ("4.2/state-format2", 10, 11, ["./my ck@11", "processor.amounts", "c6"]),
        ("4.2/global-changelog", 10, 11, ["./my ck@11", "{}"]),
    ],
)
def test_a_key_that_differs_can_be_explained(
    holdfast: Holdfast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    older: int,
    newer: int,
    called: list[str],
) -> None:
    monkeypatch.setattr(next_step, "on_terminal", lambda: True)
    golden_on_disk(name, tmp_path / "my ck")
    found = holdfast("state", "diff", f"./my ck@{older}", f"./my ck@{newer}")
    [call] = re.findall("^next: holdfast (.*)$", found.stderr, re.MULTILINE)
    assert shlex.split(call) == ["state", "explain", *called]
    assert holdfast(*shlex.split(call)).returncode == 0


def test_what_costs_less_is_a_call_for_the_same_checkpoint(holdfast: Holdfast, checkpoint: Path) -> None:
    newest = json.loads(holdfast("cost", "my ck", "--json").stdout)["batch_id"]
    told = json.loads(holdfast("cost", f"my ck@{newest}", "--json").stdout)
    [how] = [change["how"] for change in told["changes"] if change["kind"] == "ttl"]
    assert shlex.split(how) == ["holdfast", "ttl", str(checkpoint), "--what-if", "24h"]


def test_a_checkpoint_is_rescaled_once_its_query_is_stopped() -> None:
    measured = measure(MemoryStorage(golden_files("4.2/aggregate-memory"), uri="memory://x"))
    [operator] = measured.checkpoint.operators
    measured = replace(
        measured,
        checkpoint=replace(measured.checkpoint, operators=(replace(operator, partitions=8),)),
        shape=replace(measured.shape, stores=8),
    )
    prices = Prices(writes=5e-6, reads=4e-7)
    now = Situation(measured, prices, "s3", "file:///data/my ck", 10_000, None, "lz4")
    [how] = [change.how for change in changes(now) if change.kind == "partitions"]
    assert how == "holdfast rescale '/data/my ck' --partitions 2 --confirm-stopped"


def test_an_address_is_typed_as_a_shell_reads_it() -> None:
    assert place_word("file:///data/my ck") == "'/data/my ck'"
    assert place_word("file:///data/ck") == "/data/ck"
    assert place_word("s3a://bucket/my ck") == "'s3a://bucket/my ck'"
