"""What lint is given, comments that suppress, and the configuration of a project."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

import holdfast as hf
from golden import golden_on_disk
from holdfast.advice.findings import FindingEvidence, Severity
from holdfast.errors import Corrupt, HoldfastError, Invalid, NotFound

JOB = 'events = spark.readStream.table("events")\ncounts = events.groupBy("country").count()'


def job(folder: Path, text: str) -> Path:
    file = folder / "job.py"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_is_reported_with_its_place(tmp_path: Path) -> None:
    report = hf.lint(job(tmp_path, JOB))
    (finding,) = report.findings
    assert (finding.rule, finding.line, finding.column) == ("HF102", 2, 36)
    assert (finding.severity, finding.evidence) == (Severity.WARNING, (FindingEvidence.SOURCE,))
    assert (report.errors, report.warnings, report.notes) == (0, 1, 0)
    assert pickle.loads(pickle.dumps(report)) == report


def test_a_checkpoint_is_reported_with_its_address(tmp_path: Path) -> None:
    place = golden_on_disk("4.2/aggregate-rocksdb", tmp_path / "ck")
    for address in (str(place), place.as_uri()):
        report = hf.lint(address)
        assert [(finding.rule, finding.line) for finding in report.findings] == [
            ("HF308", None),
            ("HF310", None),
        ]
        assert {finding.place for finding in report.findings} == {place.as_uri()}


@pytest.mark.parametrize(
    ("planned", "written", "lost"),
    [
        ((), ("0",), "batch 0"),  # a new checkpoint, and the directory that was there before
        ((), ("0", "1", "9.compact", "10"), "batches 0 to 10"),
        ((3, 4), ("9.compact", "10", ".11.tmp"), "batches 5 to 10"),
        ((3, 4), ("3", "4"), None),
        ((4,), ("3",), None),  # the sink has not had the batch that was begun
        ((3, 4), (), None),
        ((), None, None),
    ],
)
@pytest.mark.parametrize(
    "writer",
    [
        'writeStream.format("parquet").option("checkpointLocation", "CK").start("OUT")',
        'writeStream.format("json").option("path", "OUT").option("checkpointLocation", "CK").start()',
    ],
)
def test_output_that_would_be_lost_is_an_error(
    tmp_path: Path, planned: tuple[int, ...], written: tuple[str, ...] | None, lost: str | None, writer: str
) -> None:
    if planned:
        (tmp_path / "CK" / "offsets").mkdir(parents=True)
    for batch_id in planned:
        (tmp_path / "CK" / "offsets" / str(batch_id)).touch()
    if written is not None:
        (tmp_path / "OUT" / "_spark_metadata").mkdir(parents=True)
    for name in written or ():
        (tmp_path / "OUT" / "_spark_metadata" / name).touch()
    code = f'events = spark.readStream.table("events")\nevents.{writer}'
    for name in ("CK", "OUT"):
        code = code.replace(name, str(tmp_path / name))
    findings = [finding for finding in hf.lint(job(tmp_path, code)).findings if finding.rule == "HF413"]
    assert [finding.evidence for finding in findings] == ([] if lost is None else [(FindingEvidence.FACTS,)])
    assert all(finding.line == 2 and finding.seen.endswith(f": {lost} would be lost") for finding in findings)


@pytest.mark.parametrize(
    ("committed", "written", "missing"),
    [
        (2, ("0", "1", "2"), None),
        (2, ("0", "1", "2", "3"), None),
        (2, ("0", "2"), 1),
        (5, (), 0),
        (10, ("9.compact", "10"), None),
        (11, ("9.compact", "11"), 10),
        (2, ("0", "2", "9"), None),
    ],
)
def test_a_sink_log_that_lacks_a_batch_is_an_error(
    tmp_path: Path, committed: int, written: tuple[str, ...], missing: int | None
) -> None:
    """The last case is HF413: the table is ahead of the checkpoint."""
    for folder in ("CK/offsets", "CK/commits", "OUT/_spark_metadata"):
        (tmp_path / folder).mkdir(parents=True)
    for batch_id in range(committed + 1):
        (tmp_path / "CK" / "offsets" / str(batch_id)).touch()
        (tmp_path / "CK" / "commits" / str(batch_id)).touch()
    for name in written:
        (tmp_path / "OUT" / "_spark_metadata" / name).touch()
    code = (
        'events = spark.readStream.table("events")\n'
        f'events.writeStream.format("parquet").option("checkpointLocation", "{tmp_path}/CK")'
        f'.start("{tmp_path}/OUT")'
    )
    findings = [finding for finding in hf.lint(job(tmp_path, code)).findings if finding.rule == "HF414"]
    assert [f"no entry for batch {missing}," in finding.seen for finding in findings] == [True] * (
        missing is not None
    )


@pytest.mark.parametrize(
    ("comment", "rules"),
    [
        ("# holdfast: ignore[HF102] 40 countries", []),
        ("# holdfast: ignore[HF101, HF102] 40 countries", []),
        ("#holdfast:ignore[hf102]   40 countries", []),
        ("# holdfast: ignore[HF102]", ["HF001", "HF102"]),
        ("# holdfast: ignore[HF101] 40 countries", ["HF102"]),
        ("# holdfast: ignore[HF999] 40 countries", ["HF001", "HF102"]),
        ("# holdfast: ignore 40 countries", ["HF001", "HF102"]),
        ("# the rule HF102 holds", ["HF102"]),
    ],
)
def test_a_comment_suppresses_with_a_reason(tmp_path: Path, comment: str, rules: list[str]) -> None:
    report = hf.lint(job(tmp_path, f"{JOB}  {comment}\n"))
    assert sorted(finding.rule for finding in report.counted) == rules
    if not rules:
        assert [finding.suppressed for finding in report.findings] == ["40 countries"]
        assert report.warnings == 0


def test_a_text_is_no_comment(tmp_path: Path) -> None:
    report = hf.lint(job(tmp_path, f'{JOB}; note = "# holdfast: ignore[HF102] no"\n'))
    assert [finding.rule for finding in report.counted] == ["HF102"]


def test_the_nearest_configuration_holds(tmp_path: Path) -> None:
    inner = tmp_path / "jobs"
    inner.mkdir()
    file = job(inner, JOB)
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast.lint]\nseverity = { HF102 = "error" }\n')
    assert hf.lint(file).errors == 1
    (inner / "pyproject.toml").write_text('[tool.holdfast.lint]\ndisable = ["HF102"]\n')
    report = hf.lint(file)
    assert (report.findings, report.disabled) == ((), ("HF102",))
    (inner / "pyproject.toml").write_text("[project]\nname = 'jobs'\n")
    assert hf.lint(file).warnings == 1


def test_a_checkpoint_goes_by_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = golden_on_disk("4.2/aggregate-rocksdb", tmp_path / "ck")
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast.lint]\ndisable = ["HF308", "HF310"]\n')
    monkeypatch.chdir(tmp_path)
    assert hf.lint(place).findings == ()


@pytest.mark.parametrize(
    "text",
    [
        "[tool.holdfast.lint",
        "[tool.holdfast]\nlint = 3",
        '[tool.holdfast.lint]\ndisable = "HF102"',
        '[tool.holdfast.lint]\ndisable = ["HF999"]',
        '[tool.holdfast.lint]\nignore = ["HF102"]',
        '[tool.holdfast.lint]\nseverity = { HF102 = "fatal" }',
        '[tool.holdfast.lint]\nseverity = { HF999 = "error" }',
        "[tool.holdfast.lint]\nseverity = 3",
    ],
)
def test_a_wrong_configuration_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(Invalid) as caught:
        hf.lint(job(tmp_path, JOB))
    assert str(tmp_path / "pyproject.toml") in (caught.value.where or "")
    assert caught.value.hint


def _nothing(folder: Path) -> Path:
    return folder / "nowhere.py"


def _no_checkpoint(folder: Path) -> Path:
    return folder / "nowhere"


def _empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


def _foreign(folder: Path) -> Path:
    (folder / "src").mkdir()
    job(folder / "src", JOB)
    return folder / "src"


def _called_like_code(folder: Path) -> Path:
    (folder / "jobs.py").mkdir()
    return folder / "jobs.py"


def _text(folder: Path) -> Path:
    (folder / "notes.txt").write_text(JOB)
    return folder / "notes.txt"


def _latin(folder: Path) -> Path:
    (folder / "job.py").write_bytes("name = 'Café'".encode("latin-1"))
    return folder / "job.py"


def _nulls(folder: Path) -> Path:
    return job(folder, "a = 1\0")


def _broken(folder: Path) -> Path:
    return job(folder, f"{JOB}\ndef f(:\n")


def _tabs(folder: Path) -> Path:
    return job(folder, "if a:\n\tb\n        c\n")


def _deep(folder: Path) -> Path:
    return job(folder, f"a = {'(' * 500}1{')' * 500}")


def _large(folder: Path) -> Path:
    return job(folder, "#" * (5 << 20))


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.py")
    return folder / "pipe.py"


def _damaged(folder: Path) -> Path:
    golden_on_disk("4.2/aggregate-rocksdb", folder / "ck")
    (folder / "ck" / "commits" / "11").write_text("nonsense")
    return folder / "ck"


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (_nothing, NotFound),
        (_no_checkpoint, NotFound),
        (_empty, NotFound),
        (_foreign, NotFound),
        (_called_like_code, NotFound),
        (_text, Invalid),
        (_latin, Invalid),
        (_nulls, Invalid),
        (_broken, Invalid),
        (_tabs, Invalid),
        (_deep, Invalid),
        (_large, Invalid),
        (_pipe, Invalid),
        (_damaged, Corrupt),
    ],
)
def test_what_is_neither_is_answered_by_one_message(
    tmp_path: Path, make: object, kind: type[HoldfastError]
) -> None:
    assert callable(make)
    with pytest.raises(kind) as caught:
        hf.lint(make(tmp_path))
    assert caught.value.where
    assert caught.value.hint


def test_a_mistake_in_code_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        hf.lint(_broken(tmp_path))
    assert (caught.value.where or "").endswith("job.py:3")


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_bytes(b"\xef\xbb\xbf" + JOB.encode())
    assert hf.lint(file).warnings == 1
