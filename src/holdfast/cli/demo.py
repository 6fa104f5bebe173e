"""`holdfast demo`, `tour` and `init`: an example, a tour, and a job to start with."""

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
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.cli.savepoint_proof import INTERRUPTED
from holdfast.clock import now_ms
from holdfast.config.units import counted
from holdfast.errors import Conflict, Failed, Invalid, NotFound
from holdfast.extras import require_package

if TYPE_CHECKING:
    from holdfast.demo.saving import Known
    from holdfast.demo.show import DemoResult
    from holdfast.demo.starter.writing import Starter
    from holdfast.demo.tour.steps import TourStep, Walked


EXAMPLES = ("coffee-shop",)


@examples("", "--seed 11 --keep shop")
def demo(
    example: Annotated[str, typer.Argument(metavar="[coffee-shop]", help="Which example.")] = "coffee-shop",
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same day.")] = 7,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            metavar="DIR",
            help="Keep the day, tables and checkpoint there.",
            callback=options.on_this_machine,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Run a seeded day at a coffee shop, kill its driver half-way, and check every answer.

    Exit code 1 if an answer is not exact, 130 if the run was stopped before its end.
    """
    if example not in EXAMPLES:
        raise NotFound(
            "there is no such example",
            code="HF-E3025",
            found=example,
            expected=", ".join(EXAMPLES),
            hint=f"holdfast demo {EXAMPLES[0]}",
        )
    if keep is not None and keep.exists() and not keep.is_dir():
        raise Conflict(
            "a file is where a directory should be", code="HF-E4006", where=str(keep), hint="name another one"
        )
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise Conflict(
            "the folder is not empty", code="HF-E4008", where=str(keep), hint="name one that is new or empty"
        )
    require_package("pyspark")
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        shown = _show(keep.resolve(), seed)
    else:
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-", ignore_cleanup_errors=True) as folder:
            shown = _show(Path(folder).resolve(), seed)
    if json:
        output.emit_json(shown.as_dict())
    else:
        _render(shown)
    if not shown.exact:
        raise typer.Exit(1)
    if keep is None:
        next_step.say(json, "tour")
    else:
        next_step.say(json, "status", EXAMPLES[0], "--home", str(keep / "home"))


def _show(folder: Path, seed: int) -> DemoResult:
    from holdfast.demo.show import CoffeeShop

    try:
        with progress("coffee shop", "rows") as tell:
            return CoffeeShop(folder, seed, now_ms, tell).run()
    except KeyboardInterrupt:
        output.insist("stopped before the end of the day: no answer was checked")
        raise typer.Exit(INTERRUPTED) from None


def _render(shown: DemoResult) -> None:
    output.line(
        f"coffee shop, seed {shown.seed}: {shown.events:,} events, out of order, some late, some twice"
    )
    output.line()
    output.table(
        ["QUESTION", "ROWS", "LATE", "MISSING", "EXTRA", "EXACT"],
        [
            (
                shown.questions[comparison.name],
                comparison.equal,
                shown.late[comparison.name],
                comparison.missing,
                comparison.extra,
                "yes" if comparison.exact else "NO",
            )
            for comparison in shown.comparisons
        ],
        below=["QUESTION"],
    )
    for comparison in shown.comparisons:
        for sample in comparison.missing_samples:
            output.line(f"  missing from {comparison.name}: {sample}")
        for sample in comparison.extra_samples:
            output.line(f"  too much in {comparison.name}: {sample}")
    output.line()
    output.fields(
        [
            ("batches", shown.batches),
            ("drivers", f"{shown.drivers}, the first killed with SIGKILL half-way"),
            ("recovery", output.duration(shown.recovery_ms)),
            ("state", f"{shown.peak_state_rows:,} rows at its largest, {shown.state_bytes:,} bytes on disk"),
            ("took", output.duration(shown.elapsed_ms)),
        ]
    )
    output.line()
    _render_saved(shown)
    output.line()
    output.line(f"exact: {'yes' if shown.exact else 'no'}")


def _render_saved(shown: DemoResult) -> None:
    """The savepoints, and their difference key by key."""
    saved = shown.saved
    first, second = saved.batches
    output.fields(
        [
            ("savepoints", f"2 of the query regulars while it ran, at batches {first} and {second}"),
            ("second savepoint", f"{saved.size_bytes:,} bytes, {saved.new_bytes:,} new"),
            (
                "restored",
                f"to another directory, {'every key unchanged' if saved.same else 'NOT every key unchanged'}",
            ),
            ("difference", f"{counted(saved.added, 'customer')} added, {saved.changed:,} changed"),
        ]
    )
    for customer in saved.seen:
        output.line(
            f"  {customer.customer}  {_format_known(customer.before)} → {_format_known(customer.after)}"
        )


def _format_known(what: Known | None) -> str:
    if what is None:
        return "nothing known"
    return f"{counted(what.visits, 'visit')}, {what.cents / 100:.2f} spent"


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

    Enter continues, q ends. Where input is no terminal, all steps run one after the other. Nothing needs
    Spark or Java, and nothing outside the directory changes. Steps with SQL are left out where the extra
    `sql` is not installed.
    """
    from holdfast.demo.tour.steps import STEPS, Toured, fill_command, unpack

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
            walked.append(_walk(context, step, fill_command(step.command, place), heading, quiet))
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
                code="HF-E4009",
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
            code="HF-E2122",
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
    """Wait for a key; say whether the tour continues."""
    typer.echo(f"\n{_PROMPT}", nl=False, err=True)
    try:
        return typer.getchar() not in _END_KEYS
    except EOFError:  # Ctrl-D
        return False
    finally:
        typer.echo(f"\r{' ' * len(_PROMPT)}\r", nl=False, err=True)


def _walk(
    context: typer.Context, step: TourStep, command: str, heading: str | None, quiet: list[str]
) -> Walked:
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
            code="HF-E1002",
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


@examples("", "pipelines --name totals")
def init(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]",
            help="Where to write; it is made if need be.",
            callback=options.on_this_machine,
        ),
    ] = Path(),
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="The job's name; its file is NAME.py.")
    ] = "shop",
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Write a small job to begin with: NAME.py, its test, its data and holdfast.toml.

    The job keeps a count and a sum for each customer, over a directory of JSON files. It runs as it is, once
    the extra `spark` and Java are installed; what is missing is said. No file is written over.
    """
    from holdfast.demo.starter.writing import plan_starter, write_starter

    starter = plan_starter(folder, name)
    if not dry_run:
        write_starter(starter)
    output.show_plan(starter, json, _show_files, dry_run=dry_run)
    if starter.install is not None and not json and (dry_run or not next_step.is_wanted(json)):
        output.say(f"install what the job needs and is missing here: {starter.install}")
    if dry_run:
        next_step.say_for_real(json)
    else:
        _say_next(starter, json)


def _show_files(starter: Starter) -> None:
    for file in starter.files:
        output.whole(str(Path(starter.folder) / file))


def _say_next(starter: Starter, json: bool) -> None:
    name = starter.name
    steps = [
        (f"python -m pytest test_{name}.py", "tests the job without Spark"),
        (f"holdfast run {name}.py", "runs it until all orders are read"),
        (f"holdfast state scan {name} totals", "shows what it knows of each customer"),
        (f"holdfast check {name}.py --against checkpoint", "says which state a change keeps"),
    ]
    if Path(starter.folder) != Path.cwd():
        steps.insert(0, (f"cd {shlex.quote(starter.folder)}", ""))
    if starter.install is not None:
        steps.insert(0, (starter.install, "installs what is missing here"))
    next_step.say_steps(
        json, steps, "Put another file into orders/ and run it again: it goes on from its checkpoint."
    )
