"""Help: examples of verbs, the first verbs, and narrow terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from typer.core import TyperGroup

from holdfast.cli import output

_NOTED: Final = "holdfast_examples"

Verb = TypeVar("Verb", bound=Callable[..., None])


def examples(*calls: str) -> Callable[[Verb], Verb]:
    """Note examples of a verb, for its help.

    Args:
        calls: What follows the verb's words, as it is typed in a shell. The words themselves are put in
            front of it, since two verbs may share a function.
    """

    def note(verb: Verb) -> Verb:
        vars(verb)[_NOTED] = calls
        return verb

    return note


def verbs(words: str, commands: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Each verb with all its words, out of commands that represent one or for several.

    Args:
        words: What is in front of their names.
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


FIRST: Final = (
    ("holdfast tour", "a walk through the verbs"),
    ("holdfast checkpoint verify checkpoints/visits", "is a checkpoint whole?"),
    ("holdfast state get checkpoints/visits ann", "what does it know of a key?"),
    ("holdfast savepoint take checkpoints/visits", "keep a copy; its query may run"),
    ("holdfast init", "write a small job, to be run"),
)


def first_verbs() -> str:
    """The text, at most 80 columns wide."""
    width = max(len(command) for command, _ in FIRST)
    lines = [f"  {command.ljust(width)}  {why}" for command, why in FIRST]
    return "\n".join(
        [
            "State management for streaming on Spark.",
            "",
            "To begin with:",
            *lines,
            "",
            "All verbs: holdfast --help. One of them: holdfast state get --help.",
            "A TAB completes what you type: see holdfast completion --help.",
        ]
    )


# The library that writes the help takes as many columns at least, unless it is told how many there are.
_LEAST: Final = 52
# Which part of the width names may take; a longer one stands above its explanation.
_PART: Final = 4


def arguments() -> dict[str, int]:
    """Return the settings that make help fit a narrow terminal; none if there is room enough."""
    columns = output.width()
    return {"terminal_width": columns} if columns is not None and columns <= _LEAST else {}


def narrow_contexts(context_class: Any) -> Any:
    """The class of a command's contexts, with such help; it is another one in each release of the library."""
    usual = context_class.formatter_class

    def write_dl(formatter: Any, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
        longest = col_max if formatter.width > _LEAST else formatter.width // _PART
        usual.write_dl(formatter, rows, longest, col_spacing)

    formatter_class = type("NarrowHelp", (usual,), {"write_dl": write_dl})
    return type("NarrowHelpContext", (context_class,), {"formatter_class": formatter_class})
