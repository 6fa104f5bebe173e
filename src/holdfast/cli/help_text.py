"""The help of verbs: examples, the list of first verbs, and the layout for narrow terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from typer.core import TyperGroup

from holdfast.cli import output

_NOTED: Final = "holdfast_examples"

Verb = TypeVar("Verb", bound=Callable[..., None])


def examples(*calls: str) -> Callable[[Verb], Verb]:
    """Return a decorator that adds examples to the help of a verb.

    Args:
        calls: The arguments of each example, as typed in a shell after the verb. The verb itself is added
            later, because two verbs may share a function.
    """

    def note(verb: Verb) -> Verb:
        vars(verb)[_NOTED] = calls
        return verb

    return note


def verbs(words: str, commands: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield each verb with its full name, groups included.

    Args:
        words: The words before the names of the commands.
        commands: Commands and groups of commands.
    """
    for command in commands:
        named = f"{words} {command.name}"
        if isinstance(command, TyperGroup):
            yield from verbs(named, command.commands.values())
        else:
            yield named, command


def example_lines(words: str, verb: Any) -> list[str]:
    """Return the examples of a verb as typed."""
    return [f"{words} {call}".rstrip() for call in vars(verb.callback).get(_NOTED, ())]


def show_in_help(words: str, verb: Any) -> None:
    """Add the examples of a verb to the end of its help."""
    verb.format_epilog = partial(_write, words, verb)


def _write(words: str, verb: Any, _context: Any, formatter: Any) -> None:
    """Write the examples as a section, without wrapping lines, so that they can be pasted."""
    with formatter.section("Examples"):
        for line in example_lines(words, verb):
            formatter.write(f"{' ' * formatter.current_indent}{line}\n")


FIRST: Final = (
    ("holdfast tour", "walk through the commands"),
    ("holdfast checkpoint verify checkpoints/visits", "check a checkpoint for damage"),
    ("holdfast state get checkpoints/visits ann", "show the state of a key"),
    ("holdfast savepoint take checkpoints/visits", "save a copy while it runs"),
    ("holdfast init", "write a small job to start with"),
)


def first_verbs() -> str:
    """Return the text shown for a call without a verb, at most 80 columns wide."""
    width = max(len(command) for command, _ in FIRST)
    lines = [f"  {command.ljust(width)}  {why}" for command, why in FIRST]
    return "\n".join(
        [
            "State management for Spark Structured Streaming.",
            "",
            "Start here:",
            *lines,
            "",
            "All commands: holdfast --help. One command: holdfast state get --help.",
            "Shell completion: holdfast completion --help.",
        ]
    )


# Typer writes at least this many columns unless the width is set.
_LEAST: Final = 52
# Names take at most this part of the width; the text of a longer name starts on the next line.
_PART: Final = 4


def arguments() -> dict[str, int]:
    """Return the settings that make help fit a narrow terminal; empty if the terminal is wide enough."""
    columns = output.width()
    return {"terminal_width": columns} if columns is not None and columns <= _LEAST else {}


def narrow_contexts(context_class: Any) -> Any:
    """Return a subclass of a context class that formats help for narrow terminals."""
    usual = context_class.formatter_class

    def write_dl(formatter: Any, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
        longest = col_max if formatter.width > _LEAST else formatter.width // _PART
        usual.write_dl(formatter, rows, longest, col_spacing)

    formatter_class = type("NarrowHelp", (usual,), {"write_dl": write_dl})
    return type("NarrowHelpContext", (context_class,), {"formatter_class": formatter_class})
