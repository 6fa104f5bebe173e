"""What `holdfast check --spark` prints: whether another Spark goes on with a checkpoint."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from holdfast.cli import options, output
from holdfast.cli.arguments import checkpoint_of, whole_address
from holdfast.errors import Invalid

if TYPE_CHECKING:
    import typer

    from holdfast.savepoints.upgrade.spark_upgrade import SparkReport

_VERDICTS = {
    "goes on": "Spark {} goes on with this state",
    "doubtful": "Spark {} goes on, but state or results may come to be wrong",
    "fails": "Spark {} does not go on with this",
}
_GROUPS = {"fails": "would not go on:", "meaning": "a risk:", "none": "to know:"}
_STATE_ALONE = (
    "--spark looks at the state alone; the code is checked by the Spark that is installed, without it"
)


def check_for_spark(
    context: typer.Context, target: str, spark: str, query: str | None, home: str | None, *, json: bool
) -> SparkReport:
    """Look at a savepoint, a checkpoint or a job's, and print the verdict.

    Raises:
        Invalid: An option was given that is about code.
    """
    from holdfast.savepoints.upgrade.spark_upgrade import check_spark

    for name in ("against", "old", "set_", "conf", "master", "deep"):
        if context.params.get(name):
            raise Invalid(
                _STATE_ALONE,
                where=f"--{name.rstrip('_')}",
                hint=f"holdfast check --spark {spark} SAVEPOINT",
            )
    if target.partition(":")[0].endswith(".py"):
        raise Invalid(_STATE_ALONE, where=target, hint=f"holdfast check --spark {spark} SAVEPOINT")
    address = checkpoint_of(whole_address(context, target), home, query)
    report = check_spark(address, spark, query=query, home=options.settings(home).real_home)
    output.show(report, json, _show)
    return report


def _show(report: SparkReport) -> None:
    written = " or ".join(report.written_by)
    output.fields(
        [
            ("written by", f"Spark {written}" + ("" if report.noted is None else ", as noted")),
            ("batch", report.batch_id),
            ("operators", ", ".join(report.operators) or "none"),
            (
                "state",
                "none" if report.provider is None else f"{report.provider}, format {report.state_format}",
            ),
        ]
    )
    for effect, group in groupby(report.findings, key=lambda finding: finding.effect.value):
        output.line()
        output.line(_GROUPS[effect])
        for finding in group:
            said = [finding.text, finding.hint, finding.reference and f"({finding.reference})"]
            output.prose(f"- {'; '.join(filter(None, said[:2]))} {said[2] or ''}".rstrip(), "  ")
    if report.filled:
        output.line()
        output.prose("settings that it does not pin yet, with what is taken whatever the session says:")
        for setting in report.filled:
            value = "(the session's)" if setting.value is None else setting.value
            output.prose(f"- {setting.name}={value}: {setting.meaning}", "  ")
    output.line()
    tested = "" if report.tested else "; tests have not tried this pair of releases"
    output.line(f"{_VERDICTS[report.verdict].format(report.spark)} (batch {report.batch_id}{tested})")
