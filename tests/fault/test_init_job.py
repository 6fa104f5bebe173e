"""What `holdfast init` writes is tested, run and checked as it tells people to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command import command_in
from terminal import on_terminal

pytestmark = [pytest.mark.fault, pytest.mark.spark]


def test_the_written_job_runs_as_it_is(tmp_path: Path, home: Path) -> None:
    holdfast = command_in(tmp_path, home)
    made = holdfast("init", "mine")
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "mine"
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout
    holdfast = command_in(folder, home)
    ran = on_terminal(["run", "shop.py", "--no-rest"], folder, home)
    assert (ran.code, ran.lines[-1]) == (0, "next: holdfast state list shop"), ran.lines
    # By hand, from the six orders: ann had tea, mocha and tea, bob espresso and mocha, cho tea.
    scanned = holdfast("state", "scan", "shop", "totals", "--json")
    rows = {row["customer"]: (row["orders"], row["spent"]) for row in json.loads(scanned.stdout)["rows"]}
    assert rows == {"ann": (3, 9.0), "bob": (2, 6.0), "cho": (1, 2.5)}
    assert json.loads(holdfast("state", "get", "shop", "spent", "ann", "--json").stdout)["value"] == 9.0
    # It goes on: one more order of cho's is all that the second run reads.
    (folder / "orders" / "3.json").write_text('{"customer": "cho", "drink": "mocha", "amount": 4.0}\n')
    assert holdfast("run", "shop.py", "--no-rest").returncode == 0
    assert json.loads(holdfast("state", "get", "shop", "spent", "cho", "--json").stdout)["value"] == 6.5
    checked = on_terminal(["check", "shop.py", "--against", "checkpoint"], folder, home)
    assert checked.code == 0, checked.lines
    assert any(line.startswith("all state is kept") for line in checked.lines)
    assert checked.lines[-1] == "next: holdfast run shop.py"
