"""Every rule over one file of code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.advice.source.ending_checks import ending_hits
from holdfast.advice.source.evaluated import Evaluated
from holdfast.advice.source.evaluation import evaluate
from holdfast.advice.source.hits import Hit
from holdfast.advice.source.processor_checks import processor_hits
from holdfast.advice.source.setting_checks import setting_hits
from holdfast.advice.source.state_checks import state_hits
from holdfast.advice.source.writer_checks import writer_hits
from holdfast.errors import Invalid

# More is no file that a person wrote.
_MOST_BYTES: Final = 4 << 20


def source_hits(tree: ast.Module) -> Iterator[Hit]:
    """What is wrong in a file."""
    return hits_in(evaluate(tree))


def hits_in(found: Evaluated) -> Iterator[Hit]:
    """What is wrong in a file that was followed."""
    yield from state_hits(found)
    yield from setting_hits(found)
    yield from writer_hits(found)
    yield from processor_hits(found)
    yield from ending_hits(found)


def read_source(path: Path) -> str:
    """The text of a file of code.

    Raises:
        Invalid: It cannot be read, is too large, or is not text in UTF-8.
    """
    where = str(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise Invalid(
                "the file is too large to be a job",
                where=where,
                expected=f"at most {_MOST_BYTES >> 20} MB",
                hint="name the file that has the query",
            )
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(
            "the file is not text in UTF-8",
            where=where,
            found=f"byte {error.object[error.start]:#x} at {error.start}",
            hint="save it as UTF-8",
        ) from error
    except OSError as error:
        raise Invalid(
            "the file cannot be read", where=where, found=error.strerror, hint="let this user read it"
        ) from error


def parsed(text: str, where: str) -> ast.Module:
    """The syntax tree of a file.

    Raises:
        Invalid: It is not Python that this interpreter knows.
    """
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise Invalid(
            "the file is not valid Python",
            where=f"{where}:{error.lineno or 1}",
            found=error.msg,
            hint="mend it first: `python -m py_compile` says the same",
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise Invalid(
            "the file is not valid Python",
            where=where,
            found=str(error) or "expressions that are nested too deeply",
            hint="mend it first: `python -m py_compile` says the same",
        ) from error
