"""A deployment file is brought about, once: starts, upgrades, stops, refusals, kills of the command.

What the ledger's table must have at the end follows from the rows that were fed, whatever happened meanwhile.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from command import PROGRAM
from grid import WHOLE
from process_table import working_in
from running_job import until
from small_session import small_session
from totals_shop import CONVERTS, FAILS, KEEPS, OLD, POISON, REFUSED, Feeding, Shop, shop_in

import holdfast as hf

pytestmark = [pytest.mark.fault, pytest.mark.spark]

# It ends by itself, and has no state.
ONCE = """
import holdfast as hf


@hf.job(name="once", checkpoint="once", trigger=hf.available_now())
def once(spark, folder="in"):
    rows = spark.readStream.schema("account string, amount long").json(folder)
    return hf.sink(rows).parquet("copied")
"""
CONF = "\n".join(f'"{key}" = "{value}"' for key, value in small_session("1g").items())


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    yield from shop_in(tmp_path, monkeypatch)


def table(name: str, code: str, *lines: str) -> str:
    return "\n".join(
        [f"[jobs.{name}]", f'code = "{code}"', 'master = "local[2]"', *lines, f"[jobs.{name}.conf]", CONF, ""]
    )


def declare(shop: Shop, *tables: str) -> None:
    (shop.folder / "deployment.toml").write_text("\n".join(tables))


def applying(shop: Shop, *words: str) -> subprocess.Popen[str]:
    command = [PROGRAM, "apply", "deployment.toml", *words, "--json"]
    return subprocess.Popen(
        command, cwd=shop.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def applied(shop: Shop, *words: str, exit_code: int = 0) -> dict[str, Any]:
    with applying(shop, *words) as process:
        out, err = process.communicate()
    assert process.returncode == exit_code, out + err
    report: dict[str, Any] = json.loads(out)
    return report


def actions(report: dict[str, Any]) -> dict[str, str]:
    return {job["job"]: job["action"] for job in report["jobs"]}


def test_jobs_become_what_the_file_says_and_then_nothing_is_done(shop: Shop) -> None:
    (shop.folder / "totals.py").write_text(OLD)
    (shop.folder / "once.py").write_text(ONCE)
    shop.feed()
    declare(shop, table("totals", "totals.py"), table("once", "once.py"))
    assert actions(applied(shop, "--dry-run")) == {"totals": "start", "once": "start"}
    assert hf.jobs.list() == ()
    report = applied(shop)
    assert actions(report) == {"totals": "start", "once": "start"}
    assert report["jobs"][0]["state"] == "RUNNING"
    until(lambda: hf.jobs.status("once").details.status.job.state == "FINISHED", "the job has read all")
    shop.check()
    # A job that has read all its input is not started again, and one that runs is left alone.
    began = {status.job.name: status.job.started_ms for status in hf.jobs.list()}
    report = applied(shop)
    assert (actions(report), report["ok"]) == ({"totals": "nothing", "once": "nothing"}, True)
    assert {status.job.name: status.job.started_ms for status in hf.jobs.list()} == began

    # Two differences: the code and a setting. The other job changes too, and has no state to keep.
    (shop.folder / "totals.py").write_text(KEEPS)
    declare(shop, table("totals", "totals.py", "batches = 1", 'settings.trigger = "200 ms"'))
    planned = applied(shop, "--dry-run")
    assert planned["jobs"][0]["differs"] == ["code", "settings"]
    assert planned["jobs"][0]["intended"][0] == "stop totals after its running batch"
    with Feeding(shop):
        assert actions(applied(shop)) == {"totals": "upgrade"}
    shop.check()
    assert actions(applied(shop)) == {"totals": "nothing"}

    # What would be refused changes nothing, and neither does the rest of the file.
    (shop.folder / "totals.py").write_text(REFUSED)
    (shop.folder / "once.py").write_text(ONCE + "\n# changed\n")
    declare(shop, table("once", "once.py"), table("totals", "totals.py"))
    refusal = applied(shop, exit_code=4)
    assert "nothing was changed" in refusal["error"]
    assert hf.jobs.status("once").details.status.job.started_ms == began["once"]
    shop.check()

    # A job that is not to run is stopped with a savepoint, and stays so.
    declare(shop, table("totals", "totals.py", 'state = "stopped"'))
    assert actions(applied(shop)) == {"totals": "stop"}
    assert hf.jobs.status("totals").details.status.job.state == "FINISHED"
    (saved,) = hf.savepoints.list("checkpoint.savepoints")[-1:]
    assert hf.health(saved.uri).ok
    assert actions(applied(shop)) == {"totals": "nothing"}
    assert shop.table() == dict(shop.expected)


KILLS = ["stop", "savepoint", "convert", "start"]


@pytest.mark.parametrize("kill", KILLS if WHOLE else ["savepoint"])
def test_a_killed_command_leaves_no_process_and_the_next_one_continues(shop: Shop, kill: str) -> None:
    (shop.folder / "old.py").write_text(OLD)
    (shop.folder / "converts.py").write_text(CONVERTS)
    shop.feed()
    shop.start()
    shop.check()
    declare(shop, table("totals", "converts.py", "batches = 1"))
    with Feeding(shop):
        process = applying(shop)
        until(lambda: shop.did(kill) or process.poll() is not None, f"the step {kill} is done")
        process.kill()
        process.communicate()
        assert shop.record["outcome"] is None, "the kill came too late"
        until(lambda: not upgrading(shop), "the process of the upgrade has ended")
        report = applied(shop)
    assert actions(report) == {"totals": "continue"}
    shop.check()
    assert actions(applied(shop)) == {"totals": "nothing"}


def upgrading(shop: Shop) -> list[int]:
    """The processes in the shop that carry out an upgrade."""
    found = []
    for pid in working_in(shop.folder):
        with suppress(OSError):  # it has ended meanwhile
            if b"own_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


@pytest.mark.skipif(not WHOLE, reason="HOLDFAST_GRID=all runs it")
def test_code_that_fails_gives_way_to_the_old_and_is_reported(shop: Shop) -> None:
    (shop.folder / "totals.py").write_text(OLD)
    shop.feed()
    declare(shop, table("totals", "totals.py"))
    applied(shop)
    shop.check()
    (shop.folder / "totals.py").write_text(FAILS)
    declare(shop, table("totals", "totals.py", "batches = 100"))
    with applying(shop) as process:
        until(lambda: shop.did("start") or process.poll() is not None, "the new code runs")
        shop.feed(POISON)
        out, err = process.communicate()
    assert process.returncode == 1, out + err
    (job,) = json.loads(out)["jobs"]
    assert (job["action"], job["ok"], job["state"]) == ("upgrade", False, "RUNNING")
    assert "the old code is back" in job["reason"]
    assert "poison" in job["reason"]
    shop.check()
