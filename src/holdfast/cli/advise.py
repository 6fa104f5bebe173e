"""`holdfast advise`: recommendations for a checkpoint, a job or a planned job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import holdfast as hf
from holdfast.cli import options, output
from holdfast.cli.arguments import checkpoint_of
from holdfast.cli.help_text import examples
from holdfast.config.checks import place_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.advice.advice import Advice, AdviceReport, Option, TopicName


@examples(
    "visits --topic partitions,memory --cores 16",
    "--rate 5000 --keys 1000000 --value-bytes 200 --latency 30s",
)
def advise(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[CHECKPOINT|JOB]", help="A checkpoint or a job; omit it for a planned job."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="backend|checkpoint|partitions|memory",
            help="The topics, separated by commas. [all]",
        ),
    ] = None,
    *,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", help="Planned job: rows per second.")
    ] = None,
    keys: Annotated[
        int | None, typer.Option("--keys", metavar="N", help="Planned job: number of keys in the state.")
    ] = None,
    value_bytes: Annotated[
        int | None,
        typer.Option("--value-bytes", metavar="N", help="Planned job: bytes of a key's value. [100]"),
    ] = None,
    latency: Annotated[
        str | None,
        typer.Option("--latency", metavar="TIME", help="Maximum latency of a result, such as 10s."),
    ] = None,
    cores: Annotated[
        int | None, typer.Option("--cores", metavar="N", help="Number of cores that run tasks.")
    ] = None,
    shared: Annotated[bool, typer.Option("--shared", help="Other services also read the state.")] = False,
    conf: options.Conf = None,
    prices: Annotated[
        str | None,
        typer.Option("--prices", metavar="FILE", help="A TOML file of prices. [storage prices only]"),
    ] = None,
    measured: Annotated[
        str | None,
        typer.Option(
            "--measured",
            metavar="FILE",
            help="Output of `holdfast bench backends --json` on this machine. [the guide's figures]",
        ),
    ] = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Recommend changes to a checkpoint, a job or a planned job.

    The worst finding comes first. Each has its evidence, the cost of ignoring it, what to do, and how certain
    it is: `certain` is proved by files or by the job's batches, `likely` is estimated from them, and a
    `guess` depends on facts that no file records. The possible backends and checkpoint locations follow. The
    reference lists all advice and how its cost is estimated. For a planned job give --rate and --keys.

    Reads logs, names and sizes of files; for a job also the batches recorded in the state home.
    """
    report = hf.advise(
        None if target is None else checkpoint_of(target, home),
        topics=[cast("TopicName", name.strip()) for names in topic or () for name in names.split(",")],
        rate=rate,
        keys=keys,
        value_bytes=value_bytes,
        latency=latency,
        cores=cores,
        shared=shared,
        conf=options.pairs("--conf", conf),
        prices=prices,
        measured=measured,
        home=home,
    )
    output.show(report, json, _show)


def _show(report: AdviceReport) -> None:
    for advice in report.advice:
        _show_advice(advice, report.currency)
    output.line(f"{report.place or 'planned job'}: {_counts(report.advice)}")
    if report.forecast is not None:
        _show_plan(report)
    if report.backends:
        output.line()
        _show_options("BACKEND", report.backends, report.currency, state=True)
        output.prose(f"figures: {report.figures}")
    if report.places:
        output.line()
        _show_options("LOCATION", report.places, report.currency, state=False)
        unpriced = dict.fromkeys(name for place in report.places for name in place.unpriced)
        if unpriced:
            output.prose(f"+ without {' and '.join(unpriced)} (no price given)")
    if report.not_told or report.lint:
        output.line()
    for what in report.not_told:
        output.prose(f"unknown: {what}")
    if report.lint:
        output.prose(
            f"lint has more findings: {', '.join(report.lint)}; see `holdfast lint {_typed(report)}`"
        )


def _typed(report: AdviceReport) -> str:

    return place_word(report.place or "")


def _show_advice(advice: Advice, currency: str) -> None:
    output.prose(
        f"{advice.id} {advice.name}, {advice.severity.value}, {advice.sureness.value}: {advice.seen}"
    )
    output.prose(f"costs: {advice.cost.text(currency)}", "  ")
    output.prose(f"do: {advice.do}", "  ")
    for command in advice.commands:
        output.whole(f"    {command}")
    output.line()


def _counts(advice: Sequence[Advice]) -> str:
    from holdfast.quantities import counted

    kinds = [each.severity.value for each in advice]
    counts = [counted(kinds.count(word), word) for word in dict.fromkeys(kinds)]
    return ", ".join(counts) if counts else "no advice"


def _show_plan(report: AdviceReport) -> None:
    from holdfast.advice.prices import total_text
    from holdfast.config.units import exact_duration
    from holdfast.quantities import rounded_size

    found = report.forecast
    if found is None:
        return
    plan = found.plan
    requests = None if found.requests is None else round(found.requests.total.total)
    output.line()
    output.fields(
        [
            ("keys", plan.keys),
            ("state", rounded_size(found.state_bytes)),
            ("checkpoint", rounded_size(found.checkpoint_bytes)),
            ("memory", rounded_size(found.memory_bytes)),
            ("batch interval", exact_duration(plan.interval_ms)),
            ("rows per batch", round(plan.rate * plan.interval_ms / 1000)),
            ("bytes per batch", rounded_size(found.batch_bytes)),
            ("partitions", plan.partitions),
            ("requests per day", requests),
            ("per month", total_text(found.money, report.currency)),
        ]
    )
    output.line()
    for key, value in report.settings.items():
        output.whole(f'spark.conf.set("{key}", "{value}")')


def _show_options(head: str, listed: Sequence[Option], currency: str, *, state: bool) -> None:
    from holdfast.quantities import rounded_duration, rounded_size

    def row(option: Option) -> tuple[Any, ...]:
        word = "advised" if option.advised else "possible" if option.fits else "no"
        size = None if option.state_bytes is None else output.WholeText(rounded_size(option.state_bytes))
        name = f"{option.name} (now)" if option.now else option.name
        if not state:
            return name, word, size, _month(option), option.why
        recovery = None if option.recovery_ms is None else rounded_duration(option.recovery_ms)
        read = None if option.read_us is None else rounded_duration(option.read_us / 1000)
        return name, word, size, recovery, read, option.why

    numbers = ("STATE SIZE", "RESTART", "KEY READ") if state else ("SIZE", f"{currency}/MONTH")
    output.table([head, "VERDICT", *numbers, "REASON"], [row(option) for option in listed], below=["REASON"])


def _month(option: Option) -> str | None:
    """Return the monthly cost of a location, with a plus sign if some costs are unknown."""
    from holdfast.advice.prices import money_text

    if option.money_a_month is None:
        return None
    return f"{money_text(option.money_a_month)}{' +' if option.unpriced else ''}"
