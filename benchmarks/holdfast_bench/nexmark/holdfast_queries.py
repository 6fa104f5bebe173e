"""The queries with Holdfast: those that need keyed state, and those that are shorter or faster with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import holdfast as hf
from holdfast.errors import Invalid
from holdfast_bench.nexmark.plain_queries import DELAY, PLAIN, RANKS, WINDOW, Streams, timed
from holdfast_bench.nexmark.processors import (
    COUNTS,
    CategoryAverages,
    ExpandedBids,
    FirstSeen,
    HighestBids,
    LastBids,
    MostBids,
    ProcessingWindows,
    Report,
    SellerAverages,
    SlidingCounts,
    TopBids,
    WinningBids,
    WinningPrices,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def q4(streams: Streams) -> DataFrame:
    """Keep the average winning price of each category."""
    won = _winners(streams, WinningPrices())
    return hf.keyed(won, by="category").process(
        CategoryAverages(), output=CategoryAverages.output, name="averages"
    )


def q5(streams: Streams) -> DataFrame:
    """Find the auctions with the most bids in the last ten seconds, every two seconds."""
    bids = timed(streams.bid).select("auction", "dateTime")
    counted = hf.keyed(bids, by="auction").process(
        SlidingCounts(), output=SlidingCounts.output, name="counts"
    )
    most = hf.keyed(counted, by="starttime").process(MostBids(), output=MostBids.output, name="most")
    return most.selectExpr("starttime", f"starttime + INTERVAL {WINDOW} AS endtime", "auction", "num")


def q6(streams: Streams) -> DataFrame:
    """For each auction that is won, average the prices of its seller's last ten auctions."""
    won = _winners(streams, WinningPrices())
    return hf.keyed(won, by="seller").process(SellerAverages(), output=SellerAverages.output, name="averages")


def q7(streams: Streams) -> DataFrame:
    """Find the highest bids of each ten seconds."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    bids = timed(streams.bid).select(
        F.window("dateTime", WINDOW)["start"].alias("starttime"),
        "auction",
        "bidder",
        "price",
        "dateTime",
        "extra",
    )
    return hf.keyed(bids, by="starttime").process(HighestBids(), output=HighestBids.output, name="highest")


def q9(streams: Streams) -> DataFrame:
    """Find the winning bid of each auction."""
    return _winners(streams, WinningBids())


def q11(streams: Streams) -> DataFrame:
    """Count the bids of each session: a bidder's bids without a pause of more than ten seconds."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    sessions = hf.windowed(streams.bid, time="dateTime", gap=WINDOW, by="bidder", watermark=DELAY)
    counted = sessions.agg(F.count("*").alias("bid_count"))
    return counted.selectExpr("bidder", "bid_count", "window_start AS starttime", "window_end AS endtime")


def q12(streams: Streams) -> DataFrame:
    """Count the bids of each bidder in each ten seconds of processing time."""
    return hf.keyed(streams.bid.select("bidder"), by="bidder").process(
        ProcessingWindows(), output=ProcessingWindows.output, name="windows"
    )


def q13(streams: Streams) -> DataFrame:
    """Look up a value for each bid in a table."""
    bids = streams.bid.selectExpr("auction", "bidder", "price", "dateTime", "auction % 10000 AS key")
    return hf.enrich(bids, streams.side_input, by="key", how="inner").drop("key")


def q15(streams: Streams) -> DataFrame:
    """Keep count of the bids, bidders and auctions of each day, by the rank of the price."""
    return _report(streams, ["day"]).select("day", *COUNTS)


def q16(streams: Streams) -> DataFrame:
    """Keep count of the bids, bidders and auctions of each channel and day, by the rank of the price."""
    return _report(streams, ["channel", "day"]).selectExpr(
        "channel", "day", "date_format(timestamp_seconds(minute * 60), 'HH:mm') AS minute", *COUNTS
    )


def q18(streams: Streams) -> DataFrame:
    """Keep the last bid of each bidder on each auction; of bids of one millisecond the highest."""
    return hf.keyed(streams.bid, by=["bidder", "auction"]).process(
        LastBids(), output=LastBids.output, name="last"
    )


def q19(streams: Streams) -> DataFrame:
    """Keep the ten highest bids of each auction."""
    return hf.keyed(streams.bid, by="auction").process(TopBids(), output=TopBids.output, name="top")


def q20(streams: Streams) -> DataFrame:
    """Add the auction to each bid in category 10."""
    auctions = streams.auction.withColumnsRenamed({"dateTime": "opened", "extra": "auction_extra"})
    return (
        hf.keyed(auctions, by="id", name="auctions")
        .connect(streams.bid, by="auction", name="bids")
        .process(ExpandedBids(), output=ExpandedBids.output, name="expanded")
    )


def _winners(streams: Streams, processor: WinningBids) -> DataFrame:
    """Return the auctions that are won, each with its winning bid, when they expire."""
    auctions = timed(streams.auction)
    bids = timed(streams.bid).drop("channel", "url")
    if isinstance(processor, WinningPrices):
        auctions, bids = (
            auctions.select("id", "dateTime", "expires", "seller", "category"),
            bids.drop("extra"),
        )
    return (
        hf.keyed(auctions, by="id", name="auctions")
        .connect(bids, by="auction", name="bids")
        .process(processor, output=processor.output, name="winners")
    )


def _report(streams: Streams, group: list[str]) -> DataFrame:
    """Return the changed rows of a report with distinct counts, of the groups of some columns.

    Each bid is counted twice: for its bidder and for its auction. The first operator finds which of these
    are new, and is spread over all of them; the second has one row for each group.
    """
    rows = streams.bid.selectExpr(
        *({"day": "date_format(dateTime, 'yyyy-MM-dd') AS day"}.get(name, name) for name in group),
        "stack(2, 'bidder', bidder, 'auction', auction) AS (kind, id)",
        "unix_seconds(dateTime) DIV 60 AS minute",
        *(f"CAST({rank} AS LONG) AS bids{number}" for number, rank in enumerate(RANKS, 1)),
    )
    seen = FirstSeen(group)
    added = hf.keyed(rows, by=[*group, "kind", "id"]).process(seen, output=seen.output, name="seen")
    return hf.keyed(added, by=group).process(Report(), output=seen.output, name="report")


HOLDFAST: Final = "holdfast"
PYSPARK: Final = "pyspark"


@dataclass(frozen=True, slots=True)
class Query:
    """One query of the benchmark.

    Attributes:
        name: Its name, such as "q4". reads: The streams that it reads. holdfast: Builds it with Holdfast.
        plain: Builds it in plain PySpark, if Spark's operators can say it. keys: For a table that is kept
        up to date, its key: the last row of each key counts. Otherwise the result is
            all rows.
        closes: Whether it puts out a result only when the watermark has passed its end.
    """

    name: str
    reads: tuple[str, ...]
    holdfast: Callable[[Streams], DataFrame]
    plain: Callable[[Streams], DataFrame] | None
    keys: tuple[str, ...] = ()
    closes: bool = False

    @property
    def meaning(self) -> str:
        """One line: what it finds."""
        return (self.holdfast.__doc__ or "").split("\n", maxsplit=1)[0]

    def build(self, side: str, streams: Streams) -> DataFrame:
        """Build the query for one side.

        Raises:
            Invalid: Plain PySpark cannot express it.
        """
        return self._builder(side)(streams)

    def mode(self, side: str) -> str:
        """Return the output mode of its sink; a processor has the same result in both modes."""
        return "update" if self.keys and self._builder(side) is self.plain else "append"

    def _builder(self, side: str) -> Callable[[Streams], DataFrame]:
        if side == HOLDFAST:
            return self.holdfast
        if self.plain is None:
            raise Invalid(
                "plain PySpark cannot express this query", found=self.name, expected=", ".join(PLAIN)
            )
        return self.plain


_READS: Final[Mapping[str, tuple[str, ...]]] = {
    "q3": ("person", "auction"),
    "q8": ("person", "auction"),
    "q4": ("auction", "bid"),
    "q6": ("auction", "bid"),
    "q9": ("auction", "bid"),
    "q20": ("auction", "bid"),
    "q23": ("person", "auction", "bid"),
}
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "q4": ("category",),
    "q15": ("day",),
    "q16": ("channel", "day"),
    "q17": ("auction", "day"),
    "q18": ("bidder", "auction"),
    "q19": ("auction", "rank_number"),
}
_CLOSES: Final = frozenset({"q4", "q5", "q6", "q7", "q8", "q9", "q11"})
_HOLDFAST: Final[Mapping[str, Callable[[Streams], DataFrame]]] = {
    **PLAIN,
    **{query.__name__: query for query in (q4, q5, q6, q7, q9, q11, q12, q13, q15, q16, q18, q19, q20)},
}
QUERIES: Final[Mapping[str, Query]] = {
    name: Query(
        name,
        _READS.get(name, ("bid",)),
        _HOLDFAST[name],
        PLAIN.get(name),
        _KEYS.get(name, ()),
        name in _CLOSES,
    )
    for name in (f"q{number}" for number in range(24))
}
