"""The rules of lint as a page, with how well they do on the job files of the tests."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from lint_corpus import expected, scored

from holdfast.advice.findings import FindingEvidence, Rule
from holdfast.advice.rules import GROUPS, PRELUDE, RULES

_TEXT = """\
`holdfast lint FILE.py` reads the code of a query, `holdfast lint CHECKPOINT` the files of its checkpoint;
neither starts Spark, and no code is imported or run. `holdfast lint FILE.py[:JOB] --plan` asks Spark for the
plan of a job besides, and `holdfast lint JOB` looks at what the state home remembers of its batches. In
Python it is `hf.lint(…)`. A rule reports only what it has evidence for: what is not reported is not therefore
right. The guide [Ten ways to lose your state](../guides/lose-your-state.md) shows what the worst of them do.

**Evidence.** Each finding says where it was seen.

- `source` is the code: names, branches, and calls of the file's own functions and methods are followed, and
  a plain SELECT in `spark.sql("…")` over views of the file. A frame that comes from another module, from a
  query within a query or from a function that is not in the file is not known: nothing is then said of what
  it lacks.
- `plan` is what Spark makes of the code of `@hf.job`. The file is imported and its function is called with
  a session on this machine, so that what modules, parameters and settings of the session do is seen too.
  Nothing is started: a start in the code is refused. A plain script is never run. Where the source has the
  operator once, the finding is put on its line, and else on the job's function; where both show the same,
  it is one finding.
- `facts` are the files of a checkpoint (its settings, its logs, and names and sizes of the files of state),
  and of a job its newest batches, 1000 at most; of a file of code the names in the checkpoints and tables of
  files that it names in full, where they are on this machine.

**Before each start.** `@hf.job(…, strict=True)` looks at source and plan once the queries are built. An
error ends the job before any of them begins, and so before it touches a sink or a checkpoint.

**How bad.** An error loses or breaks something, a warning will cost, a note is worth a look. The exit code
is 1 where there is an error, else 0.

**Suppressing one place.** A comment on the line of the finding, with the reason, which is required:

```
counts = events.groupBy("country").count()  # holdfast: ignore[HF102] the keys are 200 countries
```

**Configuration.** In the nearest `pyproject.toml`, in the directory of the file or above it (of a
checkpoint: in the working directory or above it):

```
[tool.holdfast.lint]
disable = ["HF304"]
severity = { HF204 = "error", HF102 = "note" }
```

**SARIF.** `holdfast lint FILE.py --format sarif` prints SARIF 2.1.0, with suppressed findings and their
reasons.
"""
_WIDTH = 118


def lint_page(note: str) -> str:
    """The page."""
    parts = ["# The rules of lint\n", note, _TEXT, _figures(), "## All rules\n", _table()]
    parts.append(f"The examples of code begin with:\n\n```\n{PRELUDE}```\n")
    for digit, title in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [text for rule in RULES.values() if rule.id[2] == digit for text in _described(rule)]
    return "\n".join(parts)


def _figures() -> str:
    result = scored()
    missed = "; ".join(f"`{each}`" for each in result.missed)
    threads = sum(name.startswith("thread_") for name in expected())
    return _filled(
        f"**How well.** In {result.files} job files of the tests, half of them bad and half of them good, and"
        f" {threads} of them after what people ask in public, {result.right + len(result.missed)} findings"
        f" are written down by hand. Lint finds {result.right} of them in the source (recall"
        f" {result.recall:.1%}) and {len(result.false)} others (precision {result.precision:.1%}). It misses"
        f" what stands in a query within a query: {missed}. The good half has no error. The rules were made"
        " beside these files: other code may do worse."
    )


def _filled(text: str, indent: str = "") -> str:
    return (
        textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        + "\n"
    )


def item(text: str) -> str:
    """An item of a list."""
    return _filled(f"- {text}", "  ").rstrip()


def _table() -> str:
    rows = [
        f"| [{rule.id}](#{_anchor(rule)}) | {rule.name} | {rule.severity.value} | {_evidence(rule)} |"
        for rule in RULES.values()
    ]
    return "| Rule | Name | Severity | Evidence |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _anchor(rule: Rule) -> str:
    return f"{rule.id} {rule.name}".lower().replace(" ", "-")


def _evidence(rule: Rule) -> str:
    return ", ".join(evidence.value for evidence in rule.evidence)


def _described(rule: Rule) -> Iterator[str]:
    yield f"### {rule.id} {rule.name}\n"
    yield f"{rule.severity.value}, from {_evidence(rule)}\n"
    for title, text in (("Looks for", rule.looks_for), ("Why", rule.why), ("Instead", f"{rule.instead}.")):
        yield item(f"**{title}**: {text}")
    if rule.evidence != (FindingEvidence.FACTS,):
        yield f"\n```\n# bad\n{rule.bad}\n\n# good\n{rule.good}\n```\n"
    else:
        yield item(f"**Comes from** {rule.bad}; **is not there with** {rule.good}.") + "\n"
