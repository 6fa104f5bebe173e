"""The short verbs `show`, `verify`, `history`, `diff`, `erase` and `help`, and suggestions for misspelt ones.

A short verb calls the full verb that its argument selects: `verify X` is `checkpoint verify` or `savepoint
verify`. Arguments and options are those of that verb.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from holdfast.cli import output
from holdfast.cli.help_text import arguments, examples, verbs
from holdfast.errors import HoldfastError, NotFound

# Each short verb with the verbs that it may call; help shows the first.
SHORT: Final[dict[str, tuple[str, ...]]] = {
    "show": ("checkpoint show", "savepoint show", "savepoint list"),
    "verify": ("checkpoint verify", "savepoint verify"),
    "history": ("checkpoint history", "state history"),
    "diff": ("savepoint diff",),
    "erase": ("state erase",),
    "get": ("state get",),
    "scan": ("state scan",),
    "take": ("savepoint take",),
    "explain": ("explain", "state explain"),
}
# The code of an error, a lint rule or a piece of advice.
_CODE: Final = re.compile(r"\[?HF-?[A-Z]?[0-9]+\]?", re.IGNORECASE)
# The groups of verbs in the help, in the order of use.
PANELS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Start", ("tour", "demo", "init", "doctor")),
    (
        "Inspect",
        (
            "show",
            "verify",
            "history",
            "diff",
            "state list",
            "state get",
            "state scan",
            "state history",
            "state explain",
            "offsets show",
            "explain",
        ),
    ),
    (
        "Back up and recover",
        (
            "watch",
            "mirror",
            "savepoint take",
            "savepoint list",
            "savepoint digest",
            "savepoint label",
            "savepoint delete",
            "savepoint gc",
            "checkpoint release",
            "restore",
            "fork",
            "drill",
        ),
    ),
    (
        "Change",
        (
            "rescale",
            "evolve",
            "state migrate",
            "state bootstrap",
            "state edit",
            "state undo",
            "erase",
            "offsets set",
            "offsets skip",
            "offsets translate",
        ),
    ),
    ("Before a deploy", ("lint", "check", "check-spark", "compare")),
    ("Tune", ("advise", "cost", "skew", "ttl", "bench")),
    (
        "Run jobs",
        (
            "run",
            "serve",
            "list",
            "status",
            "stop",
            "restart",
            "upgrade",
            "apply",
            "cancel",
            "alerts list",
            "alerts export",
        ),
    ),
    ("More", ("help", "version", "completion")),
)
_SUMMARIES: Final = {
    "show": "Show a checkpoint, a savepoint or a directory of savepoints.",
    "verify": "Check a checkpoint or a savepoint for damage.",
    "history": "Show the batches of a checkpoint, or the values of a key.",
    "diff": "Show the keys that differ between two states.",
    "erase": "Erase a key from every savepoint of a directory.",
}


class Verbs(TyperGroup):
    """A group of verbs that resolves short verbs and suggests a verb for an unknown one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the verb to call; a short verb is replaced by the full verb that its argument selects."""
        root = ctx.find_root()
        if ctx is root and args[0] in SHORT:
            verb = find(root.command, meant(root, args[0], args[1:]).split())
            return args[0], verb, args[1:]
        if args[0] in self.commands or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        if not ctx.resilient_parsing:
            words = ctx.command_path.split()[1:]
            proposals = [f"`{call}`" for call in propose(root.command, words, args[0])]
            tail = f" Did you mean {' or '.join(proposals)}?" if proposals else ""
            ctx.fail(f"No such command {args[0]!r}.{tail}")
        return None, None, args[1:]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the verbs by purpose; a group lists its own."""
        if ctx.parent is not None:
            return super().format_commands(ctx, formatter)
        for title, names in PANELS:
            rows = []
            for name in names:
                verb = find(self, name.split())
                summary = _SUMMARIES.get(name) or ("" if verb is None else verb.short_help)
                if name in SHORT or (verb is not None and not verb.hidden):
                    rows.append((name, summary))
            with formatter.section(title):
                formatter.write_dl(rows)
        return None


def find(group: Any, words: Sequence[str]) -> Any:
    """Return the command with this full name, or None."""
    for word in words:
        group = group.commands.get(word) if isinstance(group, TyperGroup) else None
    return group


def named_verb(root: Any, words: str) -> Any:
    """Return the verb given by its full name, its short verb or its last word; None if unknown.

    Args:
        root: The context of the command line.
        words: The name, such as `savepoint take`, `take` or `verify`.
    """
    if words in SHORT:
        return find(root.command, SHORT[words][0].split())
    found = find(root.command, words.split())
    if found is None:
        same = [name for name, _ in verbs("", root.command.commands.values()) if name.endswith(f" {words}")]
        found = find(root.command, same[0].split()) if len(same) == 1 else None
    return found


def meant(root: Any, short: str, args: Sequence[str]) -> str:
    """Return the full verb that a short verb calls with these arguments.

    Args:
        root: The context of the command line.
        short: The short verb.
        args: The arguments after it.
    """
    first, *others = SHORT[short]
    given = _arguments(root, first, args) if others else []
    if not given:
        return first
    if short == "explain":
        return first if len(given) == 1 and _CODE.fullmatch(given[0]) else "state explain"
    if short == "history":
        return first if len(given) == 1 else "state history"
    with suppress(HoldfastError):  # the called verb reports errors in the address
        if _is_savepoint(given[0]):
            return f"savepoint {short}"
        if _is_catalog(given[0]):
            return "savepoint list" if short == "show" else f"savepoint {short}"
    return first


def _arguments(root: Any, words: str, args: Sequence[str]) -> list[str]:
    """Return the positional arguments of a call, as the verb would parse them."""
    verb = find(root.command, words.split())
    context = verb.make_context(words, list(args), parent=root, resilient_parsing=True)
    named = [context.params.get(each.name) for each in verb.params if each.param_type_name == "argument"]
    listed = [value for value in named if value is not None]
    flat = [word for value in listed for word in ([value] if isinstance(value, str) else value)]
    return [str(word) for word in (*flat, *context.args)]


def _is_savepoint(address: str) -> bool:
    from holdfast.savepoints.address import StateAddress

    return StateAddress.resolve(address).is_savepoint


def _is_catalog(address: str) -> bool:
    """Return whether an address is a directory of savepoints on this machine."""
    from holdfast.savepoints.catalog import is_catalog
    from holdfast.storage import open_storage

    return Path(address).is_dir() and is_catalog(open_storage(address, "catalog"))


def propose(root: Any, words: Sequence[str], typed: str) -> list[str]:
    """Return the calls that the user of an unknown verb probably meant.

    Args:
        root: The context of the command line.
        words: The words of the group.
        typed: The unknown word.
    """
    known = [name.strip() for name, _ in verbs("", root.commands.values())]
    if words and ("/" in typed or Path(typed).exists()):
        group = " ".join(words)
        return [
            f"holdfast {group} {verb} {typed}" for verb in ("show", "list") if f"{group} {verb}" in known
        ][:1]
    last = {name: name.rpartition(" ")[2] for name in (*known, *SHORT, *root.commands)}
    same = [name for name, word in last.items() if word == typed]
    if not same:
        near = get_close_matches(typed, list(last.values()), 1, 0.7)
        same = [name for name, word in last.items() if word in near]
    here = " ".join(words)
    best = [name for name in same if here and name.startswith(f"{here} ")] or same
    return [f"holdfast {name}" for name in best][:3]


@examples("savepoint take", "take")
def show_help(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]", help="The command, in one or two words.")
    ] = None,
) -> None:
    """Show the help of a command; without one, the list of all commands."""
    root, name = context.find_root(), " ".join(words or ())
    verb = named_verb(root, name) if words else root.command
    if verb is None:
        near = propose(root.command, words[:-1] if words else (), (words or [""])[-1])
        raise NotFound(
            f"unknown command {name!r}",
            code="HF-E3068",
            expected=", ".join(call.removeprefix("holdfast ") for call in near) or None,
            hint="list the commands with `holdfast --help`",
        )
    settings: dict[str, Any] = {
        "info_name": f"holdfast {name}".rstrip(),
        "help_option_names": root.help_option_names,
        **arguments(),
    }
    with verb.context_class(verb, **settings) as shown:
        output.whole(verb.get_help(shown))


@examples("", "-q")
def version() -> None:
    """Print the version of Holdfast."""
    from holdfast._version import __version__

    output.line(f"holdfast {__version__}")
