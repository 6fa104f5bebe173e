"""The choice of a place for checkpoints: local disk, a shared file system, HDFS or object storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.advice.advising.advice import Option
from holdfast.advice.advising.checkpoint_advice import requests_a_day
from holdfast.advice.advising.evidence import Evidence
from holdfast.advice.cost.money import Money, monthly
from holdfast.advice.cost.prices import Prices, medium_of
from holdfast.advice.cost.requests import Requests
from holdfast.advice.facts.place import Lasting
from holdfast.config.units import rounded_duration

LOCAL, EFS, HDFS, S3 = "local", "efs", "hdfs", "s3"
PLACES: Final = (LOCAL, EFS, HDFS, S3)
# Below this the twenty-two requests that object storage takes for each file are felt in each batch.
_QUICK_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Kept:
    """What a place has to keep.

    Attributes:
        interval_ms: The time between two batches; None where it is not known.
        size_bytes: All bytes of the checkpoint.
        requests: The requests of a day, in object storage.
        now: Where it is.
    """

    interval_ms: float | None
    size_bytes: int
    requests: Requests | None
    now: str | None = None


def kept_of(evidence: Evidence) -> Kept:
    """What the place of a checkpoint keeps."""
    medium = medium_of(evidence.checkpoint.uri)
    now = EFS if medium == LOCAL and evidence.place.lasting is Lasting.SHARED else medium
    in_files = evidence.checkpoint.external is None
    size = max(evidence.kept_bytes, evidence.checkpoint.size_bytes) if in_files else 0
    return Kept(evidence.gap_ms, size, requests_a_day(evidence, evidence.gap_ms), now)


def advised_place(interval_ms: float | None) -> str:
    """The place to take: object storage, or HDFS where batches are quick."""
    return HDFS if interval_ms is not None and interval_ms < _QUICK_MS else S3


def place_choice(kept: Kept, prices: Prices) -> tuple[Option, ...]:
    """The places, of which one is advised."""
    best = advised_place(kept.interval_ms)
    if best == HDFS and kept.now == EFS:
        best = EFS
    money = {place: _money(place, kept, prices) for place in PLACES}
    return tuple(
        Option(
            place,
            place == best,
            place == kept.now,
            place != LOCAL,
            _why(place, kept),
            kept.size_bytes,
            money_a_month=None if cost is None else cost.total,
            unpriced=() if cost is None else cost.unpriced,
        )
        for place, cost in money.items()
    )


def _money(place: str, kept: Kept, prices: Prices) -> Money | None:
    """What storage and requests cost; None for a shared file system, which has no price."""
    if place == EFS:
        return None
    return monthly(prices, place, checkpoint_bytes=kept.size_bytes, requests=kept.requests)


def _why(place: str, kept: Kept) -> str:
    every = "" if kept.interval_ms is None else f" of {rounded_duration(kept.interval_ms)}"
    quick = kept.interval_ms is not None and kept.interval_ms < _QUICK_MS
    return {
        LOCAL: "it goes with its machine: for development, and beside savepoints elsewhere",
        EFS: "a shared file system: a write is quick and all machines see it; dear for much state",
        HDFS: "a write is quick, and it is there on premises",
        S3: f"the cheapest for bytes, and 22 requests for each file, which batches{every} feel"
        if quick
        else "the cheapest for bytes, and it outlives every machine; 22 requests for each file",
    }[place]
