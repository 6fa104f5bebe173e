"""Options that several verbs share, and what they resolve to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.clock import now_ms

if TYPE_CHECKING:
    from holdfast.config.settings import Settings
    from holdfast.jobs.registry.client import Control

Home = Annotated[
    str | None,
    typer.Option("--home", metavar="DIR", help="State home. [env: HOLDFAST_HOME; default: .holdfast]"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's name or id.")]
Stopped = Annotated[
    bool,
    typer.Option(
        "--stopped",
        help="Confirm that no query uses the checkpoint. --yes does not confirm this.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]

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

Query = Annotated[
    str | None,
    typer.Option("--query", metavar="NAME", help="Which query, if the job has several. [the savepoint's]"),
]


def settings(home: str | None, **others: str | None) -> Settings:
    """The settings that hold for this call: options by name, None for one that was not given."""
    from holdfast.config.settings import Settings

    return Settings.resolve({"home": home, **others}, os.environ, Path.cwd())


def control(home: str | None) -> Control:
    """The jobs of the state home that holds for this call."""
    from holdfast.jobs.registry.client import Control
    from holdfast.jobs.state_home import StateHome

    return Control(StateHome(settings(home).home.resolve()), now_ms)
