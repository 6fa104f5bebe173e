"""Write the reference pages that code alone knows: the command line, errors, JSON, defaults, rules.

`make docs` writes them; a test compares them with what it would write.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from pathlib import Path

from advice_catalogue import advice_page
from cli_runner import cli_in
from error_catalogue import error_codes, raised_errors
from json_catalogue import json_page
from lint_catalogue import lint_page
from python_catalogue import python_page
from spark_catalogue import sparks_page

from holdfast.config.spark_defaults import DEFAULTS
from holdfast.errors import BY_KIND
from holdfast.observe.metrics import METRICS
from holdfast.observe.rules import RULES

REFERENCE = Path(__file__).parent / "reference"
ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "holdfast"
CODES = PACKAGE / "error_codes.json"
BENCHES = ROOT / "benchmarks" / "holdfast_bench"
VERBS = (
    "demo",
    "tour",
    "init",
    "run",
    "serve",
    "list",
    "status",
    "stop",
    "cancel",
    "watch",
    "restore",
    "fork",
    "drill",
    "rescale",
    "check",
    "lint",
    "cost",
    "advise",
    "skew",
    "ttl",
    "doctor",
    "explain",
    "completion",
    "bench",
    "evolve",
    "compare",
    "check-spark",
    "help",
    "version",
)
# Verbs of two words.
GROUPS = {
    "checkpoint": ("show", "history", "verify"),
    "alerts": ("list", "export"),
    "state": (
        "list",
        "get",
        "scan",
        "history",
        "explain",
        "diff",
        "edit",
        "undo",
        "erase",
        "migrate",
        "bootstrap",
    ),
    "offsets": ("show", "set", "skip", "translate"),
    "savepoint": ("take", "list", "show", "verify", "digest", "label", "diff", "delete", "gc"),
}
NOTE = "This page is generated: `make docs` writes it.\n"


def pages() -> dict[str, str]:
    """Every generated page by its file name."""
    return {
        "cli.md": command_line(),
        "errors.md": errors(),
        "defaults.md": defaults(),
        "metrics.md": metrics(),
        "json.md": json_page(NOTE),
        "modules.md": modules(),
        "lint.md": lint_page(NOTE),
        "advice.md": advice_page(NOTE),
        "sparks.md": sparks_page(NOTE),
        "python.md": python_page(NOTE),
    }


def modules() -> str:
    """Every module of the package and of its benches with its first sentence, room by room."""
    parts = ["# The modules\n", NOTE]
    for folder in (PACKAGE, *sorted(PACKAGE.rglob("*")), BENCHES, *sorted(BENCHES.rglob("*"))):
        if not (folder / "__init__.py").is_file():
            continue
        home = PACKAGE.parent if folder.is_relative_to(PACKAGE) else ROOT
        name = folder.relative_to(home).as_posix()
        parts.append(f"## {name}/\n\n{_summary(folder / '__init__.py')}\n")
        rows = [
            f"| `{module.name}` | {_summary(module)} |"
            for module in sorted(folder.glob("*.py"))
            if module.name not in ("__init__.py", "__main__.py")
        ]
        if rows:
            parts.append("\n".join(["| Module | What it does |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _summary(module: Path) -> str:
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


GIVEN = """## What is given

- Arguments have one order: what a verb works on (a checkpoint, a savepoint, a job, a file of code), then what
  in it (a state, a key), then where to (a directory).
- In place of a `CHECKPOINT` may stand the name of a `JOB` of the state home, and in place of a directory of
  savepoints too. What has a slash in it, or names a directory, is a path.
- A savepoint, `SP`, is `DIR/ID`, of which the beginning is enough that one is left, or `DIR@LABEL`. Several
  savepoints with this label are an error. `CHECKPOINT@12` is batch 12.
- `DIR@latest` is the newest savepoint of a directory; a directory with one savepoint is that savepoint.
- `show`, `verify`, `history`, `diff`, `erase`, `get`, `scan` and `take` are short for the verb of a group
  that fits what is named: `verify X` is `checkpoint verify X` or `savepoint verify X`, and with a key
  `history` and `explain` are `state history` and `state explain`. Options are those of that verb.
- A verb that does not exist is answered with the nearest that does.
"""

PRINTED = """## What is printed

The answer goes to standard output. Progress, notes and errors go to standard error; `--quiet` (`-q`) leaves
only the answer and errors.

- On a terminal, or where `COLUMNS` is set, a table takes at most that width. Ids are as short as tells them
  apart, and columns without any value are left out. A value that is cut ends in `…`; numbers and times are
  never cut. A row that does not fit stands as names and values.
- In a pipe or a file a table has all columns and whole values, however wide.
- Progress is a bar on a terminal, gone when the verb ends. Elsewhere, and with `TERM=dumb`, it is one line
  for each phase.
- Times are local, with the offset from UTC (`Z` for none), and where there is room in UTC as well. `TZ` says
  which zone.
- `NO_COLOR` turns colours off. Nothing but a terminal gets any.
- The last line on a terminal may be `next:` and a call with real values: what people do after this one, and
  after `--dry-run` the same call in earnest. It goes to standard error, and only where both streams are a
  terminal, without `--json` and `--quiet`.
- `--json` prints the same facts under names that stay, with whole ids and times in UTC. Use it in scripts.
"""


def command_line() -> str:
    """What verbs print, and the help of each."""
    parts = ["# The command line\n", NOTE, _block("--help"), GIVEN, PRINTED]
    for verb in VERBS:
        parts += [f"## holdfast {verb}\n", _block(verb, "--help")]
    for group, verbs in GROUPS.items():
        for verb in verbs:
            parts += [f"## holdfast {group} {verb}\n", _block(group, verb, "--help")]
    return "\n".join(parts)


def errors() -> str:
    """The kinds of errors, then every error of each kind with what to do."""
    rows = [
        f"| [{kind.__name__}](#{kind.__name__.lower()}) | {_first_line(kind)} | {kind.exit_code} |"
        f" {kind.http_status} |"
        for kind in BY_KIND.values()
    ]
    head = "| Kind | Meaning | Exit code | HTTP |\n|---|---|---|---|\n"
    text = (
        "Every error is a `HoldfastError` of one of these kinds. It says what is wrong, where, what\n"
        "was found and expected, and what to do next; with `--json` the same stands on standard output as\n"
        "`error`, `kind`, `exit_code`, `code`, `where`, `found`, `expected` and `hint`.\n"
        "The code of an error stays when its text changes; `holdfast explain CODE` explains it, and so does\n"
        "`hf.explain_code` in Python; `hf.known_codes` lists all.\n\n"
        "Below is every error by kind, then by the room of the code that raises it. `{name}` stands for a\n"
        "value that the message fills in, and a slash separates texts of which the message has one.\n"
        "An error that passes on the text of another one is not listed again.\n"
    )
    parts = ["# Errors\n", NOTE, text, head + "\n".join(rows) + "\n"]
    found = [error for error in raised_errors(PACKAGE) if not error.is_passed_on]
    for kind in BY_KIND.values():
        parts.append(f"## {kind.__name__}\n")
        of_kind = [error for error in found if error.kind == kind.__name__]
        for room in sorted({error.room for error in of_kind}):
            lines = sorted({error.row() for error in of_kind if error.room == room})
            parts.append(f"### {kind.__name__} in {room}\n")
            parts.append(
                "| Code | Error | Expected | What to do |\n|---|---|---|---|\n" + "\n".join(lines) + "\n"
            )
    return "\n".join(parts)


def defaults() -> str:
    """The settings in which Holdfast differs from Spark."""
    rows = [
        f"| `{each.key}` | `{_short(each.value)}` | `{_short(each.spark_default)}` | {each.reason} |"
        for each in DEFAULTS
    ]
    head = "| Setting | Holdfast | Spark | Why |\n|---|---|---|---|\n"
    text = (
        "Your own value wins, wherever Spark would read it from. `holdfast doctor` shows the values on\n"
        "this machine, with the two that depend on it: `spark.sql.shuffle.partitions` and\n"
        "`PYSPARK_PYTHON`.\n"
    )
    return "\n".join(["# Defaults that differ from Spark's\n", NOTE, text, head + "\n".join(rows) + "\n"])


def metrics() -> str:
    """What is measured, and the rules of alerts over it."""
    measured = [
        f"| `{each.name}` | {each.kind} | {_code(each.labels)} | {each.meaning} | {each.source} |"
        for each in METRICS
    ]
    rules = [
        f"| `{each.name}` | `{each.alert}` | `{each.metric}` {'above' if each.above else 'below'} |"
        f" {each.for_ms // 1000} s | {each.keep_ms // 1000} s | {each.severity} | {each.advice} |"
        for each in RULES
    ]
    text = (
        "Every metric has the label `job_name`, and the metrics of a query also `query`. Prometheus\n"
        "reserves `job`. A metric without a value, such as the latency of a store that does not\n"
        "measure it, is not exported.\n"
    )
    told = (
        "An alert fires when its metric has been beyond the job's threshold for the time in *waits*,\n"
        "and clears when it has been within the threshold for the time in *lingers*. Thresholds are\n"
        "settings of the job (`hf.Alerts`), and are exported as `holdfast_alert_threshold`.\n"
    )
    head = "| Metric | Kind | Labels | Meaning | From |\n|---|---|---|---|---|\n"
    rule_head = (
        "| Rule | Prometheus's name | Fires when | Waits | Lingers | Severity | What to do first |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    return "\n".join(
        [
            "# Metrics and alerts\n",
            NOTE,
            text,
            head + "\n".join(measured) + "\n",
            "## Alerts\n",
            told,
            rule_head + "\n".join(rules) + "\n",
        ]
    )


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" for each in words)


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").splitlines()[0]


def _short(value: str) -> str:
    return value.rsplit(".", 1)[-1] if value.startswith("org.") else value


def _block(*arguments: str) -> str:
    said = cli_in(ROOT, ROOT / ".holdfast")(*arguments, environ={"COLUMNS": "100", "TERM": "dumb"})
    said.check_returncode()
    return f"```\n{said.stdout.rstrip()}\n```\n"


def codes() -> str:
    """What `holdfast explain` prints of each error."""
    former = json.loads(CODES.read_text(encoding="utf-8")) if CODES.exists() else {}
    listed = error_codes(raised_errors(PACKAGE), former)
    return json.dumps(listed, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    CODES.write_text(codes(), encoding="utf-8")
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
        print(REFERENCE / name)
