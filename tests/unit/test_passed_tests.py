"""The record of tests of the long form that passed, and what the page of storages makes of it."""

from __future__ import annotations

from pathlib import Path

import passed_tests
import platform_catalogue
import pytest
from passed_tests import CHECKPOINTS, Pass, passes_in, results, written

REPORT = """\
<testsuites><testsuite timestamp="2026-03-05T21:00:00+00:00">
<testcase classname="tests.fault.test_a" name="test_x[s3]" time="61.4"/>
<testcase classname="tests.fault.test_a" name="test_x[hdfs]" time="3"><failure message="no"/></testcase>
<testcase classname="tests.fault.test_a" name="test_x[gs]" time="0"><skipped message="no server"/></testcase>
<testcase classname="tests.unit.checkpoints.test_every_spark" name="test_a_verb[3.5/a-memory-show]" time="1"/>
<testcase classname="tests.unit.checkpoints.test_every_spark" name="test_a_verb[3.5/b-memory-show]" time="2"/>
<testcase classname="tests.unit.checkpoints.test_every_spark" name="test_a_verb[4.0/a-memory-show]" time="2"/>
<testcase classname="tests.unit.checkpoints.test_every_spark" name="test_a_verb[4.0/b-memory-show]" time="2">
<error message="no"/></testcase>
<testcase classname="tests.unit.checkpoints.test_every_spark" name="test_a_verb[4.1/a-memory-show]" time="2"/>
<testcase time="0.1"/>
</testsuite></testsuites>
"""


def test_a_run_adds_what_passed_and_removes_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {f"{CHECKPOINTS}[{version}]": 2 for version in ("3.5", "4.0", "4.1")}
    monkeypatch.setattr(passed_tests, "_COUNTS", counts)
    (tmp_path / "run.xml").write_text(REPORT)
    passed, failed = results([tmp_path / "run.xml"], "abcdef01")
    bucket = Pass("tests/fault/test_a.py::test_x[s3]", "2026-03-05", "abcdef01", 61)
    version = Pass(f"{CHECKPOINTS}[3.5]", "2026-03-05", "abcdef01", 3)
    assert passed == [bucket, version]
    assert failed == {"tests/fault/test_a.py::test_x[hdfs]", f"{CHECKPOINTS}[4.0]"}

    earlier = [
        Pass(f"tests/fault/test_a.py::test_x[{name}]", "2026-01-01", "0", 1) for name in ("gs", "hdfs", "s3")
    ]
    page = written(f"# A page\n\nIts text.\n\n## {passed_tests.TITLE}\n", earlier, ())
    page = written(page, passed, failed)
    assert page.startswith(f"# A page\n\nIts text.\n\n## {passed_tests.TITLE}\n\n| Test |")
    assert list(passes_in(page).values()) == [earlier[0], bucket, version]
    assert written(page, (), ()) == page


def test_a_cell_without_a_pass_has_no_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    row = "| `kill -9`, the next owner, SIGTERM | {} | ✓* |"
    name = "tests/fault/test_guarded_query.py::test_one_owner_a_kill_and_an_orderly_stop[{}]"
    monkeypatch.setattr(platform_catalogue, "recorded", dict)
    assert row.format("· | · | ·") in platform_catalogue.platforms_page("")
    monkeypatch.setattr(platform_catalogue, "recorded", lambda: {name.format("4.0")})
    assert row.format("· | ✓ | ·") in platform_catalogue.platforms_page("")


def test_a_cell_with_several_tests_has_a_tick_if_all_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    row = "| Every operator: run, savepoint, restore, rescale | - | {} | · | - | - |"
    tests = {test for test in platform_catalogue.test_ids() if "test_an_operator_and_the_verbs[s3-" in test}
    assert len(tests) == 12
    monkeypatch.setattr(platform_catalogue, "recorded", lambda: tests)
    assert row.format("✓") in platform_catalogue.platforms_page("")
    tests.pop()
    assert row.format("·") in platform_catalogue.platforms_page("")


def test_every_test_of_the_record_exists() -> None:
    """A test that has another name by now has no row."""
    tests = {test for test in passed_tests.recorded() if not test.startswith(CHECKPOINTS)}
    files = {test.partition("::")[0] for test in tests}
    assert tests
    for file in files:
        source = (passed_tests.ROOT / file).read_text(encoding="utf-8")
        names = {test.partition("::")[2].partition("[")[0] for test in tests if test.startswith(f"{file}::")}
        assert [name for name in sorted(names) if f"def {name}(" not in source] == []
