"""Which rules hold, and how bad they are: `[tool.holdfast.lint]` in a pyproject.toml."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.advice.catalogue.rules import RULES
from holdfast.advice.findings import Severity
from holdfast.errors import Invalid

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

FILE_NAME: Final = "pyproject.toml"
TABLE: Final = "tool.holdfast.lint"
_SHAPE: Final = 'disable = ["HF302"] and severity = { HF204 = "error" }'


@dataclass(frozen=True, slots=True)
class LintConfiguration:
    """What a project has decided.

    Attributes:
        disabled: Rules that are not looked for.
        severities: Severities that differ from the catalogue's.
    """

    disabled: frozenset[str] = frozenset()
    severities: Mapping[str, Severity] = field(default_factory=dict)

    def severity(self, rule: str) -> Severity:
        """How bad a rule is in this project."""
        return self.severities.get(rule, RULES[rule].severity)


def configuration_beside(folder: Path) -> LintConfiguration:
    """The configuration that holds in a directory: that of the nearest pyproject.toml there or above.

    Raises:
        Invalid: It cannot be read, or says something that means nothing here.
    """
    for place in (folder, *folder.parents):
        file = place / FILE_NAME
        if file.is_file():
            return _read(file)
    return LintConfiguration()


def _read(file: Path) -> LintConfiguration:
    try:
        content: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Invalid(
            "the configuration cannot be read",
            where=str(file),
            found=error.strerror,
            hint="let this user read it",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(
            "the configuration is not TOML", where=str(file), found=str(error), hint="mend the file"
        ) from error
    table: Any = content
    for name in TABLE.split("."):
        table = table.get(name, {}) if isinstance(table, dict) else {}
    if not isinstance(table, dict):
        raise _wrong(file, f"[{TABLE}]", repr(table), "a table")
    unknown = sorted(table.keys() - {"disable", "severity"})
    if unknown:
        raise _wrong(file, f"[{TABLE}]", f"`{unknown[0]}`", "`disable` and `severity`")
    disabled, severities = table.get("disable", []), table.get("severity", {})
    if not isinstance(disabled, list) or not isinstance(severities, dict):
        raise _wrong(file, f"[{TABLE}]", repr(table), _SHAPE)
    for rule in (*disabled, *severities):
        if rule not in RULES:
            raise _wrong(file, f"[{TABLE}]", f"`{rule}`", f"ids of rules, {min(RULES)} to {max(RULES)}")
    words = [each.value for each in Severity]
    for rule, severity in severities.items():
        if severity not in words:
            raise _wrong(file, f"[{TABLE}] severity.{rule}", repr(severity), ", ".join(words))
    return LintConfiguration(
        frozenset(disabled), {rule: Severity(severity) for rule, severity in severities.items()}
    )


def _wrong(file: Path, what: str, found: str, expected: str) -> Invalid:
    return Invalid(
        "the configuration of lint is wrong",
        where=f"{file}: {what}",
        found=found,
        expected=expected,
        hint=f"write {_SHAPE}",
    )
