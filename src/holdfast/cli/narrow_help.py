"""Help on a narrow terminal: long names stand above their explanations, and every line fits."""

from __future__ import annotations

from typing import Any, Final

from holdfast.cli import tables

# The library that writes the help takes as many columns at least, unless it is told how many there are.
_LEAST: Final = 52
# Which part of the width names may take; a longer one stands above its explanation.
_PART: Final = 4


def arguments() -> dict[str, int]:
    """What a command is called with, so that its help fits; nothing where there is room enough."""
    columns = tables.width()
    return {"terminal_width": columns} if columns is not None and columns <= _LEAST else {}


def narrow_contexts(context_class: Any) -> Any:
    """The class of a command's contexts, with such help; it is another one in each release of the library."""
    usual = context_class.formatter_class

    def write_dl(formatter: Any, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
        longest = col_max if formatter.width > _LEAST else formatter.width // _PART
        usual.write_dl(formatter, rows, longest, col_spacing)

    formatter_class = type("NarrowHelp", (usual,), {"write_dl": write_dl})
    return type("NarrowHelpContext", (context_class,), {"formatter_class": formatter_class})
