"""The command line: one file a verb. A verb computes a value, `output` renders it."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from holdfast.cli import (
    advise,
    alerts,
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
    watch,
)
from holdfast.cli import list as list_
from holdfast.errors import HoldfastError, Internal, Invalid, NotFound, Unavailable
from holdfast.extras import missing_package

TRACEBACK = "HOLDFAST_TRACEBACK"
# What the system says of a path that no trying again makes right.
_WRONG_PATHS = frozenset(
    {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ENXIO}
)
# The library's error for arguments that it cannot read, which it exports under the names of its kinds alone.
_WRONG_CALL: type[Any] = typer.BadParameter.__mro__[1]


class _CommandLine(short_verbs.Verbs):
    """Turns every error into its message and exit code, and gives every verb --quiet and its examples."""

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
        """Show where to begin, instead of every verb, to who gives none."""
        if args or ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        output.insist(help_text.first_verbs())
        raise typer.Exit(2)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            output.insist("interrupted")
            raise typer.Exit(130) from None

    def main(self, *args: Any, **options: Any) -> Any:
        """Everything, the reading of arguments and the printing of help included."""
        if completion.ASKING in os.environ:
            completion.answer(self)
            sys.exit(0)
        try:
            _require_text(sys.argv[1:])
            return super().main(*args, **options)
        except SystemExit as end:
            # Ctrl-C outside a verb, such as while its options are read, reaches the library before us.
            if interrupts.is_one(end.__context__):
                output.insist("interrupted")
            # What is wrong with a call the library has said itself, for people.
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
    """Refuse what is not a text: no name of ours can be made of it, and Java has no path of it."""
    try:
        b" ".join(map(os.fsencode, words)).decode()
    except UnicodeDecodeError as error:
        raise Invalid(
            "an argument is no text in UTF-8",
            code="HF-E2112",
            found=" ".join(ascii(word) for word in words if not word.isprintable()),
            hint="rename what it names",
        ) from error


def _wrong_call(error: Any) -> Invalid:
    """Convert the library's error about unreadable arguments into one of ours."""
    return Invalid(
        error.format_message().removesuffix("."),
        code="HF-E2113",
        hint=None if error.ctx is None else f"see `{error.ctx.command_path} --help`",
    )


def _translate_error(error: Exception) -> HoldfastError:
    """An error that nothing has answered, in the words of the system where that has refused something."""
    if isinstance(error, OSError) and error.errno is not None:
        where = error.filename if isinstance(error.filename, str) else None
        if where is None and _is_nowhere():
            return NotFound(
                "the working directory is gone", code="HF-E3022", hint="change to one that is there"
            )
        kind = Invalid if error.errno in _WRONG_PATHS else Unavailable
        return kind(
            "the system does not do what it was asked",
            where=where,
            found=error.strerror,
            hint="see that the path is right, that the disk has room, and that this user may use it",
        )
    return missing_package(error) or Internal(
        "something went wrong inside Holdfast",
        code="HF-E9016",
        found=f"{type(error).__name__}: {error}",
        hint=f"please report it, with what `{TRACEBACK}=1` adds to this message",
    )


def _is_nowhere() -> bool:
    """Return whether the working directory has been removed."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _summary(text: str) -> str:
    """Return the summary of a verb for a list: all of it, where the library would cut it off."""
    return " ".join(text.split("\n\n", maxsplit=1)[0].split())


def _below(commands: Iterable[Any]) -> Iterator[Any]:
    """The verbs, and the words that represent several."""
    for command in commands:
        yield command
        if isinstance(command, TyperGroup):
            yield from _below(command.commands.values())


app = typer.Typer(
    name="holdfast",
    cls=_CommandLine,
    help="State management for streaming on Spark.",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: it takes a third of the time, and a pipe reads it as well
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


app.command("demo", short_help="Run a coffee shop's day, kill its driver, check every answer.")(demo.demo)
app.command("tour", short_help="Walk through the verbs on a small checkpoint, without Spark.")(demo.tour)
app.command("init", short_help="Write a small job to begin with, and its test.")(demo.init)
app.command("run", short_help="Run a job under supervision.")(run.run)
app.command("serve", short_help="Serve REST and the dashboard for all jobs of the state home.")(serve.serve)
app.command("list", short_help="List the jobs of the state home.")(list_.list_jobs)
app.command("status", short_help="Show one job: state, batches, savepoints, recoveries, alerts.")(
    status.status
)
app.command("stop", cls=stop.OptionalDirectory, short_help="Stop a job after its current batch.")(stop.stop)
app.command("cancel", short_help="End a job's driver at once.")(stop.cancel)
app.command("skew", short_help="Show which keys and partitions have the most data.")(skew.skew)
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
    short_help="Make a savepoint from a history, so that a job starts warm.",
)(state_move.bootstrap)
app.add_typer(state.app, name="state", short_help="List, get, scan or explain the state of any query.")
app.command("restore", short_help="Make a checkpoint from a savepoint, for the same query.")(fork.restore)
app.command("fork", short_help="Make a checkpoint from a savepoint, for another query.")(fork.fork)
app.command("drill", short_help="Measure how long a recovery from a savepoint takes.")(drill.drill)
app.command("rescale", short_help="Make a checkpoint with another number of partitions.")(fork.rescale)
app.command("check", short_help="Check which state new code would keep.")(check.check)
app.command("lint", short_help="Say what in a query's code or checkpoint will hurt.")(lint.lint)
app.command("cost", short_help="Show what state costs, and what each change would save.")(cost.cost)
app.command("advise", short_help="Say what would be better for a checkpoint, a job or a plan.")(advise.advise)
app.add_typer(offsets.app, name="offsets", short_help="Show or change the source offsets of a query.")
app.command("ttl", short_help="Show how much state a time to live would remove.")(ttl.ttl)
app.command("doctor", short_help="Check what can run here, and show the defaults of jobs.")(doctor.doctor)
app.command("explain", short_help="Explain the code of an error, of a lint rule or of advice.")(
    explain.explain
)
app.command("completion", short_help="Print the script that completes what is typed at a TAB.")(
    completion.completion
)
app.command("bench", short_help="Measure Holdfast against raw PySpark.", hidden=not bench.AVAILABLE)(
    bench.bench
)
app.command("evolve", short_help="Bring the state into the form of new code.")(state_move.evolve)
app.command("compare", short_help="Run old and new code from a savepoint, and compare.")(fork.compare)
app.command("check-spark", short_help="Check whether another Spark can continue.")(check.check_spark)
app.command("help", short_help="Show the help of a verb.")(short_verbs.show_help)
app.command("version", short_help="Print the version.")(short_verbs.version)


def main() -> None:
    """The `holdfast` command."""
    standard_streams.prepare()
    app(prog_name="holdfast", **help_text.arguments())
