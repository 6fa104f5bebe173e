"""The meaning of the codes of errors, lint rules and advice, for `holdfast explain CODE`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from typing import Any

from holdfast.advice.advising import KINDS
from holdfast.advice.rules import RULES
from holdfast.errors import BY_KIND, NotFound
from holdfast.json_shapes import JsonShape


@dataclass(frozen=True, slots=True)
class CodeExplanation(JsonShape):
    """The meaning of a code.

    Attributes:
        code: The code.
        title: The message of an error, or the name of a rule or piece of advice.
        meaning: The class of the error, or what the rule detects.
        found: The value found, as the error reports it; empty if it reports none.
        expected: The allowed values, as the error reports them; empty if it reports none.
        to_do: The recommended actions.
        retired: Whether this version no longer reports the error.

    Example:
        explanation: hf.CodeExplanation = hf.explain_code("HF103")
        assert explanation.code == "HF103" and not explanation.retired
    """

    code: str
    title: tuple[str, ...]
    meaning: str
    found: tuple[str, ...]
    expected: tuple[str, ...]
    to_do: tuple[str, ...]
    retired: bool = False


def known_codes() -> dict[str, str]:
    """Return every code with its error message, or the name of its rule or advice.

    Example:
        codes = hf.known_codes()
        assert codes["HF103"] == "dedupe-without-watermark"
        errors = [code for code in codes if code.startswith("HF-E3")]
        assert "HF-E3001" in errors
    """
    errors = {code: (entry.get("facts") or [""])[0] for code, entry in _errors().items()}
    rules = {rule.id: rule.name for rule in RULES.values()}
    return {**errors, **rules, **{kind.id: kind.name for kind in KINDS.values()}}


def _errors() -> dict[str, Any]:
    text = resources.files("holdfast").joinpath("error_codes.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def explain_code(code: str) -> CodeExplanation:
    """Return the meaning of a code of an error, a lint finding or a piece of advice.

    Args:
        code: The code, such as `HF-E2001`, `HF102` or `AD201`, in upper or lower case.

    Raises:
        NotFound: The code is unknown.

    Example:
        explanation = hf.explain_code("HF103")
        assert explanation.title == ("dedupe-without-watermark",)
        print(explanation.meaning, *explanation.to_do)
    """
    wanted = code.strip().strip("[]").upper()
    errors = _errors()
    if wanted in errors:
        entry = errors[wanted]
        error = BY_KIND[entry["kind"]]
        first = (error.__doc__ or "").partition("\n")[0].rstrip(".")
        texts = {name: tuple(entry.get(name, ())) for name in ("facts", "founds", "expecteds", "hints")}
        return CodeExplanation(
            wanted,
            texts["facts"],
            f"{error.__name__}, exit code {error.exit_code}: {first}",
            texts["founds"],
            texts["expecteds"],
            texts["hints"],
            bool(entry.get("retired")),
        )
    if wanted in RULES:
        rule = RULES[wanted]
        meaning = f"lint, {rule.severity.value}: {rule.looks_for.rstrip('.')}. {rule.why}"
        return CodeExplanation(wanted, (rule.name,), meaning, (), (), (rule.instead,))
    if wanted in KINDS:
        kind = KINDS[wanted]
        meaning = f"advice, {kind.severity.value}: {kind.looks_for.rstrip('.')}. {kind.costs}"
        return CodeExplanation(wanted, (kind.name,), meaning, (), (), (kind.instead,))
    near = get_close_matches(wanted, [*errors, *RULES, *KINDS], 3, 0.8)
    raise NotFound(
        f"unknown code {code!r}",
        code="HF-E3001",
        expected="one of the similar codes " + ", ".join(near)
        if near
        else "the code of an error, a lint rule or a piece of advice, such as HF-E2001",
        hint=(
            "look up error codes in docs/reference/errors.md, and other codes in the output of"
            " `holdfast lint` and `holdfast advise`"
        ),
    )
