"""What `holdfast run` says when the driver that it has started, or would start, cannot run the job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Holdfast

ONE = "import holdfast as hf\n@hf.job(name='one', checkpoint='c')\ndef one(spark): ...\n"


def write(tmp_path: Path, text: str) -> str:
    (tmp_path / "job.py").write_text(text)
    return "job.py"


@pytest.mark.parametrize(
    ("text", "code", "fact"),
    [
        ("1 / 0", 2, "the job file raised an error while it was loaded"),
        (None, 3, "the job file does not exist"),
    ],
)
def test_its_driver_says_the_same_and_no_job_is_left(
    holdfast: Holdfast, tmp_path: Path, text: str | None, code: int, fact: str
) -> None:
    target = "job.py" if text is None else write(tmp_path, text)
    said = holdfast("run", target)
    assert said.returncode == code
    assert f"error: {fact} [HF-E" in said.stderr
    assert "Traceback" not in said.stderr
    assert json.loads(holdfast("list", "--json").stdout) == {"jobs": []}


@pytest.mark.parametrize(
    ("option", "fact"),
    [
        (["--set", "nonsense"], "a setting does not have the format KEY=VALUE"),
        (["--conf", "=x"], "a setting does not have the format KEY=VALUE"),
        (["--set", "nothing=1"], "unknown setting of the job"),
    ],
)
def test_a_bad_option_is_one_clear_error(
    holdfast: Holdfast, tmp_path: Path, option: list[str], fact: str
) -> None:
    said = holdfast("run", write(tmp_path, ONE), *option)
    assert said.returncode == 2
    assert f"error: {fact} [HF-E" in said.stderr


def test_no_java_is_told_before_anything_starts(holdfast: Holdfast, tmp_path: Path) -> None:
    said = holdfast("run", write(tmp_path, ONE), environ={"JAVA_HOME": str(tmp_path)})
    assert said.returncode == 2
    assert "error: JAVA_HOME is not the directory of a Java installation [HF-E" in said.stderr
    assert "pip install 'holdfast[java]'" in said.stderr
    assert "Traceback" not in said.stderr
