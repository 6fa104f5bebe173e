"""`hf.health`: one look at a checkpoint or savepoint, for somebody whose job does not restart."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from holdfast.advice.advise_api import needs_of
from holdfast.advice.advising import ALL_TOPICS, on_checkpoint
from holdfast.advice.cost_api import cost
from holdfast.advice.cost_report import estimate_load_ms
from holdfast.advice.evidence import figures, read_evidence
from holdfast.advice.findings import Severity
from holdfast.advice.lint_api import lint_facts
from holdfast.advice.prices import Prices, medium_of
from holdfast.checkpoints.checkpoint import NAMES, CheckpointReport, Source, StatefulOperator, read
from holdfast.checkpoints.logs import Logs, readable
from holdfast.checkpoints.record import WrittenBy, find_record, writer_of
from holdfast.checkpoints.verification.file_checks import Problem
from holdfast.checkpoints.verification.verifying import UnreadFiles, unread_paths, verify_within
from holdfast.clock import now_ms
from holdfast.config.checks import local_path, place_word
from holdfast.config.installed_spark import InstalledSpark
from holdfast.config.settings import Settings
from holdfast.errors import Conflict, HoldfastError, Invalid
from holdfast.formats.operators import OperatorName
from holdfast.jobs.advise_api import remembered
from holdfast.jobs.recovery import Prediction
from holdfast.jobs.registry.client import Control, JobDetails
from holdfast.jobs.state_home import StateHome
from holdfast.json_shapes import JsonShape, in_json, json_as, json_spread
from holdfast.layout import SAVEPOINTS_BESIDE, beside
from holdfast.model import BatchProgress
from holdfast.observe.lag import Lag, lags
from holdfast.ownership.checkpoint_guard import refuse_held
from holdfast.ownership.usage import usage_of
from holdfast.savepoints import catalog as catalogs
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.proof import prove
from holdfast.savepoints.view import StateLocation
from holdfast.storage.port import Storage

# One look reads this much, and on a storage behind a network this many files; `verify` reads everything.
_MOST_BYTES: Final = 64 << 20
_MOST_FILES: Final = 100
# Tasks that load state in parallel, where no job has told its cores.
_TASKS: Final = 2
_SHOWN: Final = 3
_SEVERITIES: Final = tuple(Severity)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class OperatorSize(JsonShape):
    """The size of one stateful operator.

    Attributes:
        named: The name of the operator.
        partitions: The number of its partitions.
        rows: The rows in the newest snapshots; null where the store does not count them.
        size_bytes: The bytes that a restart reads.
    """

    named: OperatorName = field(metadata=json_spread(*NAMES, "operator_id"))
    partitions: int
    rows: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RestartEstimate(JsonShape):
    """The state that a restart loads, and the time it takes.

    Attributes:
        state_bytes: The bytes of state that the tasks of the first batch read.
        files: The number of files.
        load_ms: The time to load them, estimated from bytes and files for two parallel tasks.
        recovery: The whole recovery, predicted from recoveries and drills of the job; null without any.
    """

    state_bytes: int
    files: int
    load_ms: int
    recovery: Prediction | None


@dataclass(frozen=True, slots=True)
class HealthFinding(JsonShape):
    """A finding of `lint`, `advise` or `cost`.

    Attributes:
        verb: The command that reports it.
        id: The id of the rule, of the kind of advice, or of the change that saves.
        severity: `error`, `warning` or `note`.
        seen: What was seen.
        do: What to do.
    """

    verb: str
    id: str
    severity: Severity
    seen: str
    do: str


@dataclass(frozen=True, slots=True)
class Health(JsonShape):
    """The health of a checkpoint or savepoint.

    Attributes:
        uri: Its address.
        is_savepoint: Whether it is a savepoint.
        query_id: The id of its query; null where it cannot be read.
        problems: Damage, by file.
        files: The number of files that were read.
        unread: The files whose content was not read, because they are large.
        batch_id: The newest committed batch; null before the first.
        planned_ms: When that batch was planned, in epoch milliseconds.
        batch_age_ms: The time since then.
        uncommitted: The batch that is planned and not committed; null without one.
        used_by: The job or process that uses the checkpoint; null where none is known.
        restorable: The batches that can still be restored.
        written_by: The Spark that wrote it.
        sources: The sources, with their offsets.
        lag: How far each partition of the sources is behind, where a job has reported it.
        operators: The stateful operators.
        restart: What a restart loads; null without a committed batch, and of a damaged checkpoint.
        findings: The most important findings of `lint`, `advise` and `cost`, the worst first.
        more_findings: The number of findings beyond these.
        not_judged: What could not be judged, with the reason.
        next: The next command.

    Example:
        health = hf.health("savepoints@daily")
        assert health.is_savepoint and health.batch_id == 11
        assert [operator.rows for operator in health.operators] == [10]
        for finding in health.findings:
            print(finding.seen, finding.do)
    """

    uri: str = field(metadata=json_as("checkpoint"))
    is_savepoint: bool
    query_id: str | None
    problems: tuple[Problem, ...]
    files: int
    unread: UnreadFiles
    batch_id: int | None
    planned_ms: int | None
    batch_age_ms: int | None
    uncommitted: int | None
    used_by: str | None
    restorable: tuple[int, ...]
    written_by: WrittenBy | None
    sources: tuple[Source, ...]
    lag: tuple[Lag, ...]
    operators: tuple[OperatorSize, ...]
    restart: RestartEstimate | None
    findings: tuple[HealthFinding, ...]
    more_findings: int
    not_judged: tuple[str, ...]
    next: str

    @property
    @in_json
    def ok(self) -> bool:
        """True if no damage was found and the installed Spark can continue from it."""
        return not self.problems and (self.written_by is None or not self.written_by.newer)


def health(
    address: str | os.PathLike[str],
    *,
    home: str | os.PathLike[str] | None = None,
    clock: Callable[[], int] = now_ms,
) -> Health:
    """Return the health of a checkpoint or savepoint: damage, newest batch, restart, findings, next command.

    Reads files only, starts no Spark, and works while the query runs. Large files are compared by size and
    not read; `hf.checkpoints.verify` and `hf.savepoints.verify` read everything.

    Args:
        address: A checkpoint, or a savepoint (`DIR/ID`, `DIR@LABEL`).
        home: The state home; by default the one in effect here.
        clock: The wall clock in epoch milliseconds.

    Raises:
        Invalid: The address names a batch, or is not valid.
        NotFound: The checkpoint or savepoint does not exist.
        Corrupt: The manifest of the savepoint is damaged.
        Unavailable: The storage does not answer.
        Unsupported: The library for this kind of storage is not installed.

    Example:
        health = hf.health("checkpoints/visits")
        assert health.ok
        print(health.next)  # the command to run next
    """
    location = StateAddress.resolve(address).open_state()
    if location.batch_id is not None and not location.is_savepoint:
        raise Invalid(
            "the health of a checkpoint cannot be checked for a single batch",
            code="HF-E2523",
            found=location.name,
            expected=location.storage.uri,
            hint="omit the batch to check the newest one",
        )
    at_ms, settings = clock(), Settings.here(home)
    storage, control = location.storage, Control(StateHome(settings.real_home), clock)
    attempts = _Attempts()
    problems, restorable, files, unread, batch_id = _verify(location, settings)
    checkpoint = attempts.run("state", lambda: read(storage))
    writer = attempts.run(
        "the Spark that wrote it",
        lambda: writer_of(storage, settings.real_home, InstalledSpark.here(os.environ)),
    )
    job: JobDetails | None = None
    batches: tuple[BatchProgress, ...] = ()
    used_by: str | None = None
    if not location.is_savepoint:
        job = attempts.run("its job", lambda: control.job_with(storage.uri))
        batches = remembered(storage.uri, home)
        used_by = _user(storage, [str(process) for process in usage_of(storage, at_ms).scan.writers])
    findings = _findings(location, batches, attempts) if checkpoint is not None and not problems else []
    committed = checkpoint if checkpoint is not None and checkpoint.batch_id is not None else None
    offsets = None if batch_id is None else readable(lambda: Logs(storage).offsets(batch_id))
    planned_ms = None if offsets is None else offsets.timestamp_ms or None
    found = Health(
        uri=location.name,
        is_savepoint=location.is_savepoint,
        query_id=None if checkpoint is None else checkpoint.query_id,
        problems=problems,
        files=files,
        unread=unread,
        batch_id=batch_id,
        planned_ms=planned_ms,
        batch_age_ms=None if planned_ms is None else max(at_ms - planned_ms, 0),
        uncommitted=None if checkpoint is None else checkpoint.uncommitted,
        used_by=used_by,
        restorable=restorable,
        written_by=writer,
        sources=() if checkpoint is None else checkpoint.sources,
        lag=lags(batches, at_ms) if batches else (),
        operators=() if checkpoint is None else tuple(map(_size_of, checkpoint.operators)),
        restart=None if committed is None or problems else _restart(committed, control, job),
        findings=tuple(findings[:_SHOWN]),
        more_findings=len(findings[_SHOWN:]),
        not_judged=tuple(attempts.failures),
        next="",
    )
    return replace(found, next=_next(found, job))


class _Attempts:
    """Looks that may fail without failing the whole, with the reasons of those that did."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def run(self, what: str, look: Callable[[], _T]) -> _T | None:
        try:
            return look()
        except HoldfastError as error:
            self.failures.append(f"{what}: {error.fact}" + (f", found {error.found}" if error.found else ""))
            return None


def _verify(
    location: StateLocation, settings: Settings
) -> tuple[tuple[Problem, ...], tuple[int, ...], int, UnreadFiles, int | None]:
    """Return problems, restorable batches, the files that were read and not read, and the newest batch."""
    most_files = None if local_path(location.storage.uri) is not None else _MOST_FILES
    if not location.is_savepoint:
        record, _ = find_record(settings.real_home, location.storage)
        verification, unread = verify_within(
            location.storage, record, most_bytes=_MOST_BYTES, most_files=most_files
        )
        return (
            verification.problems,
            verification.restorable,
            verification.files,
            unread,
            verification.batch_id,
        )
    catalog, savepoint_id = StateAddress.parse(location.name).open_savepoint()
    sizes = {file.path: file.size_bytes for file in catalogs.load(catalog, savepoint_id).files}
    large = unread_paths(sizes, _MOST_BYTES, most_files)
    proof = prove(catalog, savepoint_id, unread=large)
    batches = () if location.batch_id is None or proof.problems else (location.batch_id,)
    unread = UnreadFiles(len(large), sum(large.values()))
    return proof.problems, batches, proof.files - len(large), unread, location.batch_id


def _user(storage: Storage, processes: Sequence[str]) -> str | None:
    """Return the job that holds a checkpoint, or the processes of this machine that have it open."""
    try:
        refuse_held(storage)
    except Conflict as error:
        return error.found or error.fact
    return ", ".join(processes[:_SHOWN]) or None


def _size_of(operator: StatefulOperator) -> OperatorSize:
    return OperatorSize(operator.named, operator.partitions, operator.base_keys, operator.size_bytes)


def _restart(checkpoint: CheckpointReport, control: Control, job: JobDetails | None) -> RestartEstimate:
    stores = [store for operator in checkpoint.operators for store in operator.stores]
    size_bytes = sum(store.size_bytes for store in stores)
    files = sum(len(store.files) for store in stores)
    tasks = max(1, min(_TASKS, len(stores)))
    took_ms = estimate_load_ms(size_bytes, files, medium_of(checkpoint.uri), tasks)
    return RestartEstimate(size_bytes, files, took_ms, None if job is None else control.prediction(job))


def _findings(
    location: StateLocation, batches: Sequence[BatchProgress], attempts: _Attempts
) -> list[HealthFinding]:
    """Return what lint, advise and cost find, the worst first; what two of them see is there once."""
    needs = needs_of(latency=None, cores=None, shared=False, conf=None, own_session=bool(batches))
    evidence = attempts.run(
        "lint and advice",
        lambda: read_evidence(location.storage, batches, needs, figures(None), Prices()),
    )
    findings = []
    if evidence is not None:
        advice = on_checkpoint(evidence, ALL_TOPICS).advice
        findings += [HealthFinding("advise", one.id, one.severity, one.seen, one.do) for one in advice]
        advised = {one.rule for one in advice}
        findings += [
            HealthFinding("lint", one.rule, one.severity, one.seen, one.instead)
            for one in lint_facts(evidence.facts, batches).counted
            if one.rule not in advised
        ]
    report = attempts.run("cost", lambda: cost(location.name))
    if report is not None:
        findings += [
            HealthFinding("cost", saving.kind, Severity.NOTE, saving.what, saving.how)
            for saving in report.changes
            if saving.safe and saving.saves_bytes > 0
        ]
    return sorted(findings, key=lambda one: _SEVERITIES.index(one.severity))


def _next(found: Health, job: JobDetails | None) -> str:
    """Return the command that follows: repair what is damaged, save what is not saved, else look further."""
    word = place_word(found.uri)
    catalog = _catalog(found.uri, job)
    if found.is_savepoint:
        call = f"savepoint verify {word}" if found.problems else f"restore {word} NEW_CHECKPOINT"
    elif found.problems:
        call = f"checkpoint verify {word}"
        if found.restorable and catalog is not None:
            call = f"savepoint take {word} {catalog} --batch {found.restorable[-1]}"
    elif found.written_by is not None and found.written_by.newer:
        return found.written_by.remedy
    elif found.batch_id is None or not found.operators:
        call = f"checkpoint history {word}"
    elif catalog is not None and (job is None or not job.savepoints):
        call = f"savepoint take {word} {catalog}"
    else:
        call = f"state list {word}"
    return f"holdfast {call}"


def _catalog(uri: str, job: JobDetails | None) -> str | None:
    """Return the catalog of the job's savepoints, or the one next to the checkpoint, as it is typed."""
    address = beside(uri, SAVEPOINTS_BESIDE) if job is None else next(iter(job.known_catalogs(uri)), None)
    return None if address is None else place_word(address)
