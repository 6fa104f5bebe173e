"""Ask before something is deleted."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from holdfast.errors import Invalid

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str) -> None:
    """Ask on the terminal; a no ends the command.

    Raises:
        Invalid: There is no terminal to ask on.
    """
    if not sys.stdin.isatty():
        raise Invalid("this deletes something and nobody can be asked", hint="answer with --yes")
    typer.confirm(question, abort=True, err=True)
