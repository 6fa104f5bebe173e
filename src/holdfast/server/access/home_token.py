"""The token of a state home, for machines that do not tell which user a loopback connection belongs to."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.errors import Invalid
from holdfast.server.access.local_peer import can_tell
from holdfast.server.server_settings import ServerSettings, token_from

FILE: Final = "server-token"


def secured(settings: ServerSettings, home: Path) -> ServerSettings:
    """The settings with the state home's own token, where nothing else keeps other users out.

    Raises:
        Invalid: The token's file is another user's.
    """
    if settings.token is not None or can_tell():
        return settings
    return replace(settings, token=home_token(home), login_code=secrets.token_urlsafe(32))


def home_token(home: Path) -> str:
    """The token that a state home keeps in a file of its own; made the first time.

    Raises:
        Invalid: The file is another user's, or holds no token.
        NotFound: It cannot be read.
    """
    path = home / FILE
    if not path.exists():
        # For its owner alone, whatever the umask is.
        with tempfile.NamedTemporaryFile("w", dir=home, prefix=f".{FILE}-", encoding="ascii") as fresh:
            fresh.write(f"{secrets.token_urlsafe(32)}\n")
            fresh.flush()
            os.fsync(fresh.fileno())
            # A link and no rename: of two that begin at the same time one makes it, and both read it.
            with suppress(FileExistsError):
                path.hardlink_to(fresh.name)
    if path.stat().st_uid != os.geteuid():
        raise Invalid(
            "the token of the state home belongs to another user",
            where=str(path),
            expected="a file of this user",
            hint="remove it, or start the server with --token-file",
        )
    path.chmod(0o600)
    token = token_from(None, path, None)
    assert token is not None  # noqa: S101 - a file gives one or is an error
    return token
