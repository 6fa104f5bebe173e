"""`holdfast cost`: the cost of state, and the savings of possible changes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import checkpoint_of, is_address, whole_address_or_none, without_batch
from holdfast.cli.help_text import examples
from holdfast.errors import HoldfastError, Invalid
from holdfast.savepoints.address import StateAddress
from holdfast.storage import open_storage

if TYPE_CHECKING:
    from holdfast.advice.cost_report import CostReport, Saving, StateCost
    from holdfast.advice.plan_forecast import CostForecast
    from holdfast.advice.prices import Medium, Money
    from holdfast.advice.usage import DailyRequests


@examples("checkpoints/visits", "--rate 5000 --keys 1000000")
def cost(
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="[CHECKPOINT|JOB|SP]",
            help="A checkpoint, a job or a savepoint; omit it for a planned job.",
            callback=whole_address_or_none,
        ),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            "--prices", metavar="FILE", help="A TOML file of your prices of bytes, requests and memory."
        ),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(
            "--interval", metavar="TIME", help="The time between batches. [measured; planned job: 1m]"
        ),
    ] = None,
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
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", metavar="N", help="Planned job: number of state partitions. [200]"),
    ] = None,
    medium: Annotated[
        str | None,
        typer.Option("--on", metavar="s3|hdfs|local", help="Planned job: storage of the checkpoint. [s3]"),
    ] = None,
    savepoints: Annotated[
        list[str] | None,
        typer.Option(
            "--savepoints",
            metavar="DIR",
            help="A directory of the query's savepoints. Repeatable. [those of its job, and"
            " CHECKPOINT.savepoints]",
        ),
    ] = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Estimate the cost of state, and the savings of possible changes.

    For each operator and state: bytes on local disk, in the checkpoint, in older batches and in savepoints;
    memory; requests to object storage, from the batch interval and the number of files per batch; and the
    cost per month. Storage prices default to the guide's; requests and memory have no price unless --prices
    gives one. Each change is marked safe, or has its drawback.

    With --rate and --keys instead of a checkpoint: estimate the cost of a job that does not exist yet.
    """
    plan = {"--rate": rate, "--keys": keys, "--value-bytes": value_bytes, "--partitions": partitions}
    given = [name for name, value in {**plan, "--on": medium}.items() if value is not None]
    if savepoints and (place is None or StateAddress.parse(place).is_savepoint):
        raise Invalid(
            "--savepoints can only be combined with a checkpoint or a job",
            code="HF-E2119",
            found="no checkpoint" if place is None else place,
            hint="omit --savepoints, or give a checkpoint or a job",
        )
    options.on_this_machine(prices)
    if place is not None:
        if given:
            raise Invalid(
                "options of a planned job cannot be combined with a checkpoint or savepoint",
                code="HF-E2120",
                found=f"{place} and {', '.join(given)}",
                hint=f"omit {place}, or omit {', '.join(given)}",
            )
        output.show(_cost(place, home, prices, interval, savepoints), json, _show)
        return
    if rate is None or keys is None:
        raise Invalid(
            "no checkpoint and no complete planned job given",
            code="HF-E2121",
            found=", ".join(given) or "no checkpoint and no options",
            expected="CHECKPOINT, JOB or SP; or both --rate and --keys",
            hint="run `holdfast cost checkpoints/visits` or `holdfast cost --rate 5000 --keys 1000000`",
        )

    forecast = hf.forecast_cost(
        rate=rate,
        keys=keys,
        value_bytes=100 if value_bytes is None else value_bytes,
        interval=interval or "1m",
        partitions=200 if partitions is None else partitions,
        prices=prices,
        medium=cast("Medium", medium or "s3"),  # the forecast checks it
    )
    output.show(forecast, json, _show_forecast)


def _cost(
    place: str, home: str | None, prices: Path | None, interval: str | None, savepoints: list[str] | None
) -> CostReport:
    """Return the cost report; for a job, it includes savepoints and the memory use of the newest batch."""
    from holdfast.jobs.reports import job_cost

    named = without_batch(place)
    details = None
    if not is_address(named):
        address = checkpoint_of(place, home)
        details = options.control(home).details(place)
    elif named == place and not StateAddress.parse(place).is_savepoint:
        address = open_storage(place).uri
        with suppress(HoldfastError):  # without a readable registry, only files are used
            details = options.control(home).job_with(address)
    if details is None:
        return hf.cost(place, prices=prices, interval=interval, savepoints=savepoints)
    return job_cost(details, address, prices=prices, interval=interval, savepoints=savepoints)


def _show(report: CostReport) -> None:
    from holdfast.advice.prices import total_text
    from holdfast.quantities import rounded_size

    currency = report.prices.currency
    output.fields(
        [
            ("savepoint" if report.is_savepoint else "checkpoint", report.place),
            ("storage", report.medium),
            ("batches retained", report.batches),
            ("batch interval", _interval_text(report)),
        ]
    )
    output.line()
    if report.states:
        output.table(
            [
                "STATE",
                "STORES",
                "LOCAL",
                "CHECKPOINT",
                "OLDER BATCHES",
                "SAVEPOINTS",
                "MEMORY",
                "REQUESTS/DAY",
                f"{currency}/MONTH",
            ],
            [
                (
                    _state_name(state),
                    state.stores,
                    rounded_size(state.local_bytes),
                    rounded_size(state.checkpoint_bytes),
                    rounded_size(state.retained_bytes),
                    rounded_size(state.savepoint_bytes),
                    None if state.memory_bytes is None else rounded_size(state.memory_bytes),
                    None if state.requests is None else f"{state.requests.total:,.0f}",
                    _amount(state.money.total),
                )
                for state in report.states
            ],
            spare=("MEMORY", "SAVEPOINTS", "STORES", "LOCAL"),
        )
    else:
        output.line("this query keeps no state")
    output.line()
    output.fields(
        [
            ("local disk", f"{rounded_size(report.local_bytes)}, {_amount(report.money.local)} {currency}"),
            (
                "checkpoint",
                f"{rounded_size(report.checkpoint_bytes)}, {_amount(report.money.checkpoint)} {currency}",
            ),
            ("savepoints", _savepoints_text(report)),
            ("memory", _memory_text(report)),
            (
                "requests",
                "none (a savepoint is only stored)"
                if report.is_savepoint
                else _requests_text(report.requests, report.money, report.medium, currency),
            ),
            ("per month", total_text(report.money, currency)),
        ]
    )
    if report.changes:
        output.line()
        output.line("savings per month of possible changes:")
        for change in report.changes:
            _show_change(change, currency)


def _show_change(change: Saving, currency: str) -> None:
    from holdfast.quantities import rounded_duration, rounded_size

    saves = [f"{_amount(change.saves_money)} {currency}"]
    if change.saves_bytes:
        saves.append(rounded_size(change.saves_bytes))
    if change.saves_requests:
        saves.append(f"{change.saves_requests:,.0f} requests per day")
    output.prose(f"{change.what}: {', '.join(saves)}", "  ")
    longer = (
        ""
        if not change.recovery_ms
        else f"; a recovery takes up to {rounded_duration(change.recovery_ms)} longer"
    )
    output.prose(f"{'safe' if change.safe else 'drawback'}: {change.price}{longer}", "    ")
    output.prose(f"how: {change.how}", "    ")


def _show_forecast(forecast: CostForecast) -> None:
    from holdfast.advice.prices import total_text
    from holdfast.quantities import rounded_duration, rounded_size

    plan, money = forecast.plan, forecast.money
    currency = forecast.prices.currency
    output.line(
        f"planned job: {plan.rate:,.6g} rows per second, {plan.keys:,} keys of {plan.value_bytes:,} bytes,"
        f" {plan.partitions:,} partitions, a batch every {rounded_duration(plan.interval_ms)}, on"
        f" {plan.medium}"
    )
    output.line()
    output.fields(
        [
            ("state", rounded_size(forecast.state_bytes)),
            ("local disk", f"{rounded_size(forecast.local_bytes)}, {_amount(money.local)} {currency}"),
            (
                "checkpoint",
                f"{rounded_size(forecast.checkpoint_bytes)}, {_amount(money.checkpoint)} {currency}",
            ),
            (
                "older batches",
                f"{rounded_size(forecast.retained_bytes)} of it, {plan.retain} batches retained",
            ),
            ("bytes per batch", rounded_size(forecast.batch_bytes)),
            ("memory", f"{rounded_size(forecast.memory_bytes)}, {_priced(money.memory, currency)}"),
            ("requests", _requests_text(forecast.requests, money, plan.medium, currency)),
            ("per month", total_text(money, currency)),
        ]
    )
    output.line()
    for each in forecast.assumed:
        output.prose(f"assumed: {each}")


def _state_name(cost: StateCost) -> str:
    named = cost.named
    return named.label if cost.state == named.display_name else f"{named.label}.{cost.state}"


def _interval_text(report: CostReport) -> str:
    from holdfast.quantities import rounded_duration

    if report.interval_ms is None or report.interval_from is None:
        return "unknown: give --interval"
    return f"{rounded_duration(report.interval_ms)} ({report.interval_from.value})"


def _savepoints_text(report: CostReport) -> str:
    from holdfast.quantities import rounded_size

    if not report.savepoints:
        if not report.catalogs:
            return "unknown: no savepoint directory is known; give one with --savepoints DIR"
        looked = ", ".join(map(next_step.typed, report.catalogs))
        return f"none in {looked}; give other directories with --savepoints DIR"
    return (
        f"{report.savepoints}, {rounded_size(report.savepoint_bytes)},"
        f" {_amount(report.money.savepoints)} {report.prices.currency}"
    )


def _memory_text(report: CostReport) -> Any:
    from holdfast.quantities import rounded_size

    if report.memory_bytes is None or report.memory_from is None:
        return "none" if report.is_savepoint or not report.states else "unknown"
    price = _priced(report.money.memory, report.prices.currency)
    return f"{rounded_size(report.memory_bytes)} ({report.memory_from.value}), {price}"


def _requests_text(asked: DailyRequests | None, money: Money, medium: str, currency: str) -> str:
    if asked is None:
        return "none (not on object storage)" if medium != "s3" else "unknown: give --interval"
    price = _priced(money.requests, currency)
    return f"{asked.per_batch.total:,.0f} per batch, {asked.total.total:,.0f} per day, {price}"


def _priced(money: float | None, currency: str) -> str:
    return "no price" if money is None else f"{_amount(money)} {currency}"


def _amount(money: float) -> str:
    from holdfast.advice.prices import money_text

    return money_text(money)
