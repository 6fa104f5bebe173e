"""Write the reference page of lint's rules, with their precision and recall on the job files of the tests."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from lint_corpus import expected, scored

from holdfast.advice.findings import FindingEvidence, Rule
from holdfast.advice.rules import GROUPS, PRELUDE, RULES

_TEXT = """\
`holdfast lint FILE.py` reads the code of a query, and `holdfast lint CHECKPOINT` the files of its
checkpoint. Neither starts Spark, and no code is imported or run. `holdfast lint FILE.py[:JOB] --plan` also
checks the plan that Spark builds for a job, and `holdfast lint JOB` the batches recorded in the state home.
In Python it is `hf.lint(…)`. A rule reports only what it has evidence for, so code without findings is not
proved correct. The guide [Ten ways to lose your state](../guides/lose-your-state.md) shows the effects of
the worst mistakes.

**Evidence.** Each finding names its evidence.

- `source` is the code. Lint follows names, branches, calls of the file's own functions and methods, and a
  plain SELECT in `spark.sql("…")` over views of the file. A DataFrame from a different module, a nested
  query or a function outside the file is unknown: lint then reports nothing about what it lacks.
- `plan` is the plan that Spark builds from the code of `@hf.job`. Lint imports the file and calls its
  function with a local session, so the effects of modules, parameters and session settings are included. No
  query is started: a start in the code is refused, and a plain script is never run. If the source has the
  operator exactly once, the finding is on its line, otherwise on the job's function. A problem in both
  source and plan is one finding.
- `facts` are the files of a checkpoint (its settings, its logs, and the names and sizes of its state files);
  for a job also its newest batches, at most 1000; and for a file of code the names of files in the
  checkpoints and file tables on this machine whose full paths the code contains.

**Before each start.** With `@hf.job(…, strict=True)`, source and plan are checked once the queries are
built. An error ends the job before any query begins, and so before it touches a sink or a checkpoint.

**Severity.** An error loses or breaks something, a warning will cost time or money, a note is worth a look.
The exit code is 1 if there is an error, otherwise 0.

**Suppressing a finding.** Put a comment on its line, with the reason, which is required:

```
counts = events.groupBy("country").count()  # holdfast: ignore[HF102] the keys are 200 countries
```

**Configuration.** In the nearest `pyproject.toml` in or above the directory of the file; for a checkpoint,
in or above the working directory:

```
[tool.holdfast.lint]
disable = ["HF304"]
severity = { HF204 = "error", HF102 = "note" }
```

**SARIF.** `holdfast lint FILE.py --format sarif` prints SARIF 2.1.0, including suppressed findings and their
reasons.
"""
_WIDTH = 118


def lint_page(note: str) -> str:
    """Return the page."""
    parts = ["# Lint rules\n", note, _TEXT, _figures(), "## All rules\n", _table()]
    parts.append(f"All code examples begin with:\n\n```\n{PRELUDE}```\n")
    for digit, title in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [text for rule in RULES.values() if rule.id[2] == digit for text in _described(rule)]
    return "\n".join(parts)


def _figures() -> str:
    result = scored()
    missed = "; ".join(f"`{each}`" for each in result.missed)
    threads = sum(name.startswith("thread_") for name in expected())
    return _filled(
        f"**Precision and recall.** The tests have {result.files} job files, half with mistakes and half"
        f" without; {threads} of them are modelled on public questions. They contain"
        f" {result.right + len(result.missed)} findings, recorded by hand. From the source alone, lint"
        f" reports {result.right} of these (recall {result.recall:.1%}) and {len(result.false)} false"
        f" ones (precision {result.precision:.1%}). It misses findings in nested queries: {missed}."
        " It reports no error in the half without mistakes. The rules were developed on these files, so"
        " other code may have lower figures."
    )


def _filled(text: str, indent: str = "") -> str:
    return (
        textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        + "\n"
    )


def item(text: str) -> str:
    """Return a wrapped list item."""
    return _filled(f"- {text}", "  ").rstrip()


def _table() -> str:
    rows = [
        f"| [{rule.id}](#{_anchor(rule)}) | {rule.name} | {rule.severity.value} | {_evidence(rule)} |"
        for rule in RULES.values()
    ]
    return "| Rule | Name | Severity | Evidence |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _anchor(rule: Rule) -> str:
    return f"{rule.id} {rule.name}".lower().replace(" ", "-")


def _evidence(rule: Rule) -> str:
    return ", ".join(evidence.value for evidence in rule.evidence)


def _described(rule: Rule) -> Iterator[str]:
    yield f"### {rule.id} {rule.name}\n"
    yield f"{rule.severity.value}; evidence: {_evidence(rule)}\n"
    for title, text in (
        ("Reports", rule.looks_for),
        ("Why", rule.why),
        ("What to do", _sentence(rule.instead)),
    ):
        yield item(f"**{title}**: {text}")
    if rule.evidence != (FindingEvidence.FACTS,):
        yield f"\n```\n# bad\n{rule.bad}\n\n# good\n{rule.good}\n```\n"
    else:
        yield item(f"**Triggered by** {rule.bad}; **not triggered by** {rule.good}.") + "\n"
