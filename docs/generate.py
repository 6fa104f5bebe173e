"""Write the reference pages that are derived from code: the command line, errors, JSON, defaults, rules.

`make docs` writes them; a test compares them with what it would write.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from pathlib import Path

from advice_catalogue import advice_page
from cli_runner import cli_in
from error_catalogue import error_codes, raised_errors
from json_catalogue import json_page
from lint_catalogue import lint_page
from platform_catalogue import platforms_page
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
# Each verb with the names in `hf` that do the same; empty where a verb needs a terminal or a shell.
VERBS = {
    "demo": "",
    "tour": "",
    "init": "",
    "run": "jobs.start",
    "serve": "",
    "list": "jobs.list",
    "status": "jobs.status",
    "stop": "jobs.stop",
    "restart": "jobs.restart",
    "upgrade": "jobs.upgrade",
    "apply": "jobs.apply",
    "cancel": "jobs.cancel",
    "mirror": "savepoints.take_and_retain",
    "watch": "watch",
    "restore": "savepoints.restore",
    "fork": "savepoints.fork",
    "drill": "drill",
    "rescale": "savepoints.rescale",
    "check": "check",
    "lint": "lint",
    "cost": "cost forecast_cost",
    "advise": "advise",
    "skew": "skew.report skew.find skew.watch",
    "ttl": "StatesAtRest.what_if",
    "doctor": "health",
    "explain": "explain_code",
    "completion": "",
    "bench": "",
    "evolve": "evolve",
    "compare": "compare",
    "check-spark": "check_spark",
    "help": "",
    "version": "",
}
# Verbs of two words.
GROUPS = {
    "checkpoint": {
        "show": "checkpoints.read",
        "history": "checkpoints.history",
        "verify": "checkpoints.verify",
        "release": "release",
    },
    "alerts": {"list": "jobs.alerts", "export": "jobs.alert_rules"},
    "state": {
        "list": "StatesAtRest.operators",
        "get": "StatesAtRest.get",
        "scan": "StatesAtRest.scan StatesAtRest.sql",
        "history": "StatesAtRest.history",
        "explain": "StatesAtRest.explain",
        "diff": "savepoints.diff",
        "edit": "edit",
        "undo": "undo",
        "erase": "erase",
        "migrate": "migrate",
        "bootstrap": "bootstrap",
    },
    "offsets": {
        "show": "offsets",
        "set": "move_offsets",
        "skip": "move_offsets",
        "translate": "move_offsets",
    },
    "savepoint": {
        "take": "savepoints.take",
        "list": "savepoints.list",
        "show": "savepoints.show",
        "verify": "savepoints.verify",
        "digest": "savepoints.digest",
        "label": "savepoints.label",
        "diff": "savepoints.diff savepoints.diff_files",
        "delete": "savepoints.delete",
        "gc": "savepoints.gc",
    },
}
NOTE = "This page is generated: `make docs` writes it.\n"


def pages() -> dict[str, str]:
    """Return every generated page by its file name."""
    return {
        "cli.md": command_line(),
        "errors.md": errors(),
        "defaults.md": defaults(),
        "metrics.md": metrics(),
        "json.md": json_page(NOTE),
        "modules.md": modules(),
        "lint.md": lint_page(NOTE),
        "advice.md": advice_page(NOTE),
        "platforms.md": platforms_page(NOTE),
        "sparks.md": sparks_page(NOTE),
        "python.md": python_page(NOTE),
    }


def modules() -> str:
    """Return the page of modules: each module of the package and the benches with its first sentence."""
    parts = ["# Modules\n", NOTE]
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
            parts.append("\n".join(["| Module | Description |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


# The start of a module: the rest needs no parser.
_DOCSTRING = re.compile(r'(?:#.*\n|\s)*r?""".*?"""', re.DOTALL)


def _summary(module: Path) -> str:
    head = _DOCSTRING.match(module.read_text(encoding="utf-8"))
    text = ast.get_docstring(ast.parse(head[0])) if head else None
    return " ".join((text or "").partition("\n\n")[0].split()).replace("|", "\\|")


GIVEN = """## Arguments

- Arguments have a fixed order: the object of the command (a checkpoint, a savepoint, a job, a file of code),
  then what to select in it (a state, a key), then the target (a directory).
- Instead of a `CHECKPOINT` or a catalog of savepoints you can give the name of a `JOB` of the state home. An
  argument that contains a slash, or that names a directory, is a path.
- A savepoint, `SP`, is `DIR/ID` or `DIR@LABEL`. An unambiguous prefix of the id is enough; a label that
  several savepoints have is an error. `CHECKPOINT@12` is batch 12.
- `DIR@latest` is the newest savepoint of a directory; a directory with one savepoint is that savepoint.
- `show`, `verify`, `history`, `diff`, `erase`, `get`, `scan` and `take` are short for the command of the
  group that fits the argument: `verify X` is `checkpoint verify X` or `savepoint verify X`, and with a key
  `history` and `explain` are `state history` and `state explain`. The options are those of that command.
- For an unknown command the error suggests the most similar one.
"""

PRINTED = """## Output

The result goes to standard output. Progress, notes and errors go to standard error; `--quiet` (`-q`) leaves
only the result and errors.

- On a terminal, or if `COLUMNS` is set, a table is at most that wide. Ids are shortened to an unambiguous
  prefix, and columns without any value are left out. A truncated value ends in `…`; numbers and times are
  never truncated. A row that does not fit is printed as names and values.
- In a pipe or a file a table has all columns and complete values, however wide.
- On a terminal, progress is a bar that is removed when the command ends. Elsewhere, and with `TERM=dumb`, it
  is one line for each phase.
- Times are local, with the offset from UTC (`Z` for none), and if there is room also in UTC. `TZ` sets the
  time zone.
- `NO_COLOR` turns colours off. Colours are used only on a terminal.
- The last line on a terminal may be `next:` and a command with real values: the usual next step, and after
  `--dry-run` the same command without it. It goes to standard error, and only if both streams are a terminal
  and neither `--json` nor `--quiet` is given.
- `--json` prints the same facts under stable names, with complete ids and times in UTC. Use it in scripts.
"""


def command_line() -> str:
    """Return the page of the command line: arguments, output, and the help of each command."""
    parts = ["# The command line\n", NOTE, _block("--help"), GIVEN, PRINTED]
    verbs: dict[tuple[str, ...], str] = {(verb,): names for verb, names in VERBS.items()}
    verbs |= {(group, verb): names for group, ours in GROUPS.items() for verb, names in ours.items()}
    for words, names in verbs.items():
        parts += [f"## holdfast {' '.join(words)}\n", _block(*words, "--help")]
        if names:
            parts.append("In Python:\n" + ",\n".join(map(_python_link, names.split())) + ".\n")
    return "\n".join(parts)


def _python_link(name: str) -> str:
    """Return a link to a public name; a method is described with its class."""
    home = name.partition(".")[0] if name[0].isupper() else name
    return f"[`hf.{name}`](python.md#hf{home.replace('.', '').lower()})"


def errors() -> str:
    """Return the page of errors: the kinds, then every error of each kind with what to do."""
    rows = [
        f"| [{kind.__name__}](#{kind.__name__.lower()}) | {_first_line(kind)} | {kind.exit_code} |"
        f" {kind.http_status} |"
        for kind in BY_KIND.values()
    ]
    head = "| Kind | Meaning | Exit code | HTTP |\n|---|---|---|---|\n"
    text = (
        "Every error is a `HoldfastError` of one of these kinds. Its message has the failure, the object\n"
        "concerned, the value found, the values expected, and the next step. With `--json` the same facts\n"
        "are printed on standard output as `error`, `kind`, `exit_code`, `code`, `where`, `found`,\n"
        "`expected` and `hint`. The code of an error is stable even if its text changes.\n"
        "`holdfast explain CODE` and, in Python, `hf.explain_code` explain a code; `hf.known_codes` lists\n"
        "all codes.\n\n"
        "The errors below are grouped by kind, then by the package that raises them. `{name}` is a value\n"
        "that the message fills in; a slash separates alternative texts. An error that only repeats the\n"
        "text of a different one is not listed again.\n"
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
    """Return the page of the settings in which Holdfast differs from Spark."""
    rows = [
        f"| `{each.key}` | `{_short(each.value)}` | `{_short(each.spark_default)}` | {each.reason} |"
        for each in DEFAULTS
    ]
    head = "| Setting | Holdfast | Spark | Why |\n|---|---|---|---|\n"
    text = (
        "Your own value takes precedence, in whichever way Spark reads it. `holdfast doctor` shows the\n"
        "values on this machine, including the two that depend on the machine:\n"
        "`spark.sql.shuffle.partitions` and `PYSPARK_PYTHON`.\n"
    )
    return "\n".join(["# Defaults that differ from Spark's\n", NOTE, text, head + "\n".join(rows) + "\n"])


def metrics() -> str:
    """Return the page of metrics and of the alert rules."""
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
        "Every metric has the label `job_name` (Prometheus reserves `job`), and the metrics of a query\n"
        "also have `query`. A metric without a value, such as the latency of a store that does not\n"
        "measure it, is not exported.\n"
    )
    told = (
        "An alert fires when its metric has been beyond the job's threshold for the time in *For*, and\n"
        "clears when it has been within the threshold for the time in *Clears after*. Thresholds are\n"
        "settings of the job (`hf.Alerts`), and are exported as `holdfast_alert_threshold`.\n"
    )
    head = "| Metric | Type | Labels | Meaning | Source |\n|---|---|---|---|---|\n"
    rule_head = (
        "| Rule | Name in Prometheus | Fires when | For | Clears after | Severity | What to do first |\n"
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
