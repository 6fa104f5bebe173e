"""`holdfast cost`: what state costs, and what each change would save."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import checkpoint_of, is_address, whole_address_or_none, without_batch
from holdfast.cli.help_text import examples
from holdfast.errors import HoldfastError, Invalid
from holdfast.savepoints.catalog import is_savepoint
from holdfast.storage import open_storage

if TYPE_CHECKING:
    from holdfast.advice.cost_report import CostReport, Saving, StateCost
    from holdfast.advice.plan_forecast import Forecast
    from holdfast.advice.prices import Money
    from holdfast.advice.usage import DailyRequests


@examples("checkpoints/visits", "--rate 5000 --keys 1000000")
def cost(
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="[CHECKPOINT|JOB|SP]",
            help="A checkpoint, a job, or a savepoint; none for a plan of --rate and --keys.",
            callback=whole_address_or_none,
        ),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            "--prices", metavar="FILE", help="A TOML file of what bytes, requests and memory cost you."
        ),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(
            "--interval", metavar="TIME", help="The time from one batch to the next. [measured; 1m of a plan]"
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", help="Of a plan: rows a second.")
    ] = None,
    keys: Annotated[
        int | None, typer.Option("--keys", metavar="N", help="Of a plan: different keys of its state.")
    ] = None,
    value_bytes: Annotated[
        int | None,
        typer.Option("--value-bytes", metavar="N", help="Of a plan: the bytes of a key's value. [100]"),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", metavar="N", help="Of a plan: the partitions of its state. [200]"),
    ] = None,
    medium: Annotated[
        str | None,
        typer.Option("--on", metavar="s3|hdfs|local", help="Of a plan: what its checkpoint will be on. [s3]"),
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
    """Show what state costs, and what each change would save.

    By operator and state: bytes on local disk, in the checkpoint, of older batches and in savepoints; memory;
    requests to object storage, from how often a batch comes and how many files it writes; and what all of it
    costs in a month. A price is the guide's where --prices names no other; requests and memory have none
    until you name one. A change is marked safe, or with its price.

    With --rate and --keys instead of a checkpoint: what a job will cost that is only a plan.
    """
    plan = {"--rate": rate, "--keys": keys, "--value-bytes": value_bytes, "--partitions": partitions}
    given = [name for name, value in {**plan, "--on": medium}.items() if value is not None]
    if savepoints and (place is None or is_savepoint(place)):
        raise Invalid(
            "--savepoints names the directories of a checkpoint's savepoints",
            code="HF-E2119",
            found="no checkpoint" if place is None else place,
            expected="a checkpoint or a job",
            hint="leave --savepoints out, or name the checkpoint",
        )
    options.on_this_machine(prices)
    if place is not None:
        if given:
            raise Invalid(
                "a checkpoint has its own figures",
                code="HF-E2120",
                found=f"{place} and {', '.join(given)}",
                expected="a checkpoint, or a plan",
                hint="leave one of both out",
            )
        output.show(_cost(place, home, prices, interval, savepoints), json, _show)
        return
    if rate is None or keys is None:
        raise Invalid(
            "there is nothing to tell the cost of",
            code="HF-E2121",
            found=", ".join(given) or "neither a checkpoint nor a plan",
            expected="CHECKPOINT, JOB or SP; or --rate and --keys of a plan",
            hint="holdfast cost checkpoints/visits, or holdfast cost --rate 5000 --keys 1000000",
        )

    forecast = hf.forecast_cost(
        rate=rate,
        keys=keys,
        value_bytes=100 if value_bytes is None else value_bytes,
        interval=interval or "1m",
        partitions=200 if partitions is None else partitions,
        prices=prices,
        medium=medium or "s3",
    )
    output.show(forecast, json, _show_forecast)


def _cost(
    place: str, home: str | None, prices: Path | None, interval: str | None, savepoints: list[str] | None
) -> CostReport:
    """Return the report; of a job's checkpoint with its savepoints, and the memory of its newest batch."""
    from holdfast.jobs.reports import job_cost

    named = without_batch(place)
    details = None
    if not is_address(named):
        address = checkpoint_of(place, home)
        details = options.control(home).details(place)
    elif named == place and not is_savepoint(place):
        address = open_storage(place).uri
        with suppress(HoldfastError):  # without a registry that can be read, the files are all there is
            details = options.control(home).job_with(address)
    if details is None:
        return hf.cost(place, prices=prices, interval=interval, savepoints=savepoints)
    return job_cost(details, address, prices=prices, interval=interval, savepoints=savepoints)


def _show(report: CostReport) -> None:
    from holdfast.advice.prices import total_text
    from holdfast.config.units import rounded_size

    currency = report.prices.currency
    output.fields(
        [
            ("savepoint" if report.is_savepoint else "checkpoint", report.place),
            ("on", report.medium),
            ("batches kept", report.batches),
            ("a batch every", _interval_text(report)),
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
                "OLDER",
                "SAVEPOINTS",
                "MEMORY",
                "REQUESTS/DAY",
                "MONTH",
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
                "none: it is a savepoint"
                if report.is_savepoint
                else _requests_text(report.requests, report.money, report.medium, currency),
            ),
            ("a month", total_text(report.money, currency)),
        ]
    )
    if report.changes:
        output.line()
        output.line("what changes would save in a month:")
        for change in report.changes:
            _show_change(change, currency)


def _show_change(change: Saving, currency: str) -> None:
    from holdfast.config.units import rounded_duration, rounded_size

    saves = [f"{_amount(change.saves_money)} {currency}"]
    if change.saves_bytes:
        saves.append(rounded_size(change.saves_bytes))
    if change.saves_requests:
        saves.append(f"{change.saves_requests:,.0f} requests a day")
    output.prose(f"{change.what}: {', '.join(saves)}", "  ")
    longer = (
        ""
        if not change.recovery_ms
        else f"; a recovery takes up to {rounded_duration(change.recovery_ms)} more"
    )
    output.prose(f"{'safe' if change.safe else 'its price'}: {change.price}{longer}", "    ")
    output.prose(f"how: {change.how}", "    ")


def _show_forecast(forecast: Forecast) -> None:
    from holdfast.advice.prices import total_text
    from holdfast.config.units import rounded_duration, rounded_size

    plan, money = forecast.plan, forecast.money
    currency = forecast.prices.currency
    output.line(
        f"a plan: {plan.rate:,.6g} rows a second, {plan.keys:,} keys of {plan.value_bytes:,} bytes,"
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
            ("of it older", f"{rounded_size(forecast.retained_bytes)}, of {plan.retain} batches"),
            ("a batch writes", rounded_size(forecast.batch_bytes)),
            ("memory", f"{rounded_size(forecast.memory_bytes)}, {_priced(money.memory, currency)}"),
            ("requests", _requests_text(forecast.requests, money, plan.medium, currency)),
            ("a month", total_text(money, currency)),
        ]
    )
    output.line()
    for each in forecast.assumed:
        output.prose(f"assumed: {each}")


def _state_name(cost: StateCost) -> str:
    named = cost.named
    return named.label if cost.state == named.display_name else f"{named.label}.{cost.state}"


def _interval_text(report: CostReport) -> str:
    from holdfast.config.units import rounded_duration

    if report.interval_ms is None or report.interval_from is None:
        return "unknown: give --interval"
    return f"{rounded_duration(report.interval_ms)} ({report.interval_from.value})"


def _savepoints_text(report: CostReport) -> str:
    from holdfast.config.units import rounded_size

    if not report.savepoints:
        if not report.catalogs:
            return "unknown: no directory of savepoints is known; name one with --savepoints DIR"
        looked = ", ".join(map(next_step.typed, report.catalogs))
        return f"none in {looked}; name other directories with --savepoints DIR"
    return (
        f"{report.savepoints}, {rounded_size(report.savepoint_bytes)},"
        f" {_amount(report.money.savepoints)} {report.prices.currency}"
    )


def _memory_text(report: CostReport) -> Any:
    from holdfast.config.units import rounded_size

    if report.memory_bytes is None or report.memory_from is None:
        return "none" if report.is_savepoint or not report.states else "unknown"
    price = _priced(report.money.memory, report.prices.currency)
    return f"{rounded_size(report.memory_bytes)} ({report.memory_from.value}), {price}"


def _requests_text(asked: DailyRequests | None, money: Money, medium: str, currency: str) -> str:
    if asked is None:
        return "none: not in object storage" if medium != "s3" else "unknown: give --interval"
    price = _priced(money.requests, currency)
    return f"{asked.per_batch.total:,.0f} a batch, {asked.total.total:,.0f} a day, {price}"


def _priced(money: float | None, currency: str) -> str:
    return "no price" if money is None else f"{_amount(money)} {currency}"


def _amount(money: float) -> str:
    from holdfast.advice.prices import money_text

    return money_text(money)
