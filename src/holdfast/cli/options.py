"""Options that several verbs share, and the objects that they resolve to."""

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
    """Allow this process to connect to the databases that jobs of the state home use."""
    from holdfast.external.named_addresses import name_databases_of

    def read() -> list[str]:
        from holdfast.jobs.registry.registry import Registry

        with suppress(HoldfastError):  # the error about an address names the alternatives
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
    """Return a local path; refuse a URI, which would be mistaken for a relative path."""
    if path is not None and any(ord(letter) < 32 for letter in str(path)):
        raise Invalid(
            "the path contains control characters",
            code="HF-E2138",
            found=ascii(str(path)),
            hint="give a path without control characters",
        )
    if path is not None and SCHEME.match(str(path)):
        raise Invalid(
            "the path is not local",
            code="HF-E2139",
            found=str(path),
            hint="give a local path; if it contains a colon, put ./ before it",
        )
    return path


Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="The local port to serve Prometheus /metrics on; 0 picks a free one.",
    ),
]
QueryName = Annotated[
    str | None,
    typer.Option("--name", help="The query's name in metrics and alerts. [the directory's name]"),
]
Stopped = Annotated[
    bool,
    typer.Option(
        "--confirm-stopped",
        help="Confirm that no query uses the checkpoint. --yes does not confirm this.",
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="The database of the state: redis://HOST:PORT/N, rediss: or cassandra://HOST:PORT/KEYSPACE."
        " [unchanged]",
    ),
]
Table = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="DIR",
        help="A new output directory for the query; the log of its file sink is prepared there.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Label = Annotated[str | None, typer.Option("--label", metavar="TEXT", help="A name for people.")]
DropExpired = Annotated[
    bool,
    typer.Option(
        "--drop-expired",
        help="Leave out keyed state that had expired by the batch's time and watermark.",
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch", min=0, metavar="BATCH", help="A committed batch whose state is still retained. [newest]"
    ),
]
Operator = Annotated[
    str | None, typer.Option("--operator", metavar="OPERATOR", help="The operator's name or number.")
]
Master = Annotated[str | None, typer.Option("--master", help="The Spark master.")]
MovingMaster = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Move the state on the executors of this Spark cluster."),
]
Pairs = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting or parameter of the job to override."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; overrides the job's own."),
]

Ha = Annotated[
    str | None,
    typer.Option(
        "--ha",
        metavar="ADDRESS",
        help="The address where several supervisors of the job elect a leader:"
        " zookeeper://HOST:PORT/PATH, a shared directory, s3://…, or `home`. [env: HOLDFAST_HA]",
    ),
]
Lease = Annotated[
    str | None,
    typer.Option(
        "--lease",
        metavar="TIME",
        help="The time after which a silent leader is replaced. [env: HOLDFAST_LEASE; default: 10s]",
    ),
]


class Quiet(TyperOption):
    """The option -q of every verb, which `cli` adds and `output` applies."""

    def __init__(self) -> None:
        super().__init__(
            param_decls=["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=lambda _context, _option, wanted: output.be_quiet(bool(wanted)),
            help="Print only the result and errors, no progress and no notes.",
        )


Query = Annotated[
    str | None,
    typer.Option("--query", metavar="NAME", help="The query, if the job has several. [the savepoint's]"),
]


def group(help_: str) -> typer.Typer:
    """Return a new group of verbs."""
    return typer.Typer(
        help=help_, no_args_is_help=True, add_completion=False, rich_markup_mode=None, cls=Verbs
    )


def settings(home: str | None, **others: str | int | None) -> Settings:
    """Return the settings of this call; `others` maps setting names to option values, None if not given."""
    from holdfast.config.settings import Settings

    return Settings.here(home, **others)


def state_home(home: str | None) -> StateHome:
    """Return the state home of this call."""
    from holdfast.jobs.state_home import StateHome

    return StateHome(settings(home).real_home)


def control(home: str | None) -> Control:
    """Return the client for the jobs of this call's state home."""
    from holdfast.jobs.registry.client import Control

    return Control(state_home(home), now_ms)


def pairs(flag: str, given: list[str] | None) -> dict[str, str]:
    """Parse the values of a repeated option as KEY=VALUE.

    Raises:
        Invalid: A value is not KEY=VALUE.
    """
    found: dict[str, str] = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise Invalid(
                "a setting does not have the format KEY=VALUE",
                code="HF-E2140",
                found=text,
                where=flag,
                hint=f"write {flag} KEY=VALUE, once per setting",
            )
        found[key.strip()] = value.strip()
    return found
