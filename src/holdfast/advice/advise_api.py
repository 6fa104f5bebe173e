"""The implementation of `hf.advise`: input checks, and advice on a checkpoint at an address or on a plan."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from holdfast.advice.advice import AdviceReport, Topic
from holdfast.advice.advising import ALL_TOPICS, Planned, on_checkpoint, on_plan
from holdfast.advice.evidence import Needs, figures, read_evidence
from holdfast.advice.prices import Prices, read_prices
from holdfast.config.checks import fraction, whole
from holdfast.config.units import Duration, parse_duration
from holdfast.errors import Invalid
from holdfast.model import BatchProgress

_MOST: int = 10**15
_MOST_CORES: int = 1_000_000


def topics_of(names: Iterable[str]) -> frozenset[Topic]:
    """Return the topics with these names; all if no name is given.

    Raises:
        Invalid: A topic is unknown.
    """
    known = {topic.value: topic for topic in Topic}
    given = list(names)
    wrong = [name for name in given if name not in known]
    if wrong:
        raise Invalid(
            "unknown advice topic",
            code="HF-E2001",
            found=", ".join(map(repr, wrong)),
            expected=", ".join(known),
            hint="give one or more topics, separated by commas",
        )
    return frozenset(known[name] for name in given) or frozenset(ALL_TOPICS)


def planned_of(rate: float | None, keys: int | None, value_bytes: int | None) -> Planned | None:
    """Return the plan from these values; None if none is given.

    Raises:
        Invalid: A value is missing or out of range.
    """
    if rate is None and keys is None and value_bytes is None:
        return None
    if rate is None or keys is None:
        raise Invalid(
            "advice for a planned job needs both a rate and a number of keys",
            code="HF-E2002",
            found="no --rate" if rate is None else "no --keys",
            expected="--rate ROWS_PER_SECOND and --keys N",
            hint="give both, as in `holdfast advise --rate 5000 --keys 1000000`",
        )
    rows = fraction(rate, "rate", least=0.000_001, most=_MOST)
    number = whole(keys, "keys", least=1, most=_MOST)
    size = 100 if value_bytes is None else whole(value_bytes, "value_bytes", least=1, most=_MOST)
    return Planned(rows, number, size)


def needs_of(
    *,
    latency: Duration | None,
    cores: int | None,
    shared: bool,
    conf: Mapping[str, str] | None,
    own_session: bool = False,
) -> Needs:
    """Check the given needs and resources, and return them.

    Raises:
        Invalid: A number is out of range.
    """
    return Needs(
        None if cores is None else whole(cores, "cores", least=1, most=_MOST_CORES),
        None if latency is None else parse_duration(latency, "latency"),
        shared,
        dict(conf or {}),
        own_session,
    )


def advise_on_checkpoint(
    address: str | os.PathLike[str],
    batches: Sequence[BatchProgress],
    needs: Needs,
    topics: Iterable[str] = (),
    prices: str | os.PathLike[str] | None = None,
    measured: str | os.PathLike[str] | None = None,
) -> AdviceReport:
    """Return advice on a checkpoint.

    Args:
        address: The checkpoint.
        batches: The recorded batches of its job, oldest first.
        needs: The given needs and resources.
        topics: The requested topics.
        prices: A price file.
        measured: A file with the output of `holdfast bench backends --json`.

    Raises:
        Invalid, NotFound, Corrupt, Unavailable, Unsupported: As for `hf.advise`.
    """
    from holdfast.external.view import open_checkpoint

    asked, paid, known = topics_of(topics), _prices(prices), figures(measured)
    return on_checkpoint(read_evidence(open_checkpoint(address), batches, needs, known, paid), asked)


def advise_on_plan(
    planned: Planned,
    needs: Needs,
    topics: Iterable[str] = (),
    prices: str | os.PathLike[str] | None = None,
    measured: str | os.PathLike[str] | None = None,
) -> AdviceReport:
    """Return advice on a planned job.

    Raises:
        Invalid, NotFound: As for `hf.advise`.
    """
    return on_plan(planned, needs, figures(measured), _prices(prices), topics_of(topics))


def _prices(file: str | os.PathLike[str] | None) -> Prices:
    return Prices() if file is None else read_prices(file)
