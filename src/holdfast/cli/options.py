"""Options that several verbs share, and what they resolve to."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperOption

from holdfast.cli import output
from holdfast.cli.short_verbs import Verbs
from holdfast.clock import now_ms
from holdfast.config.checks import SCHEME
from holdfast.errors import HoldfastError, Invalid

if TYPE_CHECKING:
    from holdfast.config.settings import Settings
    from holdfast.jobs.registry.client import Control
    from holdfast.jobs.state_home import StateHome


def _name_databases(context: typer.Context, home: str | None) -> str | None:
    """Let this process connect to the databases that jobs of the state home name."""
    from holdfast.external.named_addresses import name_databases_of

    def read() -> list[str]:
        from holdfast.jobs.registry.registry import Registry

        with suppress(HoldfastError):  # the refusal of an address says what else names it
            return Registry(state_home(home).registry, read_only=True).databases()
        return []

    if not context.resilient_parsing:
        name_databases_of(home or "", read)
    return home


Home = Annotated[
    str | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help="State home. [env: HOLDFAST_HOME; default: .holdfast]",
        callback=_name_databases,
    ),
]


def on_this_machine(path: Path | None) -> Path | None:
    """A file or directory that a verb makes or reads on this machine: no URI, which would become a path."""
    if path is not None and any(ord(letter) < 32 for letter in str(path)):
        raise Invalid(
            "a path has no control characters",
            code="HF-E2138",
            found=ascii(str(path)),
            hint="name another one",
        )
    if path is not None and SCHEME.match(str(path)):
        raise Invalid(
            "this is no path on this machine",
            code="HF-E2139",
            found=str(path),
            hint="name a local path; one with a colon in it is written with ./ before it",
        )
    return path


Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Stopped = Annotated[
    bool,
    typer.Option(
        "--stopped",
        help="Confirm that no query uses the checkpoint. --yes does not confirm this.",
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="For state in a database: redis://HOST:PORT/N, rediss: or cassandra://HOST:PORT/KEYSPACE."
        " [where it was]",
    ),
]
Table = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="DIR",
        help="A new directory for the files that the query writes; prepares the log of its file sink.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Label = Annotated[str | None, typer.Option("--label", metavar="TEXT", help="A name for people.")]
DropExpired = Annotated[
    bool,
    typer.Option(
        "--drop-expired",
        help="Leave out expired keyed state, by the batch's own time and watermark.",
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch", min=0, metavar="BATCH", help="A committed batch whose state is still retained. [newest]"
    ),
]
Operator = Annotated[
    str | None, typer.Option("--operator", metavar="OPERATOR", help="The operator: its name or number.")
]
Master = Annotated[str | None, typer.Option("--master", help="Where Spark runs.")]
Pairs = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting or parameter of the job."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; wins over the job's own."),
]

Ha = Annotated[
    str | None,
    typer.Option(
        "--ha",
        metavar="ADDRESS",
        help="Run as one of several supervisors of the job, which elect their leader at:"
        " zookeeper://HOST:PORT/PATH, a shared directory, s3://…, or `home`. [env: HOLDFAST_HA]",
    ),
]
Lease = Annotated[
    str | None,
    typer.Option(
        "--lease",
        metavar="TIME",
        help="Replace a leader that is silent for this long. [env: HOLDFAST_LEASE; default: 10s]",
    ),
]


class Quiet(TyperOption):
    """-q, which every verb has: `cli` puts it there, and `output` heeds it."""

    def __init__(self) -> None:
        super().__init__(
            param_decls=["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=lambda _context, _option, wanted: output.be_quiet(bool(wanted)),
            help="Print the answer and errors alone: no progress and no notes.",
        )


Query = Annotated[
    str | None,
    typer.Option("--query", metavar="NAME", help="Which query, if the job has several. [the savepoint's]"),
]


def group(help_: str) -> typer.Typer:
    """Several verbs under one word."""
    return typer.Typer(
        help=help_, no_args_is_help=True, add_completion=False, rich_markup_mode=None, cls=Verbs
    )


def settings(home: str | None, **others: str | int | None) -> Settings:
    """The settings that hold for this call: options by name, None for one that was not given."""
    from holdfast.config.settings import Settings

    return Settings.here(home, **others)


def state_home(home: str | None) -> StateHome:
    """The state home that holds for this call."""
    from holdfast.jobs.state_home import StateHome

    return StateHome(settings(home).real_home)


def control(home: str | None) -> Control:
    """The jobs of the state home that holds for this call."""
    from holdfast.jobs.registry.client import Control

    return Control(state_home(home), now_ms)


def pairs(flag: str, given: list[str] | None) -> dict[str, str]:
    """The settings that a repeated option names.

    Raises:
        Invalid: One is not KEY=VALUE.
    """
    found: dict[str, str] = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise Invalid(
                "this is not a setting",
                code="HF-E2140",
                where=f"{flag} {text}",
                expected="KEY=VALUE",
                hint=f"write {flag} KEY=VALUE, once for each",
            )
        found[key.strip()] = value.strip()
    return found
