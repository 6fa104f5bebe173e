"""`holdfast run --dry-run`: what would become of each setting, and nothing is started."""

from __future__ import annotations

import json
from pathlib import Path

from command import Holdfast

JOB = """\
import holdfast as hf


@hf.job(name="shop", checkpoint="checkpoint", alerts=hf.Alerts(skew="off", state_size="1 GB"))
def shop(spark):
    raise AssertionError("it was started")
"""


def test_each_setting_is_explained_and_nothing_starts(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(JOB)
    ha = ("--ha", str(tmp_path / "elections"), "--lease", "20s")
    said = holdfast("run", "shop.py", "--dry-run", "--json", "--set", "alerts.late_rows=0.2", *ha)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["leading"] == {"address": (tmp_path / "elections").as_uri(), "lease_ms": 20_000}
    assert found["goes_on"] == "no, it starts anew"
    knobs = {each["name"]: (each["value"], each["becomes"]) for each in found["knobs"]}
    assert knobs["alerts.skew"] == ("not set", "no alert")
    assert knobs["alerts.state_size"] == ("1 GiB", "an alert")
    assert knobs["alerts.late_rows"] == ("0.2", "an alert")
    assert knobs["alerts.webhook"] == ("not set", "is not told")
    assert not (tmp_path / "elections").exists()
    assert not (tmp_path / "checkpoint").exists()
    shown = holdfast("run", "shop.py", "--dry-run", *ha).stdout
    assert "the supervisor that leads is elected at" in shown
    assert "for 20s at a time" in shown
