"""`holdfast tour`: the verbs one after the other, on a checkpoint that comes with the package."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.examples import examples
from holdfast.cli.savepoint_records import INTERRUPTED
from holdfast.errors import Conflict, Failed, Invalid

if TYPE_CHECKING:
    from holdfast.demo.tour.steps import Step, Walked

_PROMPT: Final = "Enter goes on, q ends "
_END_KEYS: Final = ("q", "Q", "\x1b")


@examples("", "shop --yes")
def tour(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="Where its files go: a new or an empty directory. [a temporary one]",
            callback=options.on_this_machine,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Run all steps without waiting for a key.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Walk through the verbs on a small checkpoint: each command is shown, then run.

    Enter goes on, q ends. Where input is no terminal, all steps run one after the other. Nothing needs Spark
    or Java, and nothing outside the directory changes. Steps with SQL are left out where the extra `sql` is
    not installed.
    """
    from holdfast.demo.tour.steps import STEPS, Toured, named, unpack

    place = _place(folder)
    try:
        with _written(place):
            unpack(place)
        # The verbs find what was typed in their own process: the directory, and no other state home.
        os.chdir(place)
        for variable in ("HOLDFAST_HOME", "HOLDFAST_CONFIG"):
            os.environ.pop(variable, None)
        quiet = ["--quiet"] if output.quiet() else []  # each verb sets it anew for the process
        waits = sys.stdin is not None and sys.stdin.isatty() and not yes and not json
        if not json:
            _begin(place)
        walked: list[Walked] = []
        steps = [step for step in STEPS if not step.needs_sql or _has_sql()]
        for number, step in enumerate(steps, 1):
            if waits and not _goes_on():
                output.line(f"ended before step {number} of {len(steps)}; the files are in {place}")
                return
            heading = None if json else f"{number}/{len(steps)}  {step.why}"
            walked.append(_walk(context, step, named(step.command, place), heading, quiet))
    except (KeyboardInterrupt, typer.Exit):  # the latter where a verb has answered Ctrl-C
        _forget(place, folder)
        raise
    if json:
        output.emit_json(Toured(str(place), tuple(walked), len(STEPS) - len(steps)).as_dict())
    else:
        _end(place, len(STEPS) - len(steps))
    next_step.say(json, "init")


def _place(folder: Path | None) -> Path:
    with _written(folder or Path(tempfile.gettempdir())):
        if folder is None:
            return Path(tempfile.mkdtemp(prefix="holdfast-tour-")).resolve()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise Conflict(
                "this is not an empty directory",
                where=str(folder),
                hint="name one that is new or empty, or none for a temporary one",
            )
        folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Invalid(
            "the files of the tour cannot be written",
            where=str(folder),
            found=error.strerror or str(error),
            hint="name another directory: holdfast tour DIR",
        ) from error


def _forget(place: Path, folder: Path | None) -> None:
    """A temporary directory goes with the interrupted tour; one that a person has named is the person's."""
    if folder is None:
        os.chdir(place.parent)
        shutil.rmtree(place, ignore_errors=True)
    else:
        output.say(f"the files so far are in {place}")


def _begin(place: Path) -> None:
    output.line("A day at a coffee shop, and the checkpoint of the query that counted visits.")
    output.line("Each command is one that you can type for a checkpoint of your own.")
    output.line()
    output.whole(f"$ cd {shlex.quote(str(place))}")


def _goes_on() -> bool:
    """Wait for a key; say whether the tour goes on."""
    typer.echo(f"\n{_PROMPT}", nl=False, err=True)
    try:
        return typer.getchar() not in _END_KEYS
    except EOFError:  # Ctrl-D
        return False
    finally:
        typer.echo(f"\r{' ' * len(_PROMPT)}\r", nl=False, err=True)


def _walk(context: typer.Context, step: Step, command: str, heading: str | None, quiet: list[str]) -> Walked:
    """Run one step, as `heading` shows it; without a heading its output is only kept.

    Raises:
        Failed: It did not end as it should.
        Exit: Ctrl-C ended it, and that is said.
    """
    from holdfast.demo.tour.steps import Walked

    kept = io.StringIO()
    if heading is not None:
        output.line()
        output.line(heading)
        output.whole(f"$ {command}")
        code = _run(context, command, quiet)
    else:
        with redirect_stdout(kept):
            code = _run(context, command, quiet)
    if code == INTERRUPTED:
        raise typer.Exit(INTERRUPTED)
    if code != step.exit_code:
        raise Failed(
            "a step of the tour did not end as it should",
            where=command,
            found=f"exit code {code}",
            expected=f"exit code {step.exit_code}",
            hint="what it says is above; try `holdfast tour` in another directory",
        )
    return Walked(step.why, command, code, kept.getvalue())


def _run(context: typer.Context, command: str, quiet: list[str]) -> int:
    """Run a line as a shell would, verbs within this process; give its exit code."""
    words = shlex.split(command)
    if words[0] != "holdfast":
        import subprocess

        shell = ["/bin/sh", "-c", command]
        done = subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - our own steps
        sys.stdout.write(done.stdout)
        sys.stdout.flush()
        return done.returncode
    try:
        with next_step.silent():
            context.find_root().command.main(args=[*words[1:], *quiet], prog_name=words[0])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _has_sql() -> bool:
    return all(find_spec(package) for package in ("duckdb", "pyarrow"))


def _end(place: Path, left_out: int) -> None:
    output.line()
    if left_out:
        output.line(f"{left_out} steps were left out; with them: pip install 'holdfast[sql]'")
    output.line(f"That was all. The files are in {place}; nothing else was changed.")
    output.line()
    output.line("With a checkpoint of your own, while its query runs or not:")
    output.line("  holdfast checkpoint verify DIR     is it whole?")
    output.line("  holdfast state list DIR            what is in it?")
    output.line("  holdfast savepoint take DIR SP     keep it in the directory SP")
