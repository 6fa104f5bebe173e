"""`holdfast explain`: explain a code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import holdfast as hf
from holdfast.cli import options, output
from holdfast.cli.help_text import examples

if TYPE_CHECKING:
    from holdfast.advice.codes import CodeExplanation


@examples("HF-E2001", "HF102 --json")
def explain(
    code: Annotated[str, typer.Argument(metavar="CODE", help="The code of an error, a lint rule or advice.")],
    json: options.Json = False,
) -> None:
    """Explain the code of an error, a lint rule or advice: what it means and what to do.

    A `{name}` in the text is replaced by a value in the actual message.
    """
    output.show(hf.explain_code(code), json, _show)


def _show(found: CodeExplanation) -> None:
    retired = " (not used by this version)" if found.retired else ""
    output.line(f"{found.code}{retired}")
    for title in found.title:
        output.prose(title, "  ")
    output.line()
    output.prose(found.meaning)
    for name, texts in (("found", found.found), ("expected", found.expected), ("to do", found.to_do)):
        for text in texts:
            output.prose(f"{name}: {text}")
