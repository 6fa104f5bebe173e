"""Calls that the help of a verb ends with: they stand beside its function, and become text here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from typer.core import TyperGroup

_NOTED: Final = "holdfast_examples"

Verb = TypeVar("Verb", bound=Callable[..., None])


def examples(*calls: str) -> Callable[[Verb], Verb]:
    """Note examples of a verb, for its help.

    Args:
        calls: What stands behind the verb's words, as it is typed in a shell. The words themselves are put in
            front of it, since two verbs may share a function.
    """

    def note(verb: Verb) -> Verb:
        vars(verb)[_NOTED] = calls
        return verb

    return note


def verbs(words: str, commands: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Each verb with all its words, out of commands that stand for one or for several.

    Args:
        words: What stands in front of their names.
        commands: The commands.
    """
    for command in commands:
        named = f"{words} {command.name}"
        if isinstance(command, TyperGroup):
            yield from verbs(named, command.commands.values())
        else:
            yield named, command


def example_lines(words: str, verb: Any) -> list[str]:
    """The examples of a verb as they are typed."""
    return [f"{words} {call}".rstrip() for call in vars(verb.callback).get(_NOTED, ())]


def show_in_help(words: str, verb: Any) -> None:
    """Let the help of a verb end with its examples."""
    verb.format_epilog = partial(_write, words, verb)


def _write(words: str, verb: Any, _context: Any, formatter: Any) -> None:
    """Write them as one more section; no line is broken, so that it can be pasted."""
    with formatter.section("Examples"):
        for line in example_lines(words, verb):
            formatter.write(f"{' ' * formatter.current_indent}{line}\n")
