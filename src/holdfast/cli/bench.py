"""`holdfast bench`: the measurements."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import options, output
from holdfast.errors import Invalid


def bench(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="startup or defaults; all by default.")
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, max=100, help="Counted runs of each side.")] = 5,
    json: options.Json = False,
) -> None:
    """Measure Holdfast against raw PySpark, both sides in one run; quote the medians."""
    from holdfast.bench.defaults import defaults  # noqa: PLC0415 - not needed for --help
    from holdfast.bench.measure import load, machine, machine_fields  # noqa: PLC0415 - as above
    from holdfast.bench.startup import startup  # noqa: PLC0415 - as above

    benches = {"startup": startup, "defaults": defaults}
    if name is not None and name not in benches:
        raise Invalid("there is no such measurement", found=name, expected=", ".join(benches))
    before = load()
    results = []
    for each in [name] if name else list(benches):
        output.say(f"measuring {each}, {runs} runs of each side …")
        results.append(benches[each](runs))
    where = machine_fields(machine(before))
    if json:
        output.emit_json({"machine": where, "benches": [each.as_dict() for each in results]})
        return
    output.fields(where.items())
    for result in results:
        output.line()
        output.line(f"{result.name}: {result.what}")
        output.table(
            ["", "MEDIAN s", "MIN s", "MAX s", "RUNS"],
            [
                (
                    each.name,
                    f"{each.median:.3f}",
                    f"{min(each.seconds):.3f}",
                    f"{max(each.seconds):.3f}",
                    len(each.seconds),
                )
                for each in result.series
            ],
        )
        for ratio, value in result.ratios.items():
            output.line(f"  {ratio} = {value:.2f}")
