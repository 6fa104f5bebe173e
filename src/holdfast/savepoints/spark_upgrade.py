"""Report whether a different Spark can continue with a checkpoint.

A checkpoint does not name the Spark that wrote it. The settings that it pins show it: each release pins more
of them than the one before (`checkpoints.naming`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from holdfast.checkpoints.checkpoint import CheckpointReport, unfixed_partitions
from holdfast.checkpoints.naming import PINNED, RELEASES, pinned_by, written_by
from holdfast.checkpoints.record import find_record
from holdfast.config.spark_defaults import EXTERNAL_PROVIDERS
from holdfast.config.spark_versions import OLDEST, TOO_NEW, UNFIXED_PARTITIONS, minor
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.files.snapshot import parse_snapshot
from holdfast.formats.logs.batch_logs import ENCODING, SHUFFLE_PARTITIONS
from holdfast.formats.operators import KEYED_WORDS
from holdfast.formats.providers import PROVIDERS, check_read, external_state, provider_class
from holdfast.json_shapes import JsonShape, in_json
from holdfast.layout import FileKind
from holdfast.model import Effect
from holdfast.savepoints.dry_run_checkpoint import DryRunCheckpoint, open_saved
from holdfast.storage.port import Storage

_STREAMING: Final = "spark.sql.streaming"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Something that a release does otherwise than those before it.

    Attributes:
        since: The first release that does.
        text: What it does.
        hint: What to do about it; None where there is nothing to do.
        reference: Where that is from.
        state_formats: The formats of state files that it concerns; None represents queries without state.
    """

    since: str
    text: str
    hint: str | None
    reference: str
    state_formats: tuple[int | None, ...] = (None, 1, 2)


BEHAVIOURS: Final = (
    Behaviour(
        "4.0",
        "a source without support for Trigger.AvailableNow reads all available data in a single batch",
        None,
        "SPARK-45178",
    ),
    Behaviour(
        "4.0",
        "maintenance deletes old state files in groups, so up to 30% of the state's files stay longer",
        f"{_STREAMING}.ratioExtraSpaceAllowedInCheckpoint=0 deletes as before",
        "SPARK-48931",
        state_formats=(1, 2),
    ),
    Behaviour(
        "4.0",
        "the driver resolves a relative path of a file sink; before, the executors did",
        "give the sink an absolute path",
        "SPARK-50854",
    ),
    Behaviour(
        "4.1",
        "adaptive execution plans the batches of stateless queries, so rows may be in different files",
        "spark.sql.adaptive.streaming.stateless.enabled=false plans as before",
        "Spark's migration guide, 4.0 to 4.1",
        state_formats=(None,),
    ),
    Behaviour(
        "4.1",
        "Spark writes a checksum file for each state file and verifies it on reading",
        None,
        "SPARK-51972",
        state_formats=(2,),
    ),
    Behaviour(
        "4.2",
        "a checkpoint without its `metadata` file does not start; before, it started as a new query",
        None,
        "SPARK-55058",
    ),
)


def behaviours_between(written: str, target: str, state_format: int | None) -> tuple[Behaviour, ...]:
    """Return the changes from one release to a later one.

    Args:
        written: The release that wrote the checkpoint.
        target: The one that is to continue.
        state_format: The format of the state files; None without state.
    """
    return tuple(
        behaviour
        for behaviour in BEHAVIOURS
        if minor(written) < minor(behaviour.since) <= minor(target)
        and state_format in behaviour.state_formats
    )


_NO_WAY_BACK: Final = (
    "after Spark {target} commits a batch, Spark {written} can no longer use this checkpoint; take a"
    " savepoint first"
)
_CHECKSUMS: Final = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
# The worst first.
_ORDER: Final = (Effect.FAILS, Effect.MEANING, Effect.NONE)
# Pairs of releases that tests have started one after the other.
TESTED: Final = frozenset({*pairwise(RELEASES), ("3.5", "4.2"), ("4.0", "4.3")})


@dataclass(frozen=True, slots=True)
class SparkFinding(JsonShape):
    """A finding about the change to a different Spark version.

    Attributes:
        what: The subject: `release`, `provider`, `operator`, `state files`, `behaviour` or `batch`.
        effect: `none`, `meaning` if state or results may become wrong, or `fails`.
        text: The description.
        hint: The recommended action; None if none is needed.
        reference: The source of the information; None if it is the checkpoint itself.
    """

    what: str
    effect: Effect
    text: str
    hint: str | None = None
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class FilledSetting(JsonShape):
    """A setting that the new Spark version pins and this checkpoint does not.

    Attributes:
        name: The setting.
        value: The value that Spark uses regardless of the session; None if it uses the session's value.
        meaning: The effect of the setting.
    """

    name: str
    value: str | None
    meaning: str


@dataclass(frozen=True, slots=True)
class SparkReport(JsonShape):
    """The report whether a different Spark can continue with a checkpoint or savepoint.

    Attributes:
        against: The savepoint or checkpoint.
        batch_id: The batch of the savepoint or checkpoint.
        spark: The Spark version that is to continue.
        written_by: The versions that may have written it, derived from its pinned settings; one if recorded.
        noted: The version that Holdfast recorded while it watched the query; None without a record.
        provider: The state provider; None without state.
        state_format: The format of the state files: 1 or 2; None without state.
        operators: The display names of the stateful operators.
        pinned: The settings whose recorded values are used regardless of the session.
        filled: The settings that the new Spark version pins and this checkpoint does not.
        findings: The findings, most severe first.
        tested: True if Holdfast's tests start checkpoints of the one version in the other.

    Example:
        report: hf.SparkReport = hf.check_spark("savepoints@daily", "4.2")
        assert (report.verdict, report.exit_code) == ("goes on", 0)
    """

    against: str
    batch_id: int
    spark: str
    written_by: tuple[str, ...]
    noted: str | None
    provider: str | None
    state_format: int | None
    operators: tuple[str, ...]
    pinned: Mapping[str, str]
    filled: tuple[FilledSetting, ...]
    findings: tuple[SparkFinding, ...]
    tested: bool

    @property
    @in_json
    def verdict(self) -> str:
        """`goes on`, `doubtful` if state or results may become wrong, or `fails`."""
        effects = {finding.effect for finding in self.findings}
        if Effect.FAILS in effects:
            return "fails"
        return "doubtful" if Effect.MEANING in effects else "goes on"

    @property
    def exit_code(self) -> int:
        """Return 0 for the verdict `goes on`, 1 for `doubtful`, 2 for `fails`."""
        return {"goes on": 0, "doubtful": 1, "fails": 2}[self.verdict]


def check_spark(
    against: str | os.PathLike[str],
    spark: str,
    *,
    query: str | None = None,
    home: str | os.PathLike[str] | None = None,
) -> SparkReport:
    """Check whether a different Spark version can continue with a checkpoint or savepoint.

    The check reads the logs and lists each store once, as showing the checkpoint does. No Spark is started.

    Args:
        against: A savepoint, or a checkpoint at its newest committed batch.
        spark: The Spark version that is to continue, such as `4.2` or `4.2.1`.
        query: The query, if `against` is the directory of a job's checkpoints.
        home: The state home, whose records contain the Spark version of a checkpoint.

    Raises:
        Invalid: The Spark version is not valid.
        Unsupported: The Spark version or the state provider is unknown.
        NotFound: The savepoint or checkpoint does not exist, or has no committed batch.
        Corrupt: A file that was read is damaged.

    Example:
        assert hf.check_spark("savepoints@daily", "4.2").verdict == "goes on"
        downgrade = hf.check_spark("savepoints@daily", "4.0")
        assert downgrade.verdict == "fails"
        for finding in downgrade.findings:
            print(finding.text, finding.hint)
    """
    target = _release(spark)
    saved = open_saved(os.fspath(against), query)
    confs = saved.offsets.confs
    noted = None if home is None or saved.manifest is not None else _noted_version(Path(home), saved.storage)
    written = written_by(confs, noted)
    if saved.found.operators:
        check_known(confs, saved.uri)
    found = sorted(_findings(saved, written, target), key=lambda finding: _ORDER.index(finding.effect))
    return SparkReport(
        against=saved.uri,
        batch_id=saved.batch_id,
        spark=target,
        written_by=written,
        noted=noted,
        provider=saved.found.provider,
        state_format=saved.state_format,
        operators=tuple(operator.named.display_name for operator in saved.found.operators),
        pinned={setting.name: confs[setting.name] for setting in PINNED if setting.name in confs},
        filled=filled_settings(confs, target, unfixed_partitions(saved.found)),
        findings=tuple(found),
        tested=any((release, target) in TESTED or release == target for release in written),
    )


def filled_settings(
    confs: Mapping[str, str], target: str, partitions: int | None
) -> tuple[FilledSetting, ...]:
    """Return the settings that a release pins and a checkpoint does not, with the value used for each.

    Args:
        confs: The settings that the checkpoint pins.
        target: The release.
        partitions: The number of partitions of the state, if the checkpoint does not fix it.
    """
    known = {SHUFFLE_PARTITIONS: str(partitions)} if partitions and minor(target) > UNFIXED_PARTITIONS else {}
    return tuple(
        FilledSetting(setting.name, known.get(setting.name, setting.filled_in), setting.meaning)
        for setting in pinned_by(target)
        if setting.name not in confs
    )


def check_known(confs: Mapping[str, str], where: str) -> None:
    """Raise an error for a state provider of a third party.

    Raises:
        Unsupported: The provider is unknown.
    """
    provider = provider_class(confs)
    check_read(provider, where)
    if provider not in PROVIDERS and provider not in EXTERNAL_PROVIDERS:
        raise Unsupported(
            "the state cannot be checked for a Spark version, because the state store provider is unknown",
            code="HF-E7096",
            where=where,
            found=provider,
            expected=" or ".join(PROVIDERS),
            hint="ask the provider's vendor for a release built for that Spark version",
        )


def _release(spark: str) -> str:
    parts = spark.split(".")
    if not 2 <= len(parts) <= 3 or not all(part.isascii() and part.isdigit() for part in parts[:2]):
        raise Invalid(
            "invalid Spark version",
            code="HF-E2254",
            where="--spark",
            found=spark,
            expected="a release such as 4.2",
            hint="write the first two numbers of the release, as in --spark 4.2",
        )
    release = ".".join(parts[:2])
    if release not in RELEASES:
        raise Unsupported(
            "unsupported Spark version",
            code="HF-E7097",
            hint="give one of these releases, as in --spark 4.2",
            where="--spark",
            found=f"Spark {spark}",
            expected=f"Spark {RELEASES[0]} to {RELEASES[-1]}",
        )
    return release


def _noted_version(home: Path, storage: Storage) -> str | None:
    record, _ = find_record(home, storage)
    return None if record is None else record.spark


def _findings(saved: DryRunCheckpoint, written: tuple[str, ...], target: str) -> Iterator[SparkFinding]:
    found = saved.found
    oldest, newest = written[0], written[-1]
    if minor(oldest) > minor(target):
        yield SparkFinding(
            "release",
            Effect.FAILS,
            f"Spark {_or(written)} wrote this checkpoint; Spark {target} is older and ignores the parts that"
            " it does not know",
            f"use Spark {oldest} or newer",
        )
        return
    yield from _state(saved, target)
    if found.uncommitted is not None:
        yield SparkFinding(
            "batch",
            Effect.NONE,
            f"batch {found.uncommitted} is planned but not committed: Spark {target} would run it again",
            "stop the query between two batches first, or start from a savepoint",
        )
    for behaviour in behaviours_between(oldest, target, saved.state_format):
        yield SparkFinding(
            "behaviour",
            Effect.NONE,
            f"since {behaviour.since}, {behaviour.text}",
            behaviour.hint,
            behaviour.reference,
        )
    if minor(newest) < minor(target):
        yield SparkFinding("release", Effect.NONE, _NO_WAY_BACK.format(target=target, written=_or(written)))


def _state(saved: DryRunCheckpoint, target: str) -> Iterator[SparkFinding]:
    """Yield the demands of the state on the other Spark."""
    found, confs = saved.found, saved.offsets.confs
    if not found.operators:
        return
    if external_state(confs) is not None or provider_class(confs) in EXTERNAL_PROVIDERS:
        yield from _holdfasts("provider", f"the state is in a database ({found.provider})", target)
    for operator in found.operators:
        if operator.named.operator_kind == KEYED_WORDS:
            fact = f"operator {operator.named.label} is a Holdfast operator"
            yield from _holdfasts("operator", fact, target)
    partitions = unfixed_partitions(found)
    if partitions is not None and minor(target) == UNFIXED_PARTITIONS:
        yield SparkFinding(
            "partitions",
            Effect.MEANING,
            "the offset log, of version 2, does not fix the number of partitions:"
            f" Spark {target} uses that of the session, and with a lower one ignores the state of the other"
            " partitions without an error",
            f"set spark.sql.shuffle.partitions={partitions}; queries that Holdfast starts get it",
        )
    version = _snapshot_version(saved.storage, found)
    if version == 2 and target != "4.0":
        yield SparkFinding(
            "state files",
            Effect.FAILS,
            f"only Spark 4.0 writes RocksDB snapshots with metadata v2; Spark {target} reads v1",
            "`holdfast state migrate --state-format 1` rewrites them for every Spark version",
        )
    if target == "4.1" and saved.state_format == 1:
        yield SparkFinding(
            "state files",
            Effect.MEANING,
            "Spark 4.1 verifies state files of format 1 with checksum files; after a batch failed and ran"
            " again, it may reject a valid file",
            f"set {_CHECKSUMS}=false, or use Spark 4.2",
            "SPARK-56461",
        )


def _holdfasts(what: str, fact: str, target: str) -> Iterator[SparkFinding]:
    if not OLDEST <= minor(target) < TOO_NEW:
        yield SparkFinding(
            what,
            Effect.FAILS,
            f"{fact}, which requires Spark {OLDEST[0]}.{OLDEST[1]} or newer",
            "use a supported Spark version",
        )


def _snapshot_version(storage: Storage, found: CheckpointReport) -> int:
    """Return the highest metadata version of the RocksDB snapshots that a restart reads."""
    if found.confs.get(ENCODING) is None:
        return 1
    versions = {1}
    for operator in found.operators:
        for store in operator.stores:
            base = store.files[0] if store.files else None
            if base is not None and base.kind is FileKind.ZIP and base.unique_id is not None:
                path = base.render()
                versions.add(parse_snapshot(storage.read(path), path, whole=False).version)
                break  # a query writes all its snapshots alike
    return max(versions)


def _or(releases: tuple[str, ...]) -> str:
    return releases[0] if len(releases) == 1 else f"{', '.join(releases[:-1])} or {releases[-1]}"
