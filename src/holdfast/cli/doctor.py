"""`holdfast doctor`: the health of a checkpoint, or the commands and jobs that can run on this machine."""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import checkpoints_of, whole_address_or_directory
from holdfast.cli.checkpoint import ranges
from holdfast.cli.flows import flows_at
from holdfast.cli.help_text import examples
from holdfast.cli.job_settings import effect, setting_names
from holdfast.cli.standard_streams import without_sparks_words
from holdfast.config.checks import place_word
from holdfast.errors import Corrupt, HoldfastError, Invalid, Unsupported
from holdfast.quantities import counted, rounded_duration, rounded_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.checkpoints import Flow, FlowRefresh
    from holdfast.checkpoints.record import WrittenBy
    from holdfast.config.settings import Settings
    from holdfast.engine.session.doctor import Check, ClusterExamination, Examination
    from holdfast.jobs.health import Health, RestartEstimate
    from holdfast.jobs.loader import JobExplained
    from holdfast.storage.port import Storage

# The maximum number of problems shown; `verify` lists all.
_SHOWN = 3


def _whole_addresses(context: typer.Context, given: list[str] | None) -> list[str] | None:
    return None if given is None else [whole_address_or_directory(context, address) for address in given]


@examples("checkpoints/visits", "--job visits.py")
def doctor(
    checkpoints: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CHECKPOINT|JOB|SP]...",
            help="A checkpoint, the storage of a pipeline, a job, or a savepoint. [this machine]",
            callback=_whole_addresses,
        ),
    ] = None,
    *,
    deep: Annotated[
        bool, typer.Option("--start-spark", help="Start Spark and run a small stateful query.")
    ] = False,
    job: Annotated[
        str | None, typer.Option("--job", metavar="FILE.py[:JOB]", help="Also explain this job's settings.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--master", help="Also start a session on this cluster, and say what is there."),
    ] = None,
    conf: options.Conf = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show the health of a checkpoint on one screen, or what can run on this machine.

    For a checkpoint or savepoint: whether it is whole, its newest batch and age, sources and lag, operators
    with rows and bytes, what a restart loads, the most important findings of lint, advise and cost, and the
    next command. Files over 64 MiB in total are compared by size; `verify` reads all. Exit 6 if it is
    damaged, 7 if a newer Spark wrote it than the installed one. For the storage of a pipeline: this for each
    flow, and what a full refresh discards.

    Without one: whether commands over files and jobs can run here, which Spark wrote the checkpoints of the
    home's jobs, and every default with its reason. Exit 1 if something that is installed does not work;
    without PySpark, jobs count only with --job, --start-spark or --master.
    """
    pipelines = {named: flows_at(named) for named in checkpoints or []}
    refreshed = [one for flows in pipelines.values() for one in _refreshes(flows)]
    given = [
        address
        for named, flows in pipelines.items()
        for address in (_started(flows) if flows else _addresses(named, home))
    ]
    healths = [hf.health(address, home=home) for address in given]
    with_machine = not given or deep or job is not None or master is not None
    if json or with_machine:
        machine = _Machine.examined(given, deep=deep, job=job, master=master, conf=conf, home=home)
        if json:
            output.emit_json(
                machine.as_dict(healths) | {"full_refresh": [one.as_dict() for one in refreshed]}
            )
        else:
            _render_healths(healths)
            _render_refreshes(refreshed)
            machine.render()
        ready, newer = machine.ready or not with_machine, machine.newer and with_machine
    else:
        _render_healths(healths)
        _render_refreshes(refreshed)
        _render_missing_stores(given)
        ready, newer = True, False
    if any(one.problems for one in healths):
        raise typer.Exit(Corrupt.exit_code)
    if newer or not all(one.ok for one in healths):
        raise typer.Exit(Unsupported.exit_code)
    if not ready:
        raise typer.Exit(1)
    if not given:
        _say_next(json, deep=deep, job=job, home=home, with_jobs=machine.examination.with_jobs)


@dataclass(frozen=True, slots=True)
class _Machine:
    """The results of examining this machine and the Spark versions that wrote the jobs' checkpoints."""

    examination: Examination
    explained: JobExplained | None
    setting_names: list[str]
    cluster: ClusterExamination | None
    master: str | None
    tried: Check | None
    writers: list[WrittenBy]
    unread: list[dict[str, Any]]

    @classmethod
    def examined(
        cls,
        given: list[str],
        *,
        deep: bool,
        job: str | None,
        master: str | None,
        conf: list[str] | None,
        home: str | None,
    ) -> _Machine:
        """Examine this machine and return the results."""
        from holdfast.engine.session.doctor import examine

        settings = options.settings(home)
        found = examine(settings, os.environ)
        explained, names, jobs_conf = _explain(job)
        found = replace(found, with_jobs=found.with_jobs or deep or job is not None or master is not None)
        cluster = _cluster(settings, master, options.pairs("--conf", conf)) if found.jobs_ready else None
        found = replace(found, checks=(*found.checks, *_of_stores(given, explained, jobs_conf)))
        tried = _try(settings) if deep and found.jobs_ready else None
        return cls(found, explained, names, cluster, master, tried, *_writers(settings))

    @property
    def ready(self) -> bool:
        """Return whether everything that is installed works."""
        tried, cluster = self.tried, self.cluster
        return self.examination.ok and (tried is None or tried.ok) and (cluster is None or cluster.ok)

    @property
    def newer(self) -> bool:
        """Return whether a newer Spark than the installed one wrote a checkpoint of a job."""
        return any(writer.newer for writer in self.writers)

    def as_dict(self, healths: list[Health]) -> dict[str, Any]:
        """Return the JSON of the results, with the health of the given checkpoints."""
        named = [one.written_by for one in healths if one.written_by is not None]
        writers = {writer.checkpoint: writer.as_dict() for writer in (*named, *self.writers)}
        ok = self.ready and not self.newer and all(one.ok for one in healths)
        document = {**self.examination.as_dict(), "ok": ok}
        if self.tried is not None:
            document["deep"] = asdict(self.tried)
        if self.explained is not None:
            document["job"] = self.explained.as_dict()
        if self.cluster is not None:
            document["cluster"] = self.cluster.as_dict()
        document |= {"checkpoints": list(writers.values()), "unread": self.unread}
        return document | {"health": [one.as_dict() for one in healths]}

    def render(self) -> None:
        """Print the results."""
        _render(self.examination, self.tried, ready=self.ready)
        if self.explained is not None and self.examination.with_jobs:
            _render_settings(self.explained, self.setting_names)
        if self.cluster is not None:
            output.line()
            output.line(f"on {self.master}:")
            _render_checks(self.cluster.checks)
        _render_writers(self.writers, self.unread)
        if self.newer:
            output.line()
            output.line("checkpoints marked NEWER cannot be continued with this Spark")


def _say_next(json: bool, *, deep: bool, job: str | None, home: str | None, with_jobs: bool) -> None:
    if not with_jobs:
        next_step.say(json, "tour")
    elif job is not None:
        next_step.say_looked_up(json, lambda: next_step.run_words(job, home))
    else:
        next_step.say(
            json, *(("demo",) if deep else ("doctor", "--start-spark", *next_step.home_words(home)))
        )


def _addresses(given: str, home: str | None) -> list[str]:
    """Return the address of a savepoint, or the checkpoints of a directory, a pipeline's storage or a job.

    Raises:
        NotFound: Neither a directory nor a job of this name exists.
    """
    from holdfast.checkpoints.record import checkpoints_at
    from holdfast.savepoints.address import StateAddress

    if StateAddress.parse(given).is_savepoint:
        return [given]
    return [
        address
        for checkpoint in checkpoints_of(given, home)
        for address in [storage.uri for storage in checkpoints_at(checkpoint)] or [checkpoint]
    ]


def _render_healths(healths: Iterable[Health]) -> None:
    for number, one in enumerate(healths):
        if number:
            output.line()
        _render_health(one)


def _render_health(health: Health) -> None:
    output.fields(
        [
            ("savepoint" if health.is_savepoint else "checkpoint", health.uri),
            ("verdict", _verdict(health)),
            ("batch", _batch(health)),
            *((("in use", health.used_by),) if health.used_by else ()),
            *((("written by", health.written_by.text),) if health.written_by else ()),
            *((("sources", _sources(health)),) if health.sources else ()),
            *((("restart", _restart(health.restart)),) if health.restart else ()),
        ]
    )
    if health.problems:
        output.line()
        output.line("damaged files:")
    for problem in health.problems[:_SHOWN]:
        output.whole(problem.file)
        output.prose(problem.what, "  ")
    if health.problems:
        if len(health.problems) > _SHOWN:
            output.line(f"{len(health.problems) - _SHOWN:,} more damaged files")
        output.prose(f"batches that can still be restored: {ranges(health.restorable)}")
    if health.written_by is not None:
        for name in health.written_by.unknown_settings:
            output.prose(f"Spark {health.written_by.installed} does not know {name}")
    if health.operators:
        output.line()
        output.table(
            ["OPERATOR", "KIND", "PARTITIONS", "SNAPSHOT KEYS", "BYTES"],
            [
                (one.named.label, one.named.operator_kind, one.partitions, one.rows, one.size_bytes)
                for one in health.operators
            ],
        )
    if health.findings or health.not_judged:
        output.line()
    for finding in health.findings:
        output.prose(f"{finding.severity.value} {finding.id} ({finding.verb}): {finding.seen}")
        output.prose(f"do: {finding.do}", "  ")
    if health.more_findings:
        word = place_word(health.uri)
        verbs = "" if health.is_savepoint else f": holdfast advise {word}, holdfast lint {word}"
        output.prose(f"{counted(health.more_findings, 'finding')} more{verbs}")
    for reason in health.not_judged:
        output.prose(f"not checked: {reason}")
    output.line()
    output.whole(f"next: {health.next}")


def _verdict(health: Health) -> str:
    if health.problems:
        return f"damaged: {counted(len(health.problems), 'file')}"
    newer = "" if health.ok else "; a newer Spark wrote it than the installed one"
    read = counted(health.files, "file")
    unread = health.unread
    if not unread.files:
        return f"whole, {read} read{newer}"
    size = rounded_size(unread.size_bytes)
    return f"whole, {read} read; {unread.files:,} larger ones, {size}, compared by size only{newer}"


def _batch(health: Health) -> str:
    if health.batch_id is None:
        return "none committed"
    age = "" if health.batch_age_ms is None else f", {rounded_duration(health.batch_age_ms)} ago"
    pending = "" if health.uncommitted is None else f"; {health.uncommitted} is planned and not committed"
    return f"{health.batch_id}, planned {output.moment(health.planned_ms, in_utc=True)}{age}{pending}"


def _sources(health: Health) -> str:
    offsets = "; ".join(f"{source.name}: {source.offset or 'no row yet'}" for source in health.sources)
    if not health.lag:
        return f"{offsets}; lag unknown"
    behind = max(lag.behind_ms for lag in health.lag)
    unread = sum(lag.left for lag in health.lag)
    return f"{offsets}; {unread:,} unread {health.lag[0].unit}, up to {rounded_duration(behind)} behind"


def _restart(restart: RestartEstimate) -> str:
    loads = f"loads {rounded_size(restart.state_bytes)} in {counted(restart.files, 'file')}"
    if restart.recovery is None:
        return f"{loads}, about {rounded_duration(restart.load_ms)} (estimated for two tasks)"
    error = restart.recovery.error_ms
    within = "" if error is None else f" ± {rounded_duration(error)}"
    return (
        f"about {rounded_duration(restart.recovery.recovery_ms)}{within}, predicted from"
        f" {counted(restart.recovery.recoveries + restart.recovery.drills, 'recovery')}; {loads}"
    )


def _started(flows: Sequence[Flow]) -> list[str]:
    """Return the checkpoints of the flows of a pipeline that a run has started on."""
    return [flow.checkpoint for flow in flows if flow.started]


def _refreshes(flows: Sequence[Flow]) -> tuple[FlowRefresh, ...]:
    """Return what a full refresh of a pipeline discards; empty if a checkpoint is damaged."""
    from holdfast.checkpoints.refreshing import refresh_of

    try:
        return tuple(map(refresh_of, flows))
    except Corrupt:
        return ()  # the health reports the damage


def _render_refreshes(refreshed: Sequence[FlowRefresh]) -> None:
    """Print what a full refresh of a pipeline discards."""
    if not refreshed:
        return
    output.line()
    output.prose(
        "`spark-pipelines run --full-refresh-all` empties these tables, starts without this state, and reads"
        " the sources again from their start:"
    )
    output.table(
        ["TABLE", "FLOW", "VERSION", "BATCH", "ROWS", "BYTES", "READ AGAIN UP TO"],
        [
            (
                one.flow.table,
                one.flow.name,
                one.flow.version,
                one.batch_id,
                one.rows,
                one.size_bytes,
                "; ".join(f"{source.name}: {source.offset or 'no row yet'}" for source in one.sources),
            )
            for one in refreshed
        ],
    )


def _render_missing_stores(given: list[str]) -> None:
    """Print what this machine lacks to run a job on these checkpoints."""
    missing = [check for check in _of_stores(given, None, {}) if not check.ok]
    if missing:
        output.line()
        _render_checks(missing)


def _writers(settings: Settings) -> tuple[list[WrittenBy], list[dict[str, Any]]]:
    """Return the Spark versions that wrote the jobs' checkpoints, and the errors of unreadable ones."""
    from holdfast.checkpoints.record import checkpoints_at, writer_of
    from holdfast.config.installed_spark import InstalledSpark
    from holdfast.jobs.registry.registry import Registry
    from holdfast.jobs.state_home import StateHome

    home = settings.real_home
    places: list[Storage] = []
    unread: list[dict[str, Any]] = []
    registry = StateHome(home).registry
    try:
        registered = [job.checkpoint for job in Registry(registry).jobs()] if registry.is_file() else []
        places += [storage for address in registered for storage in checkpoints_at(address)]
    except HoldfastError as error:
        unread.append(error.as_dict())
    if not places:
        return [], unread
    spark = InstalledSpark.here(os.environ)
    writers = []
    for storage in places:
        try:
            writers.append(writer_of(storage, home, spark))
        except HoldfastError as error:  # noqa: PERF203 - an unreadable checkpoint does not affect the others
            unread.append(error.as_dict())
    return writers, unread


def _render_writers(writers: list[WrittenBy], unread: list[dict[str, Any]]) -> None:
    if writers or unread:
        output.line()
        output.line("checkpoints, and the Spark that wrote them:")
    for writer in writers:
        output.line(f"{'NEWER  ' if writer.newer else 'ok     '}  {writer.checkpoint}: {writer.text}")
        if writer.newer:
            for name in writer.unknown_settings:
                output.line(f"         Spark {writer.installed} does not know {name}")
            output.line(f"         {writer.remedy}")
    for error in unread:
        output.line(f"–        {error['where']}: {error['error']}")


def _explain(job: str | None) -> tuple[JobExplained | None, list[str], dict[str, str]]:
    """Return the explanation of a job's settings, their dotted names, and the job's Spark settings."""
    if job is None:
        return None, [], {}
    from holdfast.jobs.loader import explained, load_job

    loaded = load_job(job)
    return explained(loaded), setting_names(loaded), loaded.spark_conf()


def _of_stores(given: list[str], explained: JobExplained | None, conf: dict[str, str]) -> list[Check]:
    """Return the checks of the stores of checkpoints that are not on a local disk, without duplicates."""
    from holdfast.config.checks import canonical_uri, parse_storage
    from holdfast.engine.session.doctor import Check, store_checks
    from holdfast.ownership.checkpoint_lease import can_keep_leases

    places = [canonical_uri(parse_storage(address, "checkpoint"), Path.cwd()) for address in given]
    places += [explained.checkpoint] if explained is not None else []
    checks = [check for uri in places for check in store_checks(uri, conf, os.environ)]
    for uri in places:
        if not can_keep_leases(uri):
            scheme = uri.partition(":")[0]
            hint = "make sure that only one machine runs the job, or elect its leader with --ha"
            lacks = f"not supported at {scheme}: two machines could use the checkpoint at once"
            checks.append(Check("lease of the checkpoint", False, lacks, hint, needed=False))
    return list({check.name: check for check in checks}.values())


def _try(settings: Any) -> Check:
    from holdfast.engine.session.doctor import deep_check

    output.say("starting Spark for a small stateful query …")
    with without_sparks_words(), tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as folder:
        return deep_check(settings, Path(folder))


def _cluster(settings: Settings, master: str | None, conf: dict[str, str]) -> ClusterExamination | None:
    """Examine a session on the cluster with this master; return None without one.

    Raises:
        Invalid: The master is this machine.
    """
    if master is None:
        return None
    from holdfast.config.cluster_settings import Manager, manager_of
    from holdfast.engine.session.doctor import examine_cluster

    if manager_of(master) is Manager.LOCAL:
        raise Invalid(
            "--master does not name a cluster",
            code="HF-E2123",
            where=f"--master {master}",
            expected="spark://HOST:PORT, yarn or k8s://…",
            hint="omit --master, or test this machine with `holdfast doctor --start-spark`",
        )
    output.say(f"starting a session on {master} …")
    with without_sparks_words():
        return examine_cluster(settings, master, conf)


def _render_checks(checks: Iterable[Check], *, with_jobs: bool = True) -> None:
    for check in checks:
        is_missed = check.needed and (with_jobs or not check.for_jobs)
        mark = "ok     " if check.ok else ("MISSING" if is_missed else "–      ")
        output.line(f"{mark}  {check.name}: {check.found}")
        if check.hint:
            output.line(f"         {check.hint}")


def _render(found: Examination, tried: Check | None, *, ready: bool) -> None:
    output.line(f"commands over files: {'ready' if found.files_ready else 'not ready, see MISSING below'}")
    if found.with_jobs:
        output.line(f"jobs: {'ready' if ready else 'not ready, see MISSING below'}")
        output.line()
        _render_checks((*found.checks, *([tried] if tried else [])))
    else:
        _render_checks(check for check in found.checks if not check.for_jobs)
        output.line()
        output.line("jobs: not installed; what they need in addition:")
        needs = (check for check in found.checks if check.for_jobs and (check.needed or check.ok))
        _render_checks(needs, with_jobs=False)
        return
    output.line()
    output.line("defaults that differ from Spark's:")
    for default in found.defaults:
        origin = f"yours, from {default.given_by}" if default.given_by else f"Spark: {default.spark_default}"
        output.line(f"  {default.key} = {default.value}  ({origin})")
        output.line(f"      {default.reason}")


def _render_settings(explained: JobExplained, names: list[str]) -> None:
    output.line()
    output.line(f"job {explained.name}:")
    for name, knob in zip(names, explained.knobs, strict=True):
        output.line(f"  {name} = {knob.value}  ->  {effect(knob)}")
        output.line(f"      {knob.why}")
