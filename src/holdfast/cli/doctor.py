"""`holdfast doctor`: which verbs and jobs can run here, and with which settings?"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import checkpoints_of
from holdfast.cli.help_text import examples
from holdfast.cli.standard_streams import without_sparks_words
from holdfast.errors import HoldfastError, Invalid, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.checkpoints.record import WrittenBy
    from holdfast.config.settings import Settings
    from holdfast.engine.session.doctor import Check, ClusterExamination, Examination
    from holdfast.jobs.loader import JobExplained


@examples("", "checkpoints/visits --job visits.py")
def doctor(
    checkpoints: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CHECKPOINT|JOB]...",
            help="Also say which Spark wrote these.",
        ),
    ] = None,
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Start Spark and run a small stateful query.")] = False,
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
    """Show whether the verbs over files and jobs can run here, and every default with its reason.

    Exit 1 if something that is installed does not work; without PySpark, jobs are looked at only with --job,
    --deep or --master. Show which Spark wrote the checkpoints of the home's jobs. Exit 7 if one of them, or a
    given one, was written by a newer Spark than the one that is installed: it must not continue here.
    """
    from holdfast.engine.session.doctor import examine

    settings = options.settings(home)
    found = examine(settings, os.environ)
    explained, jobs_conf = _explain(job)
    found = replace(found, with_jobs=found.with_jobs or deep or job is not None or master is not None)
    cluster = _cluster(settings, master, options.pairs("--conf", conf)) if found.jobs_ready else None
    given = [address for named in checkpoints or [] for address in checkpoints_of(named, home)]
    found = replace(found, checks=(*found.checks, *_of_stores(given, explained, jobs_conf)))
    tried = _try(settings) if deep and found.jobs_ready else None
    writers, unread = _writers(settings, given)
    newer = any(writer.newer for writer in writers)
    ready = found.ok and (tried is None or tried.ok) and (cluster is None or cluster.ok)
    if json:
        document = _document(found, tried, explained, ready and not newer)
        if cluster is not None:
            document["cluster"] = cluster.as_dict()
        output.emit_json(
            {**document, "checkpoints": [writer.as_dict() for writer in writers], "unread": unread}
        )
    else:
        _render(found, tried, explained, ready=ready)
        if cluster is not None:
            output.line()
            output.line(f"on {master}:")
            _render_checks(cluster.checks)
        _render_writers(writers, unread)
        if newer:
            output.line()
            output.line("checkpoints marked NEWER must not go on with this Spark")
    if newer:
        raise typer.Exit(Unsupported.exit_code)
    if not ready:
        raise typer.Exit(1)
    if not found.with_jobs:
        next_step.say(json, "tour")
    elif job is not None:
        next_step.say_looked_up(json, lambda: next_step.run_words(job, home))
    else:
        next_step.say(json, *(("demo",) if deep else ("doctor", "--deep", *next_step.home_words(home))))


def _writers(settings: Settings, given: list[str]) -> tuple[list[WrittenBy], list[dict[str, Any]]]:
    """Return the Spark of each named checkpoint or job, and why others could not be read.

    Raises:
        NotFound: One that was named is missing.
    """
    from holdfast.checkpoints.record import checkpoints_at, writer_of
    from holdfast.config.installed_spark import InstalledSpark
    from holdfast.jobs.registry.registry import Registry
    from holdfast.jobs.state_home import StateHome
    from holdfast.storage import open_storage

    home = settings.real_home
    places = [open_storage(address) for address in given]
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
    for number, storage in enumerate(places):
        try:
            writers.append(writer_of(storage, home, spark))
        except HoldfastError as error:  # noqa: PERF203 - one that cannot be read says nothing of the others
            if number < len(given):
                raise
            unread.append(error.as_dict())
    return list({writer.checkpoint: writer for writer in writers}.values()), unread


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


def _explain(job: str | None) -> tuple[JobExplained | None, dict[str, str]]:
    """A job's settings explained, and as Spark gets them."""
    if job is None:
        return None, {}
    from holdfast.jobs.loader import explained, load_job

    loaded = load_job(job)
    return explained(loaded), loaded.spark_conf()


def _of_stores(given: list[str], explained: JobExplained | None, conf: dict[str, str]) -> list[Check]:
    """Return the requirements of checkpoints that are not on a local disk, each once."""
    from holdfast.config.checks import canonical_uri, parse_storage
    from holdfast.engine.session.doctor import Check, store_checks
    from holdfast.ownership.checkpoint_lease import can_keep_leases

    places = [canonical_uri(parse_storage(address, "checkpoint"), Path.cwd()) for address in given]
    places += [explained.checkpoint] if explained is not None else []
    checks = [check for uri in places for check in store_checks(uri, conf, os.environ)]
    for uri in places:
        if not can_keep_leases(uri):
            scheme = uri.partition(":")[0]
            hint = "see that only one machine runs the job, or elect its leader with --ha"
            lacks = f"none can be kept at {scheme}: nothing keeps two machines apart"
            checks.append(Check("lease of the checkpoint", False, lacks, hint, needed=False))
    return list({check.name: check for check in checks}.values())


def _try(settings: Any) -> Check:
    from holdfast.engine.session.doctor import deep_check

    output.say("starting Spark for a small stateful query …")
    with without_sparks_words(), tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as folder:
        return deep_check(settings, Path(folder))


def _cluster(settings: Settings, master: str | None, conf: dict[str, str]) -> ClusterExamination | None:
    """Report a session on a cluster, if one was named.

    Raises:
        Invalid: It is this machine.
    """
    if master is None:
        return None
    from holdfast.config.cluster_settings import Manager, manager_of
    from holdfast.engine.session.doctor import examine_cluster

    if manager_of(master) is Manager.LOCAL:
        raise Invalid(
            "this is no cluster",
            code="HF-E2123",
            where=f"--master {master}",
            expected="spark://HOST:PORT, yarn or k8s://…",
            hint="leave it out, or try this machine with `holdfast doctor --deep`",
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


def _document(
    found: Examination, tried: Check | None, explained: JobExplained | None, ok: bool
) -> dict[str, Any]:
    document = {**found.as_dict(), "ok": ok}
    if tried is not None:
        document["deep"] = asdict(tried)
    if explained is not None:
        document["job"] = explained.as_dict()
    return document


def _render(found: Examination, tried: Check | None, explained: JobExplained | None, *, ready: bool) -> None:
    output.line(f"verbs over files: {'ready' if found.files_ready else 'not ready, see MISSING below'}")
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
    if explained is not None:
        output.line()
        output.line(f"job {explained.name}:")
        for knob in explained.knobs:
            output.line(f"  {knob.name} = {knob.value}  ->  {knob.becomes or knob.outcome.value}")
            output.line(f"      {knob.why}")
