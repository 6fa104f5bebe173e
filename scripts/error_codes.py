"""Give each error of the source that has none a code: `code="HF-E2001"`. `make codes` calls it.

The first digit is the exit code of the error's kind; a failed job has 1 and a bug of Holdfast's 9. Errors
of one kind with the same text share a code. A code stays with its error when the text changes. A code that
no error has any more is not given again: `src/holdfast/error_codes.json` keeps it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import BY_KIND
from holdfast.extras import MissingPackage
from holdfast.ownership.election import LeadershipLost

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "holdfast"
CATALOGUE = PACKAGE / "error_codes.json"
# Kinds, and classes below them.
DIGITS = {
    kind.__name__: min(kind.exit_code, 9) for kind in (*BY_KIND.values(), LeadershipLost, MissingPackage)
}


@dataclass(frozen=True)
class Site:
    """A call of the source that makes an error."""

    file: Path
    call: ast.Call
    kind: str

    @property
    def code(self) -> str | None:
        """Its code; None where it has none yet."""
        for keyword in self.call.keywords:
            if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
        return None

    @property
    def passes_on(self) -> bool:
        """Whether it has the facts of another error, and so its code."""
        keywords = {keyword.arg for keyword in self.call.keywords}
        return None in keywords or ("code" in keywords and self.code is None)

    @property
    def text(self) -> str:
        """What tells errors of a kind apart: the text, or for one that a variable holds its module too."""
        fact = self.call.args[0]
        if isinstance(fact, (ast.Constant, ast.JoinedStr)):
            return ast.unparse(fact)
        return f"{self.file.stem}: {ast.unparse(fact)}"


def sites() -> Iterator[Site]:
    """The calls that make an error, in the order of files and lines."""
    for file in sorted(PACKAGE.rglob("*.py")):
        if file.name == "errors.py":
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
        for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            if name in DIGITS:
                yield Site(file, call, name)


def numbered() -> list[tuple[Site, str]]:
    """The sites without a code, each with the code that it gets."""
    found = [site for site in sites() if not site.passes_on]
    used = {site.code for site in found} | set(
        json.loads(CATALOGUE.read_text()) if CATALOGUE.exists() else ()
    )
    highest = {
        digit: max([int(code[5:]) for code in used if code and code[4] == str(digit)], default=0)
        for digit in set(DIGITS.values())
    }
    by_text = {(DIGITS[site.kind], site.text): site.code for site in found if site.code}
    given = []
    for site in found:
        if site.code is None:
            key = (DIGITS[site.kind], site.text)
            if key not in by_text:
                highest[key[0]] += 1
                by_text[key] = f"HF-E{key[0]}{highest[key[0]]:03}"
            given.append((site, str(by_text[key])))
    return given


def write(file: Path, codes: list[tuple[Site, str]]) -> None:
    """Put codes into a file, the last one first, so that the places of the others stay."""
    lines = file.read_bytes().split(b"\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    text = file.read_bytes()
    for site, code in sorted(
        codes, key=lambda each: (each[0].call.lineno, each[0].call.col_offset), reverse=True
    ):
        fact, call = site.call.args[0], site.call
        at = starts[(fact.end_lineno or 1) - 1] + (fact.end_col_offset or 0)
        end = starts[(call.end_lineno or 1) - 1] + (call.end_col_offset or 0) - 1
        closing = re.match(rb"[\s)]*", text[at:end])
        comma = at + (closing.end() if closing else 0)
        more = f' code="{code}",'.encode()
        if comma < end and text[comma : comma + 1] == b",":
            text = text[: comma + 1] + more + text[comma + 1 :]
        else:
            text = text[:comma] + b"," + more + text[comma:]
    ast.parse(text)
    file.write_bytes(text)


def main() -> int:
    """Number what has no code, and list it."""
    given = numbered()
    for file in sorted({site.file for site, _ in given}):
        write(file, [each for each in given if each[0].file == file])
    for site, code in given:
        sys.stdout.write(f"{code}  {site.file.relative_to(ROOT)}:{site.call.lineno}  {site.text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
