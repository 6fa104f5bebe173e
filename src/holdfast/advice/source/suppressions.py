"""Comments that keep a finding from counting: `# holdfast: ignore[HF102] the keys are 40 countries`."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_COMMENT: Final = re.compile(r"#\s*holdfast:\s*ignore\b(?:\s*\[([^\]]*)\])?\s*(.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Suppression:
    """A comment that suppresses rules on its line.

    Attributes:
        line: The line.
        column: Where it begins, from 1.
        rules: The ids that it names.
        reason: Why they do not count; empty where it gives none.
    """

    line: int
    column: int
    rules: tuple[str, ...]
    reason: str

    def wrong(self, known: Mapping[str, object]) -> str | None:
        """Why it suppresses nothing; None where it does."""
        if not self.rules:
            return "the comment names no rule"
        unknown = [rule for rule in self.rules if rule not in known]
        if unknown:
            return f"the comment names {unknown[0]}, which is no rule"
        return None if self.reason else f"the comment gives no reason for {', '.join(self.rules)}"


def suppressions(text: str) -> list[Suppression]:
    """The comments of a file that suppress rules; the file is known to be Python."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        match = _COMMENT.match(token.string) if token.type == tokenize.COMMENT else None
        if match is not None:
            rules = tuple(rule.strip().upper() for rule in (match[1] or "").split(",") if rule.strip())
            found.append(Suppression(token.start[0], token.start[1] + 1, rules, match[2].strip()))
    return found
