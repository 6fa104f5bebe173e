"""Options of the verbs that answer over HTTP, and what they resolve to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import options, output
from holdfast.config.secrets import TOKEN_VARIABLE
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from holdfast.server.server_settings import ServerSettings

Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        metavar="PORT",
        help="The port to listen on; 0 picks a free one. [env: HOLDFAST_PORT; default: 8081]",
    ),
]
Host = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="ADDRESS",
        help="The address to listen on. An address other than loopback needs a token.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TEXT",
        help="The token that callers must send. Visible in the process list. [env: HOLDFAST_TOKEN]",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A file that holds the token.",
        callback=options.on_this_machine,
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        help="The certificate chain, as PEM.",
        callback=options.on_this_machine,
    ),
]
TlsKey = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key.", callback=options.on_this_machine)
]
Savepoints = Annotated[
    str | None,
    typer.Option(
        "--savepoint-dir",
        metavar="DIR",
        help="The directory for savepoints requested without one. [the job's]",
    ),
]
Roots = Annotated[
    list[str] | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="Requests may name savepoints and checkpoints below this directory or URI.",
    ),
]


def server_settings(
    *,
    host: str,
    port: int,
    token: str | None,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    savepoints: str | None,
    roots: list[str] | None,
) -> ServerSettings:
    """The settings that these options mean.

    Raises:
        Invalid: They cannot be right together, or the port is reached by others and there is no token.
        NotFound: A file is not there.
    """
    from holdfast.config.locations import canonical_uri, parse_storage
    from holdfast.server.server_settings import ServerSettings, token_from

    if token is not None and token_file is not None:
        raise Invalid(
            "a server has one token",
            found="--token and --token-file",
            expected="one of them",
            hint="use --token-file, which no process list shows",
        )

    def address(text: str, option: str) -> str:
        return canonical_uri(parse_storage(text, option), Path.cwd())

    return ServerSettings(
        host=host,
        port=port,
        token=token_from(token, token_file, os.environ.get(TOKEN_VARIABLE)),
        tls_cert=tls_cert,
        tls_key=tls_key,
        savepoints=None if savepoints is None else address(savepoints, "--savepoint-dir"),
        roots=tuple(address(root, "--root") for root in roots or ()),
    )


def notes(settings: ServerSettings, url: str) -> dict[str, str]:
    """What a program is told beside the address: a `warning`, and a `login` that opens one session, once."""
    told: dict[str, str] = {}
    if settings.warning is not None:
        told["warning"] = settings.warning
    if settings.login_code is not None:
        told["login"] = f"{url}/login/once?code={settings.login_code}"
    return told


def say_notes(settings: ServerSettings, url: str) -> None:
    """Tell a person the same."""
    told = notes(settings, url)
    say_warning(settings)
    if "login" in told:
        output.say(
            f"log in, once, at {told['login']}; programs send the token in the state home's server-token"
        )


def say_warning(settings: ServerSettings) -> None:
    """Tell a person what is not safe about them, if anything is."""
    if settings.warning is not None:
        output.insist(f"WARNING: {settings.warning}")
