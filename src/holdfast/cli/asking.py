"""Ask before something is done that matters."""

from __future__ import annotations

import sys

import typer

from holdfast.errors import Invalid


def confirm(question: str, does: str = "deletes something") -> None:
    """Ask on the terminal; a no ends the command.

    Args:
        question: What is asked.
        does: What the command does, for whoever cannot be asked.

    Raises:
        Invalid: There is no terminal to ask on.
    """
    if not sys.stdin.isatty():
        raise Invalid(f"this {does} and nobody can be asked", hint="answer with --yes")
    typer.confirm(question, abort=True, err=True)
