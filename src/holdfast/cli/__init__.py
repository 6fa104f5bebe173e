"""The command line, with one module per verb. A verb computes a value, and `output` renders it."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from holdfast.cli import (
    advise,
    alerts,
    apply,
    bench,
    check,
    checkpoint,
    completion,
    cost,
    demo,
    doctor,
    drill,
    explain,
    fork,
    help_text,
    interrupts,
    lint,
    mirror,
    offsets,
    options,
    output,
    run,
    savepoint,
    savepoint_proof,
    serve,
    short_verbs,
    skew,
    standard_streams,
    state,
    state_edit,
    state_move,
    status,
    stop,
    ttl,
    upgrade,
    watch,
)
from holdfast.cli import list as list_
from holdfast.errors import HoldfastError, Internal, Invalid, NotFound, Unavailable
from holdfast.extras import missing_package

TRACEBACK = "HOLDFAST_TRACEBACK"
# Errors of a path that a retry cannot fix.
_WRONG_PATHS = frozenset(
    {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ENXIO}
)
# Typer's base class of usage errors, which it does not export itself.
_WRONG_CALL: type[Any] = typer.BadParameter.__mro__[1]


# Option names from before 0.1, which scripts may still use: they are accepted but not shown in help.
_FORMER_OPTIONS: Final[Mapping[tuple[str, ...], Mapping[str, str]]] = {
    (): {
        "--stopped": "--confirm-stopped",
        "--fall-back-to": "--on-damage",
        "--why": "--reason",
        "--anew": "--reset",
    },
    ("alerts", "export"): {"--to": "--output"},
    ("checkpoint", "show"): {"--partitions": "--by-partition"},
    ("doctor",): {"--deep": "--start-spark"},
    ("scan",): {"--to": "--output"},
    ("show",): {"--partitions": "--by-partition"},
    ("skew",): {"--keys": "--top"},
    ("state", "edit"): {"--to": "--catalog"},
    ("state", "migrate"): {"--to": "--code"},
    ("state", "scan"): {"--to": "--output"},
}


def _with_present_names(args: list[str]) -> list[str]:
    """Return the arguments with former option names replaced by the current ones."""
    former = {
        name: present
        for words, names in _FORMER_OPTIONS.items()
        if tuple(args[: len(words)]) == words
        for name, present in names.items()
    }
    parted = [argument.partition("=") for argument in args]
    return [former.get(name, name) + equals + value for name, equals, value in parted]


class _CommandLine(short_verbs.Verbs):
    """The root command group, which converts errors to messages and exit codes and extends the help."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        contexts = help_text.narrow_contexts(self.context_class)
        for command in (self, *_below(self.commands.values())):
            command.context_class = contexts
            command.short_help = command.short_help or _summary(command.help or "")
        for words, verb in help_text.verbs("holdfast", self.commands.values()):
            verb.params.append(options.Quiet())
            help_text.show_in_help(words, verb)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Show the first verbs if no verb is given."""
        if args or ctx.resilient_parsing:
            return super().parse_args(ctx, _with_present_names(args))
        output.insist(help_text.first_verbs())
        raise typer.Exit(2)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            output.insist("interrupted")
            raise typer.Exit(130) from None

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command line, including argument parsing and help, and exit with its exit code."""
        if completion.ASKING in os.environ:
            completion.answer(self)
            sys.exit(0)
        try:
            _require_text(sys.argv[1:])
            return super().main(*args, **options)
        except SystemExit as end:
            # Ctrl-C outside a verb, for example while options are parsed, reaches Click first.
            if interrupts.is_one(end.__context__):
                output.insist("interrupted")
            # Typer has already printed the usage error as text.
            elif isinstance(end.__context__, _WRONG_CALL) and "--json" in sys.argv:
                output.emit_json(_wrong_call(end.__context__).as_dict())
            raise
        except HoldfastError as error:
            failed = error
        except Exception as error:
            if interrupts.stands_for_one(error):
                output.insist("interrupted")
                sys.exit(130)
            if os.environ.get(TRACEBACK):
                traceback.print_exc()
            failed = _translate_error(error)
        output.report_error(failed, as_json="--json" in sys.argv)
        sys.exit(failed.exit_code)


def _require_text(words: list[str]) -> None:
    """Check that all arguments are valid UTF-8, as names and Java paths must be."""
    try:
        b" ".join(map(os.fsencode, words)).decode()
    except UnicodeDecodeError as error:
        raise Invalid(
            "an argument is not valid UTF-8",
            code="HF-E2112",
            found=" ".join(ascii(word) for word in words if not word.isprintable()),
            hint="pass the argument as UTF-8; rename the file or directory if its name is not UTF-8",
        ) from error


def _wrong_call(error: Any) -> Invalid:
    """Convert Click's error about invalid arguments into an error of Holdfast."""
    return Invalid(
        error.format_message().removesuffix("."),
        code="HF-E2113",
        hint=None if error.ctx is None else f"see `{error.ctx.command_path} --help`",
    )


def _translate_error(error: Exception) -> HoldfastError:
    """Convert an unhandled exception into an error with a code and a hint."""
    if isinstance(error, OSError) and error.errno is not None:
        where = error.filename if isinstance(error.filename, str) else None
        if where is None and _is_nowhere():
            return NotFound(
                "the working directory was deleted",
                code="HF-E3022",
                hint="change to an existing directory with `cd`",
            )
        if error.errno in _WRONG_PATHS:
            return Invalid(
                "the operating system rejected a path",
                code="HF-E2528",
                where=where,
                found=error.strerror,
                hint="check the path and its permissions",
            )
        return Unavailable(
            "an operation of the operating system failed",
            code="HF-E5068",
            where=where,
            found=error.strerror,
            hint="check the path, its permissions and the free disk space",
        )
    return missing_package(error) or Internal(
        "internal error",
        code="HF-E9016",
        found=f"{type(error).__name__}: {error}",
        hint=f"run the command again with {TRACEBACK}=1, and report the traceback",
    )


def _is_nowhere() -> bool:
    """Return True if the working directory was deleted."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _summary(text: str) -> str:
    """Return the first paragraph of a help text on one line, without Typer's shortening."""
    return " ".join(text.split("\n\n", maxsplit=1)[0].split())


def _below(commands: Iterable[Any]) -> Iterator[Any]:
    """Yield commands and, recursively, the commands of groups."""
    for command in commands:
        yield command
        if isinstance(command, TyperGroup):
            yield from _below(command.commands.values())


app = typer.Typer(
    name="holdfast",
    cls=_CommandLine,
    help="State management for Spark Structured Streaming.",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help takes a third of the time and is readable in a pipe
)


def _version(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        short_verbs.version()
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("demo", short_help="Run a sample job, kill its driver, and check every result.")(demo.demo)
app.command("tour", short_help="Walk through the commands on a small checkpoint, without Spark.")(demo.tour)
app.command("init", short_help="Write a small job to start with, and its test.")(demo.init)
app.command("run", short_help="Run a job under supervision.")(run.run)
app.command("serve", short_help="Serve the REST API and the dashboard for all jobs of the state home.")(
    serve.serve
)
app.command("list", short_help="List the jobs of the state home.")(list_.list_jobs)
app.command("status", short_help="Show one job: state, batches, savepoints, recoveries, alerts.")(
    status.status
)
app.command("stop", cls=stop.OptionalDirectory, short_help="Stop a job after its current batch.")(stop.stop)
app.command("restart", short_help="Let a new driver continue a job after its current batch.")(stop.restart)
app.command("upgrade", short_help="Replace the code of a job, and return to the old code if it fails.")(
    upgrade.upgrade
)
app.command("apply", short_help="Start, stop and upgrade jobs until they are as a file says.")(apply.apply)
app.command("cancel", short_help="End a job's driver at once.")(stop.cancel)
app.command("skew", short_help="Show which keys and partitions have the most data.")(skew.skew)
app.command("mirror", short_help="Keep savepoints of a running query on a different storage.")(mirror.mirror)
app.command("watch", short_help="Monitor a query that runs outside Holdfast.")(watch.watch)
app.add_typer(alerts.app, name="alerts", short_help="List alerts of jobs, or export the alert rules.")
app.add_typer(
    checkpoint.app, name="checkpoint", short_help="Show, list or verify the checkpoint of any query."
)
app.add_typer(
    savepoint.app, name="savepoint", short_help="Take, list, show, verify or delete savepoints of any query."
)
savepoint.app.command("verify")(savepoint_proof.verify)
savepoint.app.command("diff")(savepoint_proof.diff)
savepoint.app.command("delete")(savepoint_proof.delete)
savepoint.app.command("gc")(savepoint_proof.gc)
savepoint.app.command("digest")(savepoint_proof.digest)
savepoint.app.command("label")(savepoint_proof.label)
state.app.command("history")(state.history)
state.app.command("explain")(state.explain)
state.app.command("diff")(savepoint_proof.diff)
state.app.command("edit")(state_edit.edit)
state.app.command("undo")(state_edit.undo)
state.app.command("erase")(state_edit.erase)
state.app.command("migrate", short_help="Move state to another backend, partition count or format.")(
    state_move.migrate
)
state.app.command(
    "bootstrap",
    short_help="Create a savepoint from historical data, for a warm start.",
)(state_move.bootstrap)
app.add_typer(state.app, name="state", short_help="List, get, scan or explain the state of any query.")
app.command("restore", short_help="Create a checkpoint from a savepoint, for the same query.")(fork.restore)
app.command("fork", short_help="Create a checkpoint from a savepoint, for a different query.")(fork.fork)
app.command("drill", short_help="Measure how long a recovery from a savepoint takes.")(drill.drill)
app.command("rescale", short_help="Create a checkpoint with a different number of partitions.")(fork.rescale)
app.command("check", short_help="Check which state new code would keep.")(check.check)
app.command("lint", short_help="Find problems in a query's code, plan or checkpoint.")(lint.lint)
app.command("cost", short_help="Estimate the cost of state and the savings of changes.")(cost.cost)
app.command("advise", short_help="Recommend changes to a checkpoint, a job or a planned job.")(advise.advise)
app.add_typer(offsets.app, name="offsets", short_help="Show or change the source offsets of a query.")
app.command("ttl", short_help="Show how much state a TTL would free.")(ttl.ttl)
app.command("doctor", short_help="Check the installation, and show the defaults of jobs.")(doctor.doctor)
app.command("explain", short_help="Explain the code of an error, a lint rule or advice.")(explain.explain)
app.command("completion", short_help="Print the completion script of a shell.")(completion.completion)
app.command("bench", short_help="Measure Holdfast against raw PySpark.", hidden=not bench.AVAILABLE)(
    bench.bench
)
app.command("evolve", short_help="Convert state to the schema of new code.")(state_move.evolve)
app.command("compare", short_help="Run old and new code from a savepoint, and compare the results.")(
    fork.compare
)
app.command("check-spark", short_help="Check whether a different Spark version can use the state.")(
    check.check_spark
)
app.command("help", short_help="Show the help of a command.")(short_verbs.show_help)
app.command("version", short_help="Print the version.")(short_verbs.version)


# Commands that show, complete or call others.
_NEED_ALL: Final = frozenset(("help", "completion", "demo", "tour", *short_verbs.SHORT))


def _called(words: Sequence[str]) -> typer.Typer:
    """Return a command line with only the called command, or with all commands if suggestions may need them.

    Building all commands takes longer than most commands that read files.
    """
    if completion.ASKING in os.environ or not words or words[0] in _NEED_ALL:
        return app
    return _only(app, words) or app


def _only(group: typer.Typer, words: Sequence[str]) -> typer.Typer | None:
    """Return a copy of a group with only the called command; None if the group has no such command."""
    if not words:
        return None
    only = copy(group)
    only.registered_commands = [each for each in group.registered_commands if _name(each) == words[0]]
    only.registered_groups = []
    for each in group.registered_groups:
        if each.name == words[0] and each.typer_instance is not None:
            below = copy(each)
            below.typer_instance = _only(each.typer_instance, words[1:])
            if below.typer_instance is None:
                return None
            only.registered_groups.append(below)
    return only if only.registered_commands or only.registered_groups else None


def _name(command: Any) -> str:
    return str(command.name or command.callback.__name__)


def main() -> None:
    """Run the `holdfast` command."""
    standard_streams.prepare()
    _called(sys.argv[1:])(prog_name="holdfast", **help_text.arguments())
