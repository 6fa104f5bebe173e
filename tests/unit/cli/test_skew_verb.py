from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import Holdfast

from golden import golden_on_disk
from holdfast.jobs.registry.registry import JobRecord, Registry, job_id
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
    return golden_on_disk("4.2/aggregate-memory", tmp_path / "checkpoint")


def sizes_of(checkpoint: Path) -> dict[int, int]:
    """Per partition the bytes of the newest snapshot and of the deltas since, from the directory alone."""
    newest = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdigit()) + 1
    found = {}
    for folder in (each for each in (checkpoint / "state" / "0").iterdir() if each.name.isdigit()):
        size = {each.name: each.stat().st_size for each in folder.iterdir() if each.is_file()}
        bases = [version for version in range(1, newest + 1) if f"{version}.snapshot" in size]
        base = max(bases, default=0)
        files = [f"{base}.snapshot"] if base else []
        files += [f"{version}.delta" for version in range(base + 1, newest + 1)]
        found[int(folder.name)] = sum(size[name] for name in files)
    return found


def test_the_shares_of_a_checkpoint_s_partitions(holdfast: Holdfast, checkpoint: Path) -> None:
    sizes = sizes_of(checkpoint)
    total, largest = sum(sizes.values()), max(sizes, key=lambda each: sizes[each])
    lines = holdfast("skew", str(checkpoint)).stdout.splitlines()
    assert (
        " ".join(lines[0].split()) == "OPERATOR KIND STATE PARTITIONS LARGEST MAX SHARE EVEN SHARE BYTES ROWS"
    )
    share, even = f"{100 * sizes[largest] / total:.1f}", f"{100 / len(sizes):.1f}"
    wanted = f"0 aggregate aggregation aggregate {len(sizes)} {largest} {share}% {even}% {total:,} –"
    assert " ".join(lines[1].split()) == wanted
    said = holdfast("skew", checkpoint.as_uri(), "--json")
    (store,) = json.loads(said.stdout)["stores"]
    assert store["partitions"] == [
        {"partition": partition, "bytes": sizes[partition], "rows": None} for partition in sorted(sizes)
    ]
    assert (store["bytes"], store["largest_share"]) == (total, sizes[largest] / total)


def test_a_name_is_a_job_and_a_path_is_not(holdfast: Holdfast, tmp_path: Path) -> None:
    said = holdfast("skew", "checkpoint")
    assert said.returncode == 3
    assert "unknown job 'checkpoint'" in said.stderr
    said = holdfast("skew", str(tmp_path / "nowhere"))
    assert said.returncode == 3
    assert "no checkpoint in this directory" in said.stderr


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
    assert "6,400, examined 100; error of the shares at most 15.0%" in shown
    assert ["60.0%", "1", "ann,", "3"] in [line.split() for line in shown.splitlines()]
    assert "largest partition: 1, with 70.0% of the rows (2 partitions, even share 50.0%)" in shown
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


@pytest.mark.slow
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
    assert "0 aggregate" in done.stdout
