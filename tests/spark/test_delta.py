from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Holdfast
from required import missing_service

from holdfast.engine.session.jars import has_build

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not has_build("delta"), reason="no Delta build works with this Spark"),
]

JOB = """
import holdfast as hf

@hf.job(name="rows", checkpoint="checkpoint", trigger=hf.available_now(), extras=["delta"],
        restart=hf.no_restart(), conf={"spark.ui.enabled": "false"})
def rows(spark, table="./table"):
    return hf.sink(spark.readStream.schema("n long").json("in")).delta(table)
"""


def fetched_jars(home: Path) -> bool:
    """Whether Spark could fetch Delta's jars, by the logs of the drivers."""
    logs = home.glob("jobs/rows/driver-*.log")
    return not any("unresolved dependency: io.delta" in log.read_text() for log in logs)


def test_rows_reach_a_delta_table_once(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "in").mkdir()
    for number in range(2):
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"n": {number}}}\n')
        said = holdfast("run", "job.py", timeout=300)
        if said.returncode != 0 and not fetched_jars(home):
            missing_service("Delta's jars cannot be fetched from here")
        assert said.returncode == 0, said.stderr
        assert "exactly once" in said.stderr
    log = sorted((tmp_path / "table" / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for file in log for line in file.read_text().splitlines()]
    added = [json.loads(each["add"]["stats"])["numRecords"] for each in actions if "add" in each]
    assert sum(added) == 2
    assert [each["txn"]["version"] for each in actions if "txn" in each] == [0, 1]


def test_without_the_extra_the_hint_names_it(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB.replace('extras=["delta"],', ""))
    (tmp_path / "in").mkdir()
    said = holdfast("run", "job.py", timeout=300)
    assert said.returncode == 7
    assert "extras=['delta']" in said.stderr
    assert "Traceback" not in said.stderr
