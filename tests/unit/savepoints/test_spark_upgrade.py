"""Whether another Spark goes on, by the files of checkpoints that each real Spark wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from catalogs import Hands

from golden import golden, golden_files, golden_on_disk, golden_with_confs
from holdfast.checkpoints.naming import BACKPORTED, PINNED, RELEASES, pinned_by, written_by
from holdfast.errors import Invalid, NotFound, Unsupported
from holdfast.formats.logs.batch_logs import PROVIDER, SHUFFLE_PARTITIONS, OffsetLog, parse_offsets
from holdfast.savepoints import spark_upgrade
from holdfast.savepoints.spark_upgrade import check_spark, filled_settings
from holdfast.storage.local import LocalStorage

OF_EACH = [f"{release}/aggregate-memory" for release in RELEASES]


def confs_of(name: str) -> dict[str, str]:
    files = golden_files(name)
    newest = max((path for path in files if path[:8] == "offsets/" and path[8:].isdecimal()), key=len)
    return dict(parse_offsets(files[newest], newest).confs)


@pytest.mark.parametrize("name", OF_EACH)
def test_the_settings_that_each_release_pins_are_those_of_its_own_checkpoint(name: str) -> None:
    release = name.split("/", maxsplit=1)[0]
    assert set(confs_of(name)) == {setting.name for setting in pinned_by(release)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("3.4/aggregate-memory", ("3.4", "3.5")),
        ("3.5/aggregate-memory", ("3.5",)),
        ("4.0/aggregate-memory", ("4.0", "4.1")),
        ("4.1/aggregate-memory", ("4.0", "4.1")),
        ("4.2/aggregate-memory", ("4.2",)),
        ("4.3/aggregate-memory", ("4.3",)),
    ],
)
def test_a_release_is_told_by_what_it_pins(name: str, expected: tuple[str, ...]) -> None:
    assert written_by(confs_of(name)) == expected


def test_what_holdfast_has_noted_goes_before() -> None:
    assert written_by(confs_of("4.1/aggregate-memory"), "4.1.3") == ("4.1",)


def test_a_checkpoint_that_began_before_the_oldest_known_release() -> None:
    """Settings of Spark 3.2: two fewer than 3.4 pins."""
    confs = {setting.name: "1" for setting in PINNED if setting.since <= "3.2"}
    assert written_by(confs) == RELEASES
    assert [setting.value for setting in filled_settings(confs, "3.5", 4)] == ["false", "true"]


def test_settings_of_a_release_and_of_a_later_one_tell_the_later(tmp_path: Path) -> None:
    """One of Spark 4.3 in a log without those of 4.2: nothing older may go on."""
    confs = {**confs_of("4.0/aggregate-memory"), PINNED[-1].name: "false"}
    assert written_by(confs) == ("4.3",)


def test_from_3_5_to_4_2(tmp_path: Path) -> None:
    catalog = LocalStorage(tmp_path / "catalog")
    taken = Hands().take(golden("3.5/aggregate-rocksdb"), catalog, 11)
    report = check_spark(taken.uri, "4.2.1")
    assert (report.verdict, report.exit_code, report.tested) == ("goes on", 0, True)
    assert (report.written_by, report.spark, report.batch_id) == (("3.5",), "4.2", 11)
    assert report.operators == ("aggregate",)
    assert {
        setting.name.rpartition(".")[0].rpartition(".")[2]: setting.value for setting in report.filled
    } == {
        "stateStore": "unsaferow",
        "rowChecksum": "false",
        "rocksdb": "1",
        "queryEvolution": "false",
        "protobufExtensions": "false",
    }
    assert report.pinned[PROVIDER].endswith("RocksDBStateStoreProvider")
    assert {finding.reference for finding in report.findings} >= {"SPARK-45178", "SPARK-48931", "SPARK-55058"}
    assert "SPARK-51972" not in {finding.reference for finding in report.findings}  # of state format 2 alone
    assert any("take a savepoint" in finding.text for finding in report.findings)


def test_the_same_release_has_nothing_to_say(tmp_path: Path) -> None:
    report = check_spark(golden_on_disk("4.3/join-format2", tmp_path / "ck"), "4.3")
    assert (report.verdict, report.findings, report.filled) == ("goes on", (), ())


def test_a_query_without_state_hears_of_nothing_that_concerns_state(tmp_path: Path) -> None:
    report = check_spark(golden_on_disk("3.5/stateless-memory", tmp_path / "ck"), "4.3")
    assert (report.provider, report.state_format, report.operators) == (None, None, ())
    references = {finding.reference for finding in report.findings}
    assert "SPARK-48931" not in references
    assert "Spark's migration guide, 4.0 to 4.1" in references


@pytest.mark.parametrize(("name", "target"), [("4.0/state-format2", "3.5"), ("4.3/aggregate-memory", "4.2")])
def test_an_older_release_does_not_go_on(name: str, target: str, tmp_path: Path) -> None:
    report = check_spark(golden_on_disk(name, tmp_path / "ck"), target)
    assert (report.verdict, report.exit_code) == ("fails", 2)
    (finding,) = report.findings
    assert f"Spark {target} is older" in finding.text


def test_the_checksums_of_4_1(tmp_path: Path) -> None:
    place = golden_on_disk("3.5/windowed-memory", tmp_path / "ck")
    report = check_spark(place, "4.1")
    assert (report.verdict, report.exit_code) == ("doubtful", 1)
    assert report.findings[0].reference == "SPARK-56461"
    of_format_2 = golden_on_disk("4.0/windowed-format2", tmp_path / "second")
    assert check_spark(of_format_2, "4.1").verdict == "goes on"


def test_partitions_that_the_offset_log_does_not_fix(tmp_path: Path) -> None:
    """As Spark 4.2 leaves a query with named sources: with fewer partitions it would lose state."""
    later = {setting.name for setting in PINNED if setting.since == "4.3"}
    place = golden_without({*later, SHUFFLE_PARTITIONS}, tmp_path / "ck")
    report = check_spark(place, "4.2")
    assert (report.written_by, report.verdict) == (("4.2",), "doubtful")
    assert (report.findings[0].hint or "").startswith("set spark.sql.shuffle.partitions=2;")
    assert {setting.name: setting.value for setting in report.filled} == {SHUFFLE_PARTITIONS: None}
    newer = check_spark(place, "4.3")
    assert newer.verdict == "goes on"
    assert {setting.name: setting.value for setting in newer.filled}[SHUFFLE_PARTITIONS] == "2"
    fixed = golden_without(later, tmp_path / "fixed")
    assert check_spark(fixed, "4.2").findings == ()


def golden_without(names: set[str], place: Path) -> Path:
    """Return one with named sources whose newest batch does not fix some settings."""
    golden_on_disk("4.3/aggregate-named", place)
    newest = max(
        (file for file in (place / "offsets").iterdir() if file.name.isdecimal()), key=lambda f: int(f.name)
    )
    log = parse_offsets(newest.read_bytes(), newest.name)
    confs = {name: value for name, value in log.confs.items() if name not in names}
    newest.write_bytes(OffsetLog(log.version, {**(log.fields or {}), "conf": confs}, log.offsets).render())
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    return place


def test_holdfasts_operators_need_a_spark_that_it_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a Spark before Holdfast's range could have written it."""
    monkeypatch.setattr(spark_upgrade, "written_by", lambda confs, noted: ("4.0",))
    report = check_spark(golden_on_disk("4.2/keyed-format2", tmp_path / "ck"), "4.1")
    assert report.verdict == "fails"
    assert "is a Holdfast operator, which requires Spark 4.2 or newer" in report.findings[0].text


def test_a_batch_that_would_run_again_is_told(tmp_path: Path) -> None:
    place = golden_on_disk("4.0/aggregate-memory", tmp_path / "ck")
    (place / "commits" / "11").unlink()
    report = check_spark(place, "4.2")
    assert report.batch_id == 10
    assert "batch 11 is planned but not committed" in next(
        finding.text for finding in report.findings if finding.what == "batch"
    )


def test_another_packages_provider_is_refused_by_name(tmp_path: Path) -> None:
    files = golden_with_confs(
        "4.0/aggregate-memory", **{"stateStore.providerClass": "com.example.Store"}
    ).files
    for path, data in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    with pytest.raises(Unsupported) as refused:
        check_spark(tmp_path, "4.2")
    assert refused.value.found == "com.example.Store"


@pytest.mark.parametrize("version", ["", "4", "four.two", "4.2.1.0", "-4.2"])
def test_what_is_no_version(version: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid):
        check_spark(tmp_path, version)


@pytest.mark.parametrize("version", ["3.3", "5.0"])
def test_a_release_of_which_nothing_is_known(version: str, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="unsupported Spark version"):
        check_spark(tmp_path, version)


def test_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        check_spark(tmp_path, "4.2")


def test_backported_settings_are_pinned_ones() -> None:
    assert {setting.name for setting in PINNED} >= BACKPORTED
