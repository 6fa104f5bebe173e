"""A line of a shell as the command reads it, without being carried out."""

from __future__ import annotations

import shlex
from typing import Any

import typer.main
from typer.core import TyperGroup

from holdfast.cli import app


def parse_call(line: str) -> dict[str, Any]:
    """The arguments and options of a call of `holdfast`; an error for one that does not exist."""
    program, *words = shlex.split(line)
    assert program == "holdfast"
    command: Any = typer.main.get_command(app)
    context = command.make_context(program, words[:1], resilient_parsing=True)
    while isinstance(command, TyperGroup):
        command = command.commands[words.pop(0)]
    parameters: dict[str, Any] = command.make_context(line, words, parent=context).params
    return parameters
