"""The application of all lint rules to one program."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.advice.source.calls import Evaluated
from holdfast.advice.source.evaluation import evaluate
from holdfast.advice.source.processor_checks import processor_hits
from holdfast.advice.source.query_checks import ending_hits, setting_hits, state_hits, writer_hits
from holdfast.advice.source.values import CodeLocation
from holdfast.errors import Invalid

_COMMENT: Final = re.compile(r"#\s*holdfast:\s*ignore\b(?:\s*\[([^\]]*)\])?\s*(.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Suppression:
    """A comment that suppresses rules on its line.

    Attributes:
        line: The line.
        column: The first column, from 1.
        rules: The IDs of the rules.
        reason: The reason; empty if the comment gives none.
    """

    line: int
    column: int
    rules: tuple[str, ...]
    reason: str

    def wrong(self, known: Mapping[str, object]) -> str | None:
        """Return the reason why the comment suppresses nothing; None if it suppresses a rule."""
        if not self.rules:
            return "the comment names no rule"
        unknown = [rule for rule in self.rules if rule not in known]
        if unknown:
            return f"the comment names {unknown[0]}, which is not a rule"
        return None if self.reason else f"the comment gives no reason for {', '.join(self.rules)}"


def suppressions(text: str) -> list[Suppression]:
    """Return the comments of a valid Python file that suppress rules."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        match = _COMMENT.match(token.string) if token.type == tokenize.COMMENT else None
        if match is not None:
            rules = tuple(rule.strip().upper() for rule in (match[1] or "").split(",") if rule.strip())
            found.append(Suppression(token.start[0], token.start[1] + 1, rules, match[2].strip()))
    return found


# A larger file was not written by a person.
_MOST_BYTES: Final = 4 << 20


def source_hits(tree: ast.Module) -> Iterator[CodeLocation]:
    """Yield the violations in a file."""
    return hits_in(evaluate(tree))


def hits_in(found: Evaluated) -> Iterator[CodeLocation]:
    """Yield the violations in an evaluated file."""
    yield from state_hits(found)
    yield from setting_hits(found)
    yield from writer_hits(found)
    yield from processor_hits(found)
    yield from ending_hits(found)


def read_source(path: Path) -> str:
    """Return the text of a source file.

    Raises:
        Invalid: The file cannot be read, is too large, or is not UTF-8 text.
    """
    where = str(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise Invalid(
                "the Python file is too large to lint",
                code="HF-E2013",
                where=where,
                expected=f"at most {_MOST_BYTES >> 20} MB",
                hint="give a smaller file that contains the query",
            )
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(
            "the Python file to lint is not UTF-8 text",
            code="HF-E2014",
            where=where,
            found=f"byte {error.object[error.start]:#x} at offset {error.start}",
            hint="save the file as UTF-8",
        ) from error
    except OSError as error:
        raise Invalid(
            "cannot read the file to lint",
            code="HF-E2015",
            where=where,
            found=error.strerror,
            hint="give the current user read permission on the file",
        ) from error


def parsed(text: str, where: str) -> ast.Module:
    """Return the syntax tree of a file.

    Raises:
        Invalid: The text is not valid Python for this interpreter.
    """
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise Invalid(
            "the file is not valid Python",
            code="HF-E2016",
            where=f"{where}:{error.lineno or 1}",
            found=error.msg,
            hint="fix the syntax, and check it with `python -m py_compile FILE`",
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise Invalid(
            "the file is not valid Python",
            code="HF-E2016",
            where=where,
            found=str(error) or "expressions nested too deeply",
            hint="fix the syntax, and check it with `python -m py_compile FILE`",
        ) from error
