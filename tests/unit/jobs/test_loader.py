from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import Invalid, NotFound
from holdfast.jobs.loader import load_job, split_target
from holdfast.jobs.processes.driver import sinks_of

JOB = "import holdfast as hf\n"
ONE = JOB + "@hf.job(name='one', checkpoint='c')\ndef first(spark): ...\n"
TWO = ONE + "@hf.job(name='two', checkpoint='d')\ndef second(spark): ...\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.py"


@pytest.mark.parametrize(
    ("target", "path", "name"),
    [
        ("a.py", "a.py", None),
        ("a.py:job", "a.py", "job"),
        ("dir:with/a.py", "dir:with/a.py", None),
        ("dir:with/a.py:coffee-shop", "dir:with/a.py", "coffee-shop"),
    ],
)
def test_a_target_is_a_file_and_perhaps_a_job(target: str, path: str, name: str | None) -> None:
    assert split_target(target) == (Path(path), name)


def test_the_only_job_needs_no_name(file: Path) -> None:
    file.write_text(ONE)
    assert load_job(str(file)).name == "one"


@pytest.mark.parametrize("wanted", ["two", "second"])
def test_a_job_is_named_by_its_name_or_its_function(file: Path, wanted: str) -> None:
    file.write_text(TWO)
    assert load_job(f"{file}:{wanted}").name == "two"


def test_one_job_under_two_names_is_one_job(file: Path) -> None:
    file.write_text(ONE + "again = first\n")
    assert load_job(str(file)).name == "one"


def test_modules_beside_the_file_can_be_imported(file: Path) -> None:
    (file.parent / "beside_the_job.py").write_text("NAME = 'from-beside'\n")
    file.write_text(
        JOB + "import beside_the_job\n@hf.job(name=beside_the_job.NAME, checkpoint='c')\ndef f(spark): ...\n"
    )
    assert load_job(str(file)).name == "from-beside"


def test_no_such_file(file: Path) -> None:
    with pytest.raises(NotFound) as caught:
        load_job(str(file))
    assert caught.value.where == str(file)


def test_not_a_python_file(tmp_path: Path) -> None:
    (tmp_path / "job.txt").write_text("")
    with pytest.raises(Invalid, match="not a Python file"):
        load_job(str(tmp_path / "job.txt"))
    with pytest.raises(Invalid, match="not a Python file"):
        load_job(str(tmp_path))


def test_a_syntax_error_names_its_line(file: Path) -> None:
    file.write_text("import holdfast as hf\n\ndef broken(:\n")
    with pytest.raises(Invalid, match="does not compile") as caught:
        load_job(str(file))
    assert caught.value.where == f"{file}:3"
    assert "def broken(:" in str(caught.value)


def test_an_error_while_it_loads_names_the_line_of_the_file(file: Path) -> None:
    file.write_text("import json\n\njson.loads('nonsense')\n")
    with pytest.raises(Invalid, match="raised an error") as caught:
        load_job(str(file))
    assert caught.value.where == f"{file}:3"
    assert str(caught.value.found).startswith("JSONDecodeError: ")


def test_a_missing_import_is_such_an_error(file: Path) -> None:
    file.write_text("import no_such_module_anywhere\n")
    with pytest.raises(Invalid, match="ModuleNotFoundError: No module named 'no_such_module_anywhere'"):
        load_job(str(file))


def test_a_bad_setting_is_told_as_it_is(file: Path) -> None:
    file.write_text(JOB + "@hf.job(name='bad name', checkpoint='c')\ndef f(spark): ...\n")
    with pytest.raises(Invalid, match="invalid job name"):
        load_job(str(file))


def test_no_job(file: Path) -> None:
    file.write_text("x = 1\n")
    with pytest.raises(Invalid, match="has no job"):
        load_job(str(file))


def test_two_jobs_and_none_named(file: Path) -> None:
    file.write_text(TWO)
    with pytest.raises(Invalid, match="several jobs") as caught:
        load_job(str(file))
    assert caught.value.found == "one, two"
    assert "pipeline.py:one" in str(caught.value.hint)


def test_a_job_that_is_not_there(file: Path) -> None:
    file.write_text(TWO)
    with pytest.raises(NotFound, match="one, two"):
        load_job(f"{file}:three")


@pytest.mark.parametrize(
    ("built", "found"), [([], "an empty list"), ((), "an empty tuple"), (None, "NoneType")]
)
def test_a_function_that_returns_no_query_is_refused(built: object, found: str) -> None:
    with pytest.raises(Invalid, match="the job's function did not return a query") as refused:
        sinks_of(built)
    assert (refused.value.code, refused.value.found) == ("HF-E2229", found)
