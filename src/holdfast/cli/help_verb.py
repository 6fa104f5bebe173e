"""`holdfast help` and `holdfast version`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli import output, short_verbs
from holdfast.cli.help_text import arguments, examples
from holdfast.errors import NotFound


@examples("savepoint take", "take")
def show_help(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[VERB]", help="The verb, in one or two words.")
    ] = None,
) -> None:
    """Show the help of a verb; without one, the list of all verbs."""
    root = context.find_root()
    named = " ".join(words or ())
    verb = root.command if not words else short_verbs.named(root, named)
    if verb is None:
        near = short_verbs.propose(root.command, words[:-1] if words else (), (words or [""])[-1])
        raise NotFound(
            f"unknown verb {named!r}",
            code="HF-E3068",
            expected=", ".join(call.removeprefix("holdfast ") for call in near) or None,
            hint="`holdfast --help` lists the verbs",
        )
    name = "holdfast" if not words else f"holdfast {named}"
    names = context.find_root().help_option_names
    settings: dict[str, Any] = {"info_name": name, "help_option_names": names, **arguments()}
    with verb.context_class(verb, **settings) as shown:
        output.whole(verb.get_help(shown))


@examples("", "-q")
def version() -> None:
    """Print the version of Holdfast."""
    from holdfast._version import __version__

    output.line(f"holdfast {__version__}")
