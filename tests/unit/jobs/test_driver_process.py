from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess

TELL = "import json, os, sys; open(sys.argv[1], 'w').write(json.dumps(dict(os.environ)))"


def test_a_driver_is_not_handed_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", "a-token-that-is-long-enough")
    monkeypatch.setenv("AWS_PROFILE", "shop")
    environment = tmp_path / "environment.json"
    spec = DriverSpec(target=str(tmp_path / "job.py"), home=str(tmp_path))
    process = DriverProcess.start(spec, (sys.executable, "-c", TELL, str(environment)))
    assert process.reap() == (None, 0)
    given = json.loads(environment.read_text())
    assert "a-token-that-is-long-enough" not in environment.read_text()
    # What the job itself needs reaches it.
    assert given["AWS_PROFILE"] == "shop"


def test_a_driver_that_cannot_be_started_leaves_no_descriptor_open(tmp_path: Path) -> None:
    spec = DriverSpec(target=str(tmp_path / "job.py"), home=str(tmp_path))
    before = sorted(Path("/proc/self/fd").iterdir())
    with pytest.raises(FileNotFoundError):
        DriverProcess.start(spec, (str(tmp_path / "nothing"),))
    assert sorted(Path("/proc/self/fd").iterdir()) == before
