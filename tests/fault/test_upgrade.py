"""Upgrades of a running job: kept, converted and refused state, new code that fails, kills of the command.

What the ledger's table must have at the end follows from the rows that were fed, whatever happened meanwhile.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from grid import WHOLE
from running_job import until
from totals_shop import CONVERTS, FAILS, KEEPS, OLD, POISON, REFUSED, Feeding, Shop, shop_in

import holdfast as hf

pytestmark = [pytest.mark.fault, pytest.mark.spark]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    yield from shop_in(tmp_path, monkeypatch)


def test_state_is_kept(shop: Shop) -> None:
    shop.feed()
    assert shop.start().job.state == "RUNNING"
    shop.check()
    (shop.folder / "keeps.py").write_text(KEEPS)
    with Feeding(shop):
        done = shop.upgrade("keeps.py")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["outcome"], report["reason"]) == ("upgraded", None)
    assert [step["step"] for step in report["steps"]] == ["stop", "savepoint", "start", "watch"]
    assert hf.health(report["savepoints"]["totals"]).ok
    shop.check()


def test_state_is_converted_and_a_loss_is_refused(shop: Shop) -> None:
    shop.feed()
    assert shop.start().job.state == "RUNNING"
    shop.check()
    (shop.folder / "converts.py").write_text(CONVERTS)
    with Feeding(shop):
        done = shop.upgrade("converts.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "convert" in [step["step"] for step in json.loads(done.stdout)["steps"]]
    shop.check()

    (shop.folder / "refused.py").write_text(REFUSED)
    before = hf.jobs.status("totals").details.status.job
    done = shop.upgrade("refused.py")
    assert done.returncode == 4
    assert "the new code would not start" in json.loads(done.stdout)["error"]
    assert hf.jobs.status("totals").details.status.job.started_ms == before.started_ms
    shop.check()


# A kill of the command once a step is recorded.
BACK = ["stop", "start", "stop-new", "put-back"]


@pytest.mark.parametrize("kill", [None, *BACK] if WHOLE else ["put-back"])
def test_new_code_that_fails_after_five_batches_gives_way_to_the_old(shop: Shop, kill: str | None) -> None:
    shop.feed()
    shop.start()
    shop.check()
    # The new code replaces the old file.
    (shop.folder / "old.py").write_text(FAILS)
    process = shop.upgrading("old.py", "--batches", "100")
    try:
        if kill in BACK[:2]:
            process = killed_and_repeated(shop, process, kill)
        until(lambda: shop.did("start") or process.poll() is not None, "the new code runs")
        read = len(hf.ledger("sqlite:///totals.db").history("totals"))
        for _ in range(5):
            shop.feed()
        history = hf.ledger("sqlite:///totals.db").history
        until(lambda: len(history("totals")) >= read + 5, "five batches are committed")
        token = history("totals")[-1].token
        assert len([record for record in history("totals") if record.token == token]) >= 5
        shop.feed(POISON)
        shop.feed()
        if kill in BACK[2:]:
            process = killed_and_repeated(shop, process, kill)
        out, err = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 1, out + err
    report = json.loads(out)
    assert report["outcome"] == "went back"
    assert "poison" in report["reason"]
    assert [step["step"] for step in report["steps"]][-3:] == ["stop-new", "put-back", "start-old"]
    shop.check()
    status = hf.jobs.status("totals").details.status
    assert (status.job.state, status.supervised) == ("RUNNING", True)
    assert Path(status.job.target).read_text() == OLD
    (aside,) = shop.folder.glob("checkpoint.upgraded-*")
    assert aside.is_dir()
    assert list(shop.folder.glob(".checkpoint.holdfast.fallback.json")) == []
    hf.jobs.stop("totals")
    assert hf.checkpoints.verify("checkpoint").ok


def killed_and_repeated(shop: Shop, process: subprocess.Popen[str], step: str) -> subprocess.Popen[str]:
    """Kill the command once a step is recorded, and call it again without the new code."""
    until(lambda: shop.did(step) or process.poll() is not None, f"the step {step} is done")
    process.kill()
    process.communicate()
    assert shop.record["outcome"] is None, "the kill came too late"
    return shop.upgrading()


@pytest.mark.skipif(not WHOLE, reason="HOLDFAST_GRID=all runs it")
@pytest.mark.parametrize("mode", ["savepoint", "last-state"])
@pytest.mark.parametrize("kill", ["stop", "savepoint", "making", "convert", "start"])
def test_an_upgrade_is_continued_after_a_kill(shop: Shop, kill: str, mode: str) -> None:
    shop.feed()
    shop.start()
    shop.check()
    (shop.folder / "converts.py").write_text(CONVERTS)
    with Feeding(shop):
        process = shop.upgrading("converts.py", "--mode", mode)
        if kill == "making":
            until(lambda: any(shop.folder.glob("checkpoint.upgrade-*")), "the state is being converted")
            process.kill()
            process.communicate()
            process = shop.upgrading()
        else:
            process = killed_and_repeated(shop, process, kill)
        out, err = process.communicate()
    assert process.returncode == 0, out + err
    assert json.loads(out)["outcome"] == "upgraded"
    shop.check()


@pytest.mark.skipif(not WHOLE, reason="HOLDFAST_GRID=all runs it")
@pytest.mark.parametrize("kill", ["stop", "savepoint", "convert"])
def test_a_return_by_request_finds_the_old_state(shop: Shop, kill: str) -> None:
    shop.feed()
    shop.start()
    shop.check()
    (shop.folder / "converts.py").write_text(CONVERTS)
    process = shop.upgrading("converts.py")
    until(lambda: shop.did(kill), f"the step {kill} is done")
    process.kill()
    process.communicate()
    done = shop.upgrade("--back")
    assert done.returncode == 1, done.stdout + done.stderr
    assert json.loads(done.stdout)["outcome"] == "went back"
    shop.check()
