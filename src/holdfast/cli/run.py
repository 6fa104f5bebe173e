"""`holdfast run`: supervise a job in the foreground."""

from __future__ import annotations

import os
import random
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import next_step, options, output, serve
from holdfast.cli.help_text import examples
from holdfast.cli.job_settings import setting_names, show_settings
from holdfast.cli.progress import progress
from holdfast.clock import now_ms
from holdfast.errors import Conflict, Failed, HoldfastError, Invalid, Unsupported
from holdfast.extras import require_package

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.config.policies import Fallback
    from holdfast.config.settings import Settings
    from holdfast.jobs.definition import Job
    from holdfast.jobs.events import JobEvent
    from holdfast.server.server_settings import ServerSettings

QUIET_S = 5.0
# Events that are printed even with --quiet, because an error occurred while the job continues.
_TROUBLE = frozenset(
    ("restarting", "deposed", "caution", "unrecorded", "unwatched", "untold", "no-savepoint", "no-digests")
)


@examples("visits.py", "visits.py --set trigger='5 seconds' --dry-run")
def run(
    target: Annotated[
        str,
        typer.Argument(metavar="FILE.py[:JOB]", help="The job file, and the job in it if there are several."),
    ],
    *,
    set_: options.Pairs = None,
    conf: options.Conf = None,
    savepoint: Annotated[
        list[str] | None,
        typer.Option(
            "--savepoint",
            "-s",
            metavar="[QUERY=]SP",
            help="The savepoint to start from; the checkpoint must not exist yet. Repeat it for each query.",
        ),
    ] = None,
    master: options.Master = None,
    rest: Annotated[
        bool,
        typer.Option("--rest/--no-rest", help="Serve REST and the dashboard while the job runs."),
    ] = True,
    port: serve.Port = None,
    host: serve.Host = "127.0.0.1",
    token: serve.Token = None,
    token_file: serve.TokenFile = None,
    tls_cert: serve.TlsCert = None,
    tls_key: serve.TlsKey = None,
    savepoint_dir: serve.Savepoints = None,
    root: serve.Roots = None,
    fall_back_to: Annotated[
        str | None,
        typer.Option(
            "--on-damage",
            metavar="batch|savepoint",
            help="The fallback for a damaged checkpoint: its newest whole batch or the newest savepoint.",
        ),
    ] = None,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="Keep a second driver ready, which takes over in a few seconds when the first one ends.",
        ),
    ] = False,
    ha: options.Ha = None,
    lease: options.Lease = None,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Run a job under supervision until it ends, is stopped, or fails for good.

    The first Ctrl-C stops the job after the current batch, the second one at once. With --ha this supervisor
    waits while another one leads the job, and Ctrl-C hands the job over to the next.
    """
    savepoints = _savepoints(savepoint)
    fallback = _fallback(fall_back_to)
    settings = options.settings(home, ha=ha, lease=lease, port=port)
    served = None
    if rest:
        served = serve.server_settings(
            host=host,
            port=settings.port,
            token=token,
            token_file=token_file,
            tls_cert=tls_cert,
            tls_key=tls_key,
            savepoints=savepoint_dir,
            roots=root,
        )
    if dry_run:
        _explain(
            target, options.pairs("--set", set_), options.pairs("--conf", conf), savepoints, settings, json
        )
        if served is not None:
            serve.say_warning(served)
        next_step.say_for_real(json)
        return
    from holdfast.jobs.loader import require_job_file
    from holdfast.jobs.processes.driver import DriverSpec
    from holdfast.jobs.processes.driver_process import DriverProcess
    from holdfast.jobs.state_home import StateHome
    from holdfast.jobs.supervisor.supervisor import Supervisor
    from holdfast.model import JobState
    from holdfast.ownership.elections import elections

    elected = None if settings.leading is None else elections(settings.leading)
    require_job_file(target)
    require_package("pyspark")
    place = settings.ensure_home().resolve()
    spec = DriverSpec(
        target=target,
        home=str(place),
        overrides=options.pairs("--set", set_),
        conf=options.pairs("--conf", conf),
        master=master,
        savepoints=savepoints,
        fallback=fallback,
        standby=standby,
    )
    supervisor = Supervisor(
        spec,
        StateHome(place),
        _emit_event if json else narrator(),
        clock=now_ms,
        rng=random.Random(),  # noqa: S311 - spreads restarts; not security-relevant
        launch=lambda started: DriverProcess.start(started, quiet=json),
        elections=elected,
    )
    with _served(place, served, json):
        outcome = supervisor.run()
    if outcome.state is JobState.FAILED:
        raise Failed(
            "the job failed and will not be restarted",
            code="HF-E1003",
            where=target,
            found=outcome.reason,
            hint=(
                "read the logs of the attempts, as listed by `holdfast status JOB`; committed batches are"
                " unaffected"
            ),
        )
    next_step.say_looked_up(json, lambda: _after_run(target, home))


def _after_run(target: str, home: str | None) -> tuple[str, ...]:
    """Return the next step after a run: show the first query's state, or without state the job's status."""
    jobs = options.control(home)
    name = next((status.job.name for status in jobs.jobs() if status.job.target == target), None)
    if name is None:
        return ()
    details = jobs.details(name)
    stateful = {batch.query for batch in details.newest() if batch.operators}
    found = [query for query in details.queries if query.name in stateful]
    if not found:
        return ("status", name, *next_step.home_words(home))
    place = name if len(details.queries) == 1 else next_step.typed(found[0].checkpoint)
    return ("state", "list", place, *next_step.home_words(home))


@contextmanager
def _served(home: Path, settings: ServerSettings | None, json: bool) -> Iterator[None]:
    """Serve HTTP during the job, if requested; the job runs even if the port is in use."""
    if settings is None:
        yield
        return
    from holdfast.server.access.guard import secured
    from holdfast.server.process.embedded_server import EmbeddedServer

    settings = secured(settings, home)

    def not_served(error: HoldfastError) -> None:
        if json:
            output.emit_json({"event": "not-served", **error.as_dict()})
        else:
            output.insist(f"HTTP is not served: {error}")

    try:
        require_package("uvicorn")
        beside = EmbeddedServer(home, settings, not_served)
    except (Conflict, Unsupported) as error:
        not_served(error)
        yield
        return
    if json:
        output.emit_json(
            {"event": "serving", "url": beside.url, "home": str(home)} | serve.notes(settings, beside.url)
        )
    else:
        output.say(f"serving at {beside.url}")
        serve.say_notes(settings, beside.url)
    beside.start()
    try:
        yield
    finally:
        beside.close()


def _fallback(given: str | None) -> Fallback | None:
    """Parse the fallback option.

    Raises:
        Invalid: The fallback is unknown.
    """
    from holdfast.config.policies import FALLBACKS

    found = next((way for way in FALLBACKS if way == given), None)
    if given is not None and found is None:
        raise Invalid(
            "unknown fallback",
            code="HF-E2141",
            where=f"--on-damage {given}",
            expected=" or ".join(FALLBACKS),
            hint="omit --on-damage to end the job at a damaged checkpoint, with nothing replaced",
        )
    return found


def _savepoints(given: list[str] | None) -> dict[str, str]:
    """Return the savepoint of each query, after checking that all exist.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: The manifest of a savepoint is damaged.
        Invalid: A query has two savepoints, or an address is not valid.
    """
    found: dict[str, str] = {}
    for text in given or []:
        query, equals, address = text.partition("=")
        if not equals or "/" in query or "@" in query:  # an address or a label that contains an equals sign
            query, address = "", text
        if query in found:
            raise Invalid(
                "several savepoints given for one query"
                if query
                else "several savepoints given without a query",
                code="HF-E2142",
                where="-s",
                found=f"{found[query]} and {address}",
                hint="give each query one savepoint: -s QUERY=SP",
            )
        found[query] = _whole_address(address)
    return found


def _whole_address(address: str) -> str:
    """Return the absolute address of a savepoint, which the driver can use without resolving it.

    Raises:
        Unsupported: A Spark newer than the installed one wrote the savepoint.
    """
    from holdfast.checkpoints.record import savepoint_writer
    from holdfast.config.installed_spark import InstalledSpark
    from holdfast.savepoints.address import StateAddress
    from holdfast.savepoints.catalog import load, savepoint_uri

    catalog, savepoint_id = StateAddress.resolve(address).open_savepoint()
    manifest = load(catalog, savepoint_id)
    uri = savepoint_uri(catalog, manifest.savepoint_id)
    savepoint_writer(uri, manifest, InstalledSpark.here(os.environ)).refuse_newer()
    return uri


def _explain(
    target: str,
    overrides: dict[str, str],
    conf: dict[str, str],
    savepoints: dict[str, str],
    settings: Settings,
    json: bool,
) -> None:
    from pathlib import Path

    from holdfast.checkpoints.record import refuse_newer
    from holdfast.config.units import exact_duration
    from holdfast.jobs.loader import explained, load_job

    loaded = load_job(target).with_overrides(overrides)
    refuse_newer([loaded.checkpoint.uri(Path.cwd())], settings.real_home)
    if savepoints:
        _check(loaded, conf, savepoints, settings)
    job = explained(loaded)
    if json:
        leading = None if settings.leading is None else asdict(settings.leading)
        own = [asdict(setting) for setting in settings.resolved()]
        output.emit_json(
            {
                "dry_run": True,
                "savepoints": savepoints,
                "leading": leading,
                "settings": own,
                **job.as_dict(),
            }
        )
        return
    output.fields([("job", job.name), ("checkpoint", job.checkpoint), ("continues", job.goes_on)])
    if settings.leading is not None:
        lease = exact_duration(settings.leading.lease_ms)
        output.line(
            f"the leading supervisor is elected at {settings.leading.address}, with a lease of {lease}"
        )
    for query, savepoint in savepoints.items():
        output.line(f"{query or 'its query'} would start from {savepoint}; the checkpoint must not exist yet")
    output.line()
    show_settings(zip(setting_names(loaded), job.knobs, strict=True))
    output.line()
    output.table(
        ["OPTION", "VALUE", "FROM"],
        [(setting.name, setting.value, setting.source) for setting in settings.resolved()],
    )


def _check(job: Job, conf: dict[str, str], savepoints: dict[str, str], settings: Settings) -> None:
    """Run the checks of a run that need no Spark."""
    from holdfast.jobs.state_home import StateHome
    from holdfast.jobs.trials.preflight import check_run

    home, alone = StateHome(settings.real_home), settings.leading is None
    with progress("verify", "files") as tell:
        check_run(job, savepoints, conf, home, now_ms, alone=alone, tell=tell)


def narrator() -> Callable[[JobEvent], None]:
    """Return a function that prints each event on a line, and batches once per interval and query."""
    told: dict[str, float] = {}

    def tell(event: JobEvent) -> None:
        if event.kind == "batch":
            query, now = str(event.facts["query"]), time.monotonic()
            if now - told.get(query, -QUIET_S) < (1.0 if sys.stderr.isatty() else QUIET_S):
                return
            told[query] = now
        (output.insist if event.kind in _TROUBLE else output.say)(event.text)

    return tell


def _emit_event(event: JobEvent) -> None:
    if not output.quiet():
        output.emit_json({"event": event.kind, "text": event.text, **event.facts})
