"""`holdfast check`: check which state of a savepoint new code or a different Spark version can use."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import checkpoint_of, whole_address, whole_address_or_none
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.cli.standard_streams import without_sparks_words
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from holdfast.model import StateVerdict, UpgradeReport
    from holdfast.savepoints.spark_upgrade import SparkReport


_SPARK_VERDICTS = {
    "goes on": "Spark {} can continue from this state",
    "doubtful": "Spark {} can continue from this state, but state or results may become wrong",
    "fails": "Spark {} cannot continue from this state",
}
_GROUPS = {"fails": "blockers:", "meaning": "risks:", "none": "notes:"}
_STATE_ALONE = "--spark cannot be combined with code or an option for code"


def check_for_spark(
    context: typer.Context, target: str, spark: str, query: str | None, home: str | None, *, json: bool
) -> SparkReport:
    """Check the state of a savepoint, a checkpoint or a job, and print the verdict.

    Raises:
        Invalid: Code, or an option that applies only to code, was given.
    """
    for name in ("against", "old", "set_", "conf", "master", "deep"):
        if context.params.get(name):
            raise Invalid(
                _STATE_ALONE,
                code="HF-E2117",
                where=f"--{name.rstrip('_')}",
                hint=f"run `holdfast check --spark {spark} SAVEPOINT`",
            )
    if target.partition(":")[0].endswith(".py"):
        raise Invalid(
            _STATE_ALONE,
            code="HF-E2117",
            where=target,
            hint=f"run `holdfast check --spark {spark} SAVEPOINT`",
        )
    address = checkpoint_of(whole_address(context, target), home, query)
    report = hf.check_spark(address, spark, query=query, home=options.settings(home).real_home)
    output.show(report, json, _show_spark)
    return report


def _show_spark(report: SparkReport) -> None:
    written = " or ".join(report.written_by)
    output.fields(
        [
            ("written by", f"Spark {written}" + ("" if report.noted is None else " (recorded)")),
            ("batch", report.batch_id),
            ("operators", ", ".join(report.operators) or "none"),
            (
                "state",
                "none" if report.provider is None else f"{report.provider}, format {report.state_format}",
            ),
        ]
    )
    for effect, group in groupby(report.findings, key=lambda finding: finding.effect.value):
        output.line()
        output.line(_GROUPS[effect])
        for finding in group:
            said = [finding.text, finding.hint, finding.reference and f"({finding.reference})"]
            output.prose(f"- {'; '.join(filter(None, said[:2]))} {said[2] or ''}".rstrip(), "  ")
    if report.filled:
        output.line()
        output.prose("settings that this checkpoint does not pin, and the values that Spark will use:")
        for setting in report.filled:
            value = "(from the session)" if setting.value is None else setting.value
            output.prose(f"- {setting.name}={value}: {setting.meaning}", "  ")
    output.line()
    tested = "" if report.tested else "; not tested with this pair of releases"
    output.line(f"{_SPARK_VERDICTS[report.verdict].format(report.spark)} (batch {report.batch_id}{tested})")


_VERDICTS = {
    "kept": "all state is kept",
    "loses": "the query would start, but state would be lost or reinterpreted",
    "fails": "the query would not start",
}


@examples(
    "visits.py --against savepoints/20260305T080000",
    "--spark 4.2 savepoints/20260305T080000",
)
def check(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py[:JOB]|SP",
            help="The new code and its job; with --spark, a savepoint, a checkpoint or a job.",
        ),
    ],
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="CHECKPOINT|JOB|SP",
            help="The state: a savepoint, or the newest batch of a checkpoint or a job.",
            callback=whole_address_or_none,
        ),
    ] = None,
    spark: Annotated[
        str | None,
        typer.Option(
            "--spark",
            metavar="VERSION",
            help="Check the state for a Spark version, 3.4 to 4.3, instead of for new code.",
        ),
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", metavar="NAME", help="The query, if the job has several.")
    ] = None,
    old: Annotated[
        str | None,
        typer.Option(
            "--old",
            metavar="FILE.py[:JOB]",
            help="The code that wrote the state, if the savepoint does not record its plan.",
        ),
    ] = None,
    set_: options.Pairs = None,
    conf: options.Conf = None,
    master: Annotated[str | None, typer.Option("--master", help="The Spark master. [local[2]]")] = None,
    home: options.Home = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also count the keys of large state, which reads all of it.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Check which state of a savepoint new code would keep; its sources and sinks are not started.

    A state is kept (as it is, or read through a new schema), reinterpreted (different code computed its
    rows), lost (the new code does not have it), new (it starts empty) or refused (the new code cannot read
    it, so the query would not start). If `state migrate --code` fixes a refusal, the report ends with that
    command.

    Exit code 0: all state is kept; 1: some would be lost or reinterpreted; 2: the query would not start.
    Spark plans the code on this machine, which takes a few seconds.

    With --spark, check whether that Spark version can continue from the state. Only files are read. Exit
    code 0: yes; 1: uncertain; 2: no.
    """
    if spark is not None:
        code = check_for_spark(context, target, spark, query, home, json=json).exit_code
        if code:
            raise typer.Exit(code)
        return
    if against is None:
        raise Invalid(
            "no state given to check the code against",
            code="HF-E2118",
            where="--against",
            expected="a savepoint, a checkpoint or a job",
            hint=f"run `holdfast check {target} --against SAVEPOINT`",
        )
    from holdfast.jobs.loader import require_job_file

    address = checkpoint_of(against, home, query)
    for file in (target, old):
        if file is not None:
            require_job_file(file)
    with without_sparks_words() as words, progress("check", "steps", words) as tell:
        report = hf.check(
            target,
            against=address,
            query=query,
            old=old,
            overrides=options.pairs("--set", set_),
            conf=options.pairs("--conf", conf),
            master=master,
            home=options.settings(home).ensure_home().resolve(),
            deep=deep,
            tell=tell,
        )
    given = (*next_step.given_words("--set", set_), *next_step.given_words("--conf", conf))
    if report.migration is not None:
        call = _migrate_words(report, next_step.savepoint_word(against), old, query, given)
        report = replace(report, next=shlex.join(("holdfast", *call)))
    output.show(report, json, show_verdict)
    next_step.say_looked_up(json, lambda: _after_check(report, against, old, given, home))
    if report.exit_code:
        raise typer.Exit(report.exit_code)


@examples("savepoints/20260305T080000 4.3", "checkpoints/visits 4.2 --json")
def check_spark(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT|JOB|SP", help="A savepoint, a checkpoint or a job.", callback=whole_address
        ),
    ],
    spark: Annotated[str, typer.Argument(metavar="VERSION", help="The Spark version, 3.4 to 4.3.")],
    query: options.Query = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Check whether a different Spark version can continue from a savepoint or checkpoint.

    Only files are read. Exit code 0: yes; 1: uncertain; 2: no.
    """
    code = check_for_spark(context, target, spark, query, home, json=json).exit_code
    if code:
        raise typer.Exit(code)


def _after_check(
    report: UpgradeReport, against: str, old: str | None, given: tuple[str, ...], home: str | None
) -> tuple[str, ...]:
    """Return the next step after a verdict: start the new code, inspect what would be lost, or restore."""
    from holdfast.model import Verdict
    from holdfast.savepoints.address import StateAddress

    place, saved = next_step.savepoint_word(against), StateAddress.parse(against).is_savepoint
    if report.verdict == "fails":
        # The report contains the fix of a refusal, if one exists; otherwise show the columns that the code
        # must match.
        return () if report.next is not None else ("state", "list", place)
    if report.verdict == "kept":
        job = next_step.job_at(_checkpoint(against), home)
        if job is not None and job.status.supervised and not job.status.job.state.terminal:
            return ("stop", job.status.job.name, "--savepoint", *next_step.home_words(home))
        return next_step.run_words(report.target, home, *given)
    lost = next((state for state in report.states if state.verdict is Verdict.DROP), None)
    if lost is not None:
        name = lost.state_name or lost.state
        number = () if lost.operator_id is None else ("--operator", str(lost.operator_id))
        return ("state", "scan", place, name, *number, "--limit", "10")
    if saved:
        compare = ("fork", place, "--compare", report.target, "--original")
        return () if old is None else (*compare, old)
    catalog = next_step.catalog_for(_checkpoint(against), home)
    return () if catalog is None else ("savepoint", "take", place, catalog)


def _migrate_words(
    report: UpgradeReport, place: str, old: str | None, query: str | None, given: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the arguments that plan a migration of the refused state for the new code."""
    code = () if old is None else ("--old", old)
    name = () if query is None else ("--query", query)
    return ("state", "migrate", place, "--code", report.target, *code, *name, *given, "--dry-run")


def _checkpoint(against: str) -> str:
    """Return the address of a checkpoint, or of the checkpoint of which a savepoint was taken."""
    from holdfast.savepoints.address import StateAddress
    from holdfast.savepoints.catalog import load
    from holdfast.storage import open_storage

    saved = StateAddress.resolve(against)
    return load(*saved.open_savepoint()).checkpoint if saved.is_savepoint else open_storage(against).uri


def show_verdict(report: UpgradeReport) -> None:
    """Print the verdict on each state, and the other differences."""
    output.table(
        ["OPERATOR", "KIND", "STATE", "VERDICT", "KEYS", "BYTES"],
        [
            (
                _operator(state),
                state.operator_kind,
                state.state_name or state.state,
                state.verdict.word,
                state.keys,
                state.size_bytes,
            )
            for state in report.states
        ],
    )
    for state in report.states:
        if state.why or state.spark_error:
            error = "" if state.spark_error is None else f" ({state.spark_error})"
            output.prose(f"{state.state_name or state.state} is {state.verdict.word}: {state.why}{error}")
    for verdict in dict.fromkeys(state.verdict for state in report.states):
        output.prose(f"{verdict.word}: {verdict.means}")
    for change in report.changes:
        output.line()
        output.prose(f"{change.what}: {change.effect.word}")
        output.prose(f"{_words(change.before)} -> {_words(change.after)}", "  ")
        output.prose(change.why, "  ")
    for missing in report.not_compared:
        output.line()
        output.prose(f"not compared: {missing}")
    output.line()
    tried = "" if report.trial.ran else "; not tried in Spark"
    output.line(f"{_VERDICTS[report.verdict]} (batch {report.batch_id}{tried})")
    if report.next is not None:
        needs = f"; also needed: {report.migration}" if report.migration else ""
        output.line(f"fix: convert the state to the schema of the new code{needs}")
        output.whole(f"  {report.next}")


def _operator(state: StateVerdict) -> str:
    name = state.display_name or state.operator
    return name if state.operator_id is None else f"{state.operator_id} {name}"


def _words(text: str | None) -> str:
    return "none" if text is None else text
