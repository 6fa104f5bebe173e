"""Spellings of the release before. They go on working until the next one, with a note."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from typer.core import TyperCommand, TyperOption

from holdfast.cli import output

_CODE: Final = re.compile(r".*\.py(:\w+)?")


class _Former(TyperCommand):
    """A verb whose option of the release before is an argument now.

    Attributes:
        former: The option.
        metavar: What its value is.
        comes_first: Whether the argument is the first one; else it is the last.
        now: How the verb is written now, for the note.
        is_taken: Whether the verb has an option of the same name that means something else now.
    """

    former: ClassVar[str]
    metavar: ClassVar[str] = "DIR"
    comes_first: ClassVar[bool] = False
    now: ClassVar[str]
    is_taken: ClassVar[bool] = False

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        if self.is_taken:
            return
        option = TyperOption(param_decls=[self.former], metavar=self.metavar, hidden=True, expose_value=False)
        self.params.append(option)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the option's value where the argument is."""
        rest, value = self._taken_out(args)
        if value is None:
            return super().parse_args(ctx, args)
        parsed = super().parse_args(ctx, [value, *rest] if self.comes_first else [*rest, value])
        if not ctx.resilient_parsing:
            output.say(
                f"note: {self.former} is an argument now: {self.now};"
                f" {self.former} goes on working until the next release"
            )
        return parsed

    def _taken_out(self, args: list[str]) -> tuple[list[str], str | None]:
        for place, word in enumerate(args):
            if word == "--":
                break
            if word == self.former and place + 1 < len(args) and self._is_former(args[place + 1]):
                return [*args[:place], *args[place + 2 :]], args[place + 1]
            if word.startswith(f"{self.former}=") and self._is_former(word.partition("=")[2]):
                return [*args[:place], *args[place + 1 :]], word.partition("=")[2]
        return args, None

    def _is_former(self, _: str) -> bool:
        """Return whether a value is meant for the former option."""
        return True


class Rescale(_Former):
    """`rescale SOURCE --to CHECKPOINT`."""

    former = "--to"
    now = "holdfast rescale SOURCE CHECKPOINT --partitions N"


class Migrate(_Former):
    """`state migrate SOURCE --to CHECKPOINT`; with a file of Python's, `--to` names new code."""

    former = "--to"
    now = "holdfast state migrate SOURCE CHECKPOINT"
    is_taken = True

    def _is_former(self, value: str) -> bool:
        return not _CODE.fullmatch(value)


class Bootstrap(_Former):
    """`state bootstrap FILE.py --to DIR`."""

    former = "--to"
    now = "holdfast state bootstrap FILE.py DIR --from PLAN.py"


class Erase(_Former):
    """`state erase KEY --everywhere DIR`."""

    former = "--everywhere"
    comes_first = True
    now = "holdfast state erase DIR KEY"
