"""Write the reference page of storages and Spark versions: what was run on each of them, by which test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from grid import is_proof_only
from passed_tests import recorded

STORAGES: Final = ("local disk", "S3", "HDFS", "Google Cloud Storage", "Azure")
VERSIONS: Final = ("3.5", "4.0", "4.1", "4.2")

_FALLBACK: Final = "tests/fault/test_fallback_elsewhere.py"
_ERASE: Final = "tests/services/test_erase_elsewhere.py"
_JOBS: Final = "tests/fault/test_jobs_elsewhere.py"
_MACHINES: Final = (
    "tests/fault/test_two_machines.py::test_the_second_machine_is_refused_and_follows_when_the_first_is_lost"
)
_KILLS: Final = "tests/fault/test_operation_kills.py"
_LEADERS: Final = "tests/fault/test_rescale_of_leaders.py::test_a_leader_lost_in_a_rescale"
_GUARD: Final = "tests/fault/test_guarded_query.py"
_OLDER: Final = "tests/fault/test_older_sparks.py"
_LOST: Final = f"{_FALLBACK}::test_after_a_kill_lost_batches_run_again"


@dataclass(frozen=True, slots=True)
class CapabilityRow:
    """A capability, and the tests that ran it in each column.

    Attributes:
        title: The capability, in Markdown.
        tests: The ids of the tests, by column.
    """

    title: str
    tests: Mapping[str, str | tuple[str, ...]]

    def ids(self, column: str) -> tuple[str, ...]:
        """Return the ids of a column's tests."""
        tests = self.tests.get(column, ())
        return (tests,) if isinstance(tests, str) else tests


_CONTRACT: Final = "tests/contract/test_storage_contract.py"
_ELECTION: Final = "tests/contract/test_lease_election.py::test_one_leads_and_the_others_wait"
# The name of each remote storage in the parameters of a test.
_NAMES: Final = {"S3": "s3", "HDFS": "webhdfs", "Google Cloud Storage": "gs", "Azure": "abfss"}
# Each operator, and the state store of its checkpoint.
_OPERATORS: Final = (
    *(
        f"{operator}-{provider}"
        for operator in ("aggregate", "join", "window", "session", "dedupe")
        for provider in ("memory", "rocksdb2")
    ),
    "state-rocksdb2",
    "keyed-rocksdb2",
)
# `make services` does not install the emulators.
_EMULATED: Final = ("Google Cloud Storage", "Azure")


def _elsewhere(test: str, local: str | None = None) -> dict[str, str]:
    """Return the ids of a test on each remote storage, which replaces `*`, and of one on a local disk."""
    own = {} if local is None else {"local disk": local}
    return own | {column: test.replace("*", name) for column, name in _NAMES.items()}


def _installed(test: str) -> dict[str, str]:
    """Return the ids of a test of `hf.guard` on each version of Spark."""
    names = {version: version for version in VERSIONS[:-1]} | {"4.2": "installed"}
    return {version: f"{_GUARD}::{test}[{name}]" for version, name in names.items()}


def _operators(*names: str) -> dict[str, tuple[str, ...]]:
    """Return the ids of the tests of operators on S3 and HDFS."""
    test = "tests/services/test_operators_elsewhere.py::test_an_operator_and_the_verbs"
    return {
        column: tuple(f"{test}[{storage}-{name}]" for name in names)
        for column, storage in (("S3", "s3"), ("HDFS", "hdfs"))
    }


_TEXT: Final = """\
A tick is a test that passed; the tests are below each table. CI runs those with a star on each change, and
[Places](../proof/places.md) has the day and the commit of the others. A dot is a test of `make proof` that is
not recorded as passed, and a cell with several tests has a tick if all of them passed. A cell
with `-` has no test.

- S3 is the gateway versitygw, HDFS has one NameNode and one DataNode and is reached over HTTP, Google Cloud
  Storage is the emulator fake-gcs-server, and Azure the emulator Azurite. No vendor's store was run.
- `make services` installs the gateway and HDFS, `make services-clouds` the emulators, and
  `make services-sparks` the older versions of Spark.
- "A query of Spark" runs in real Spark. In the other tests a scripted driver stands for it.
- Databricks, EMR, Glue and Dataproc: [what they have](../guides/platforms.md). Nothing was run on them.
"""

_STORAGE_ROWS: Final = (
    CapabilityRow(
        "Files: read, list, write once, replace, copy",
        _elsewhere(
            f"{_CONTRACT}::test_a_file_is_not_replaced_unless_asked[*]",
            f"{_CONTRACT}::test_a_file_is_not_replaced_unless_asked[local]",
        ),
    ),
    CapabilityRow(
        "Leases: one owner, takeover after its end",
        _elsewhere(f"{_ELECTION}[*]", f"{_ELECTION}[local]"),
    ),
    CapabilityRow(
        "Two supervisors, the first killed",
        _elsewhere(f"{_MACHINES}[*]", "tests/fault/test_takeover.py::test_a_killed_leader[lease]"),
    ),
    CapabilityRow(
        "Fallback of a damaged checkpoint",
        _elsewhere(
            f"{_FALLBACK}::test_it_goes_back_to_the_newest_whole_batch_in_a_successor_and_again[*]",
            "tests/fault/test_fallback.py::test_it_goes_back_to_the_newest_batch_that_is_whole",
        ),
    ),
    CapabilityRow(
        "Fallback of a query of Spark, its supervisor killed",
        {
            "local disk": "tests/fault/test_fallback.py::test_lost_batches_run_again_with_the_same_input_and"
            "_nothing_is_written_twice",
            "S3": f"{_LOST}_in_a_bucket_and_nothing_is_written_twice",
            "HDFS": f"{_LOST}_on_hdfs_and_nothing_is_written_twice",
            "Google Cloud Storage": f"{_LOST}_on_google_cloud_storage_and_nothing_is_written_twice",
        },
    ),
    CapabilityRow(
        "Rescale of a running job, its supervisor killed",
        _elsewhere(
            f"{_KILLS}::test_a_supervisor_killed_in_a_rescale_on_remote_storage[*-made]",
            f"{_KILLS}::test_a_supervisor_killed_in_a_rescale[0]",
        ),
    ),
    CapabilityRow(
        "Rescale of a running job with two supervisors, its leader killed",
        {
            "local disk": f"{_LEADERS}_on_a_shared_disk[decided-SIGKILL]",
            "S3": f"{_LEADERS}_in_a_bucket[decided-SIGKILL]",
            "HDFS": f"{_LEADERS}_on_hdfs[decided-SIGKILL]",
        },
    ),
    CapabilityRow(
        "Rescale of a running query of Spark",
        {
            "local disk": "tests/fault/test_autoscale.py::test_a_job_with_too_many_partitions_gets_fewer",
            "S3": f"{_JOBS}::test_in_a_bucket_it_is_saved_on_a_schedule_and_goes_on_after_a_kill_and_in_other"
            "_partitions",
            "HDFS": f"{_JOBS}::test_on_hdfs_a_running_job_gets_other_partitions_and_goes_on_after_a_kill",
        },
    ),
    CapabilityRow(
        "`state erase --checkpoint`",
        _elsewhere(
            f"{_ERASE}::test_nothing_of_it_is_left_there[*-4.2/aggregate-memory]",
            "tests/unit/at_rest/test_erase_checkpoint.py::test_nothing_of_it_is_left_there_either[4.2/aggregate-memory]",
        ),
    ),
    CapabilityRow("Aggregation: run, savepoint, restore, rescale", _operators("aggregate-memory")),
    CapabilityRow("Every operator: run, savepoint, restore, rescale", _operators(*_OPERATORS)),
    CapabilityRow(
        "`hf.guard`: a kill and an orderly stop",
        {
            "local disk": f"{_GUARD}::test_one_owner_a_kill_and_an_orderly_stop[installed]",
            "S3": f"{_GUARD}::test_in_a_bucket_the_lease_beside_the_checkpoint_says_whose_it_is",
            "HDFS": f"{_GUARD}::test_on_hdfs_the_lease_beside_the_checkpoint_says_whose_it_is",
        },
    ),
    CapabilityRow(
        "`hf.committed_files`",
        {
            "local disk": "tests/spark/test_sinks.py::test_the_sink_log_names_what_spark_reads",
            "S3": "tests/services/test_tables_elsewhere.py::test_in_a_bucket",
            "HDFS": "tests/services/test_tables_elsewhere.py::test_on_hdfs",
        },
    ),
)

_VERSION_ROWS: Final = (
    CapabilityRow(
        "`kill -9`, the next owner, SIGTERM", _installed("test_one_owner_a_kill_and_an_orderly_stop")
    ),
    CapabilityRow(
        "A batch longer than `grace` is interrupted",
        _installed("test_what_takes_longer_than_its_grace_is_broken_off_and_done_again"),
    ),
    CapabilityRow(
        "SIGTERM to the JVM of `spark-submit`",
        _installed("test_sigterm_to_the_jvm_of_spark_submit_is_orderly"),
    ),
    CapabilityRow(
        "A frozen owner has no JVM after its lease",
        _installed("test_a_frozen_owner_has_no_jvm_left_when_its_lease_is_over"),
    ),
    CapabilityRow(
        "A damaged checkpoint is refused",
        _installed("test_a_damaged_checkpoint_is_not_built_on"),
    ),
    CapabilityRow(
        "Metrics, savepoints, `list`, `stop`",
        {
            version: f"{_OLDER}::test_metrics_savepoints_and_a_stop_from_outside[{version}]"
            for version in VERSIONS[:-1]
        }
        | {
            "4.2": "tests/spark/test_recorded_queries.py::"
            "test_it_is_listed_measured_and_stopped_between_two_batches[guard-guarded]"
        },
    ),
    CapabilityRow(
        "What the version lacks is refused by name",
        {
            version: f"{_OLDER}::test_what_a_version_lacks_is_refused_by_name[{version}]"
            for version in VERSIONS[:-1]
        },
    ),
)


def platforms_page(note: str) -> str:
    """Return the page."""
    parts = ["# Storages, Spark versions and tests\n", note, _TEXT]
    for title, columns, rows in (
        ("Storage", STORAGES, _STORAGE_ROWS),
        ("`hf.guard` and `hf.watch` by Spark version", VERSIONS, _VERSION_ROWS),
    ):
        parts.append(f"## {title}\n")
        parts.append(f"| Capability | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
        parts += [f"| {row.title} | {' | '.join(_cell(row, column) for column in columns)} |" for row in rows]
        parts.append("\n| Capability | Tests |\n|---|---|")
        parts += [f"| {row.title} | {', '.join(_named(row, columns))} |" for row in rows]
        parts.append("")
    return "\n".join(parts)


def test_ids() -> list[str]:
    """Return the ids of all tests on the page."""
    rows = (*_STORAGE_ROWS, *_VERSION_ROWS)
    return sorted({test for row in rows for column in row.tests for test in row.ids(column)})


def _cell(row: CapabilityRow, column: str) -> str:
    tests = row.ids(column)
    if not tests:
        return "-"
    if column not in _EMULATED and not any(map(is_proof_only, tests)):
        return "✓*"
    return "✓" if all(test in recorded() for test in tests) else "·"


def _named(row: CapabilityRow, columns: tuple[str, ...]) -> list[str]:
    """Return the names of a row's tests without their parameters, which are those of the columns."""
    names = (test.partition("[")[0] for column in columns for test in row.ids(column))
    return [f"`{name}`" for name in dict.fromkeys(names)]
