from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import Holdfast

from holdfast.jobs.registry import JobRecord, Registry, job_id
from holdfast.model import BatchProgress, HeavyKey, JobState, SkewReport

RECORD = JobRecord(
    "shop", job_id("shop"), "job.py", "file:///c", "delete", JobState.RUNNING, None, 0, 0, None, 1
)
REPORT = SkewReport(
    "orders",
    ("customer", "day"),
    rows=6400,
    looked_at=100,
    heavy=(HeavyKey(("ann", 3), 60, 0.6, 1), HeavyKey((None, 4), 10, 0.1, 0)),
    error=0.15,
    partitions=(0.3, 0.7),
    estimated=True,
    batch_id=4,
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    place = tmp_path / "checkpoint"
    for folder in ("commits", "offsets", "state/0/_metadata", "state/0/0", "state/0/1"):
        (place / folder).mkdir(parents=True)
    (place / "commits" / "0").write_text("v1\n{}")
    fields = {"operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"}}
    (place / "state" / "0" / "_metadata" / "metadata").write_text(f"v1\n{json.dumps(fields)}")
    (place / "state" / "0" / "0" / "1.delta").write_bytes(b"x" * 100)
    (place / "state" / "0" / "1" / "1.delta").write_bytes(b"x" * 300)
    return place


def test_the_shares_of_a_checkpoint_s_partitions(holdfast: Holdfast, checkpoint: Path) -> None:
    lines = holdfast("skew", str(checkpoint)).stdout.splitlines()
    assert " ".join(lines[0].split()) == "OPERATOR NAME STORE PARTITIONS BYTES ROWS LARGEST WITH EVEN"
    assert " ".join(lines[1].split()) == "0 stateStoreSave default 2 400 – 1 75.0 % 50.0 %"
    said = holdfast("skew", checkpoint.as_uri(), "--json")
    (store,) = json.loads(said.stdout)["stores"]
    assert store["partitions"] == [
        {"partition": 0, "bytes": 100, "rows": None},
        {"partition": 1, "bytes": 300, "rows": None},
    ]
    assert (store["bytes"], store["largest_share"], store["batch_id"]) == (400, 0.75, 0)


def test_a_name_is_a_job_and_a_path_is_not(holdfast: Holdfast, tmp_path: Path) -> None:
    said = holdfast("skew", "checkpoint")
    assert said.returncode == 3
    assert "there is no job 'checkpoint'" in said.stderr
    said = holdfast("skew", str(tmp_path / "nowhere"))
    assert said.returncode == 3
    assert "there is no checkpoint of a query" in said.stderr
    assert holdfast("skew", "s3a://bucket/checkpoint").returncode == 7


def batch(number: int, *skew: SkewReport) -> BatchProgress:
    return BatchProgress("shop", number, number, 6400, 100, None, (), skew=skew)


def test_what_a_job_watches_is_its_newest_batch_s(holdfast: Holdfast, home: Path) -> None:
    home.mkdir()
    registry = Registry(home / "registry.db")
    registry.start_job(RECORD)
    said = holdfast("skew", "shop")
    assert said.returncode == 3
    assert "hf.skew.watch" in said.stderr
    registry.add_batch("shop", 1, batch(3, SkewReport("orders", ("customer",), 1, 1, (), 0.0)))
    registry.add_batch("shop", 1, batch(4, REPORT))
    registry.add_batch("shop", 1, batch(5))
    shown = holdfast("skew", "shop").stdout
    assert "customer, day" in shown
    assert "6,400, looked at 100, shares are off by at most 15.0 %" in shown
    assert ["ann,", "3", "60.0", "%", "1"] in [line.split() for line in shown.splitlines()]
    assert "largest of 2 partitions: 1, with 70.0 % (even would be 50.0 %)" in shown
    found = json.loads(holdfast("skew", "shop", "--json").stdout)
    (watched,) = found["watched"]
    assert watched.pop("query") == "shop"
    assert SkewReport.from_dict(watched) == REPORT


def test_a_job_can_be_asked_from_python(home: Path) -> None:
    import holdfast as hf

    home.mkdir()
    registry = Registry(home / "registry.db")
    registry.start_job(RECORD)
    registry.add_batch("shop", 1, batch(4, REPORT))
    assert hf.skew.report("shop", home=home) == (REPORT,)
    with pytest.raises(hf.NotFound):
        hf.skew.report("nobody", home=home)


def test_looking_at_a_checkpoint_loads_nothing_heavy(checkpoint: Path) -> None:
    program = (
        "import sys\n"
        "sys.argv = ['holdfast', 'skew', sys.argv[1]]\n"
        "from holdfast.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = ('pyspark', 'pyarrow', 'pandas', 'numpy', 'py4j')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(checkpoint)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOLDFAST_HOME": str(checkpoint / "home")},
    )
    assert done.stderr.splitlines()[-1] == "[]"
    assert "75.0 %" in done.stdout
