"""`holdfast serve`: the control plane of a state home, without a job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import options, output
from holdfast.cli.help_text import examples
from holdfast.cli.stop import until_stopped
from holdfast.config.checks import TOKEN_VARIABLE
from holdfast.errors import Invalid
from holdfast.quantities import counted

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
    Path | None,
    typer.Option(
        "--tls-key",
        metavar="FILE",
        help="The key of the certificate, as PEM.",
        callback=options.on_this_machine,
    ),
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
        help="A directory or URI below which requests may name savepoints and checkpoints. Repeatable.",
    ),
]


Addresses = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CHECKPOINT|DIR",
        help="Checkpoints of queries that run without Holdfast, directories of them, storages of pipelines,"
        " or patterns such as 's3://bucket/*/checkpoints'.",
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
    checkpoints: list[str] | None = None,
) -> ServerSettings:
    """Build the server settings from options.

    Raises:
        Invalid: The options contradict each other, or the port is reachable from other machines without a
            token.
        NotFound: A file that an option names is missing.
    """
    from holdfast.checkpoints.discovery import CheckpointAddress
    from holdfast.config.checks import canonical_uri, parse_storage
    from holdfast.server.server_settings import ServerSettings, token_from

    if token is not None and token_file is not None:
        raise Invalid(
            "more than one token given",
            code="HF-E2147",
            found="--token and --token-file",
            expected="either --token or --token-file",
            hint="use --token-file, which is not visible in the process list",
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
        checkpoints=tuple(CheckpointAddress(each).uri for each in checkpoints or ()),
    )


def notes(settings: ServerSettings, url: str) -> dict[str, str]:
    """Return notes on the server for JSON: a `warning`, and a `login` address that is valid once."""
    told: dict[str, str] = {}
    if settings.warning is not None:
        told["warning"] = settings.warning
    if settings.login_code is not None:
        told["login"] = f"{url}/login/once?code={settings.login_code}"
    return told


def say_notes(settings: ServerSettings, url: str) -> None:
    """Print the notes on the server as text."""
    told = notes(settings, url)
    say_warning(settings)
    if "login" in told:
        output.say(
            f"log in once at {told['login']}; programs send the token in the state home's server-token"
        )


def say_warning(settings: ServerSettings) -> None:
    """Print a warning if the settings are unsafe."""
    if settings.warning is not None:
        output.insist(f"WARNING: {settings.warning}")


def _nothing_at(address: str) -> str:
    return f"no checkpoint at {address} yet; one that appears there is served"


@examples("", "checkpoints --savepoint-dir savepoints")
def serve(
    addresses: Addresses = None,
    port: Port = None,
    host: Host = "127.0.0.1",
    token: Token = None,
    token_file: TokenFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    savepoint_dir: Savepoints = None,
    root: Roots = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Serve the dashboard, Flink's REST API and Holdfast's own for all jobs of the state home until Ctrl-C.

    Jobs run without a server, and the server runs without jobs: both can be started and stopped at any time.

    With checkpoints or directories, their queries are served next to the jobs, from their files alone: state,
    SQL, batches, offsets, savepoints and alerts. The queries need no change, and new ones appear by
    themselves. They cannot be stopped from here.
    """
    own = options.settings(home, port=port)
    settings = server_settings(
        host=host,
        port=own.port,
        token=token,
        token_file=token_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        savepoints=savepoint_dir,
        roots=root,
        checkpoints=addresses,
    )
    place = own.ensure_home().resolve()
    from holdfast.checkpoints.discovery import CheckpointAddress
    from holdfast.config.checks import place_word
    from holdfast.server.access.guard import secured
    from holdfast.server.process.listening import listen
    from holdfast.server.process.serving import Serving

    settings = secured(settings, place)
    counts = {address: len(CheckpointAddress(address).find()) for address in settings.checkpoints}
    serving = Serving(place, settings, listen(settings))
    with until_stopped() as stopped:
        serving.start()
        if json:
            served = {"checkpoints": sum(counts.values())}
            started = {"event": "serving", "url": serving.url, "home": str(place)} | served
            output.emit_json(started | notes(settings, serving.url))
        else:
            output.say(f"serving {place} at {serving.url}")
            for address, found in counts.items():
                word = place_word(address)
                output.say(f"{counted(found, 'checkpoint')} at {word}" if found else _nothing_at(word))
            say_notes(settings, serving.url)
        stopped.wait()
        serving.close()
