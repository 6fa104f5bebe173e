"""The queries that Spark's own operators can say, in plain PySpark.

Windows and sessions need a watermark, and Spark puts out a window when it is over. Joins have no time
bound, so Spark keeps both sides for ever, as every engine does for these queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast_bench.nexmark.events import SCHEMAS, SIDE_ROWS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DELAY: Final = "4 seconds"
WINDOW: Final = "10 seconds"
SLIDE: Final = "2 seconds"
DOLLARS_TO_EUROS: Final = "CAST(0.908 * price AS DECIMAL(23, 3))"
RANKS: Final = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")


@dataclass(frozen=True, slots=True)
class Streams:
    """The three streams and the side input, as files in a folder: each file of a stream is a batch."""

    spark: SparkSession
    folder: Path

    @property
    def person(self) -> DataFrame:
        """People who registered."""
        return self._stream("person")

    @property
    def auction(self) -> DataFrame:
        """Auctions that were opened."""
        return self._stream("auction")

    @property
    def bid(self) -> DataFrame:
        """Bids."""
        return self._stream("bid")

    @property
    def side_input(self) -> DataFrame:
        """A table of 10,000 rows: `key` and `value`."""
        return self.spark.read.schema(SCHEMAS["side_input"]).parquet(str(self.folder / "side_input"))

    def _stream(self, name: str) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMAS[name]).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / name))


def timed(stream: DataFrame) -> DataFrame:
    """Give a stream the watermark of the benchmark: four seconds behind the newest event."""
    return stream.withWatermark("dateTime", DELAY)


def q0(streams: Streams) -> DataFrame:
    """Pass every bid through."""
    return streams.bid.select("auction", "bidder", "price", "dateTime", "extra")


def q1(streams: Streams) -> DataFrame:
    """Convert prices from dollars to euros."""
    return streams.bid.selectExpr("auction", "bidder", f"{DOLLARS_TO_EUROS} AS price", "dateTime", "extra")


def q2(streams: Streams) -> DataFrame:
    """Select the bids of some auctions."""
    return streams.bid.where("auction % 123 = 0").select("auction", "price")


def q3(streams: Streams) -> DataFrame:
    """Find who sells in category 10 in Oregon, Idaho and California."""
    sellers = streams.person.where("state IN ('OR', 'ID', 'CA')")
    auctions = streams.auction.where("category = 10").select(_col("id").alias("auction"), "seller")
    joined = auctions.join(sellers, _col("seller") == _col("id"))
    return joined.select("name", "city", "state", _col("auction").alias("id"))


def q5(streams: Streams) -> DataFrame:
    """Find the auctions with the most bids in the last ten seconds, every two seconds."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    counted = timed(streams.bid).groupBy(F.window("dateTime", WINDOW, SLIDE), "auction").count()
    most = counted.groupBy("window").agg(
        F.max("count").alias("num"), F.collect_list(F.struct("auction", "count")).alias("auctions")
    )
    return (
        most.select("window", "num", F.explode("auctions").alias("hot"))
        .where("hot.count = num")
        .select(*_bounds(), "hot.auction", "num")
    )


def q7(streams: Streams) -> DataFrame:
    """Find the highest bids of each ten seconds."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    # A stream has one column of event time, here the window, so the time of a bid becomes a number.
    bids = timed(streams.bid).select(
        "auction",
        "bidder",
        "price",
        "extra",
        F.unix_micros("dateTime").alias("at"),
        F.window("dateTime", WINDOW),
    )
    highest = (
        timed(streams.bid).groupBy(F.window("dateTime", WINDOW).alias("of")).agg(F.max("price").alias("most"))
    )
    found = bids.join(highest, (_col("window") == _col("of")) & (_col("price") == _col("most")))
    return found.select("auction", "bidder", "price", F.timestamp_micros("at").alias("dateTime"), "extra")


def q8(streams: Streams) -> DataFrame:
    """Find people who registered and opened an auction in the same ten seconds."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    people = timed(streams.person).groupBy(F.window("dateTime", WINDOW), "id", "name").count()
    sellers = timed(streams.auction).groupBy(F.window("dateTime", WINDOW).alias("of"), "seller").count()
    found = people.join(sellers, (_col("id") == _col("seller")) & (_col("window") == _col("of")))
    return found.select("id", "name", _col("window.start").alias("starttime"))


def q10(streams: Streams) -> DataFrame:
    """Write every bid to files, in folders by day and minute."""
    return streams.bid.selectExpr(
        "auction",
        "bidder",
        "price",
        "dateTime",
        "extra",
        "date_format(dateTime, 'yyyy-MM-dd') AS dt",
        "date_format(dateTime, 'HH:mm') AS hm",
    )


def q11(streams: Streams) -> DataFrame:
    """Count the bids of each session: a bidder's bids without a pause of more than ten seconds."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    sessions = timed(streams.bid).groupBy(F.session_window("dateTime", WINDOW), "bidder")
    return sessions.agg(F.count("*").alias("bid_count")).select(
        "bidder", "bid_count", *_bounds("session_window")
    )


def q13(streams: Streams) -> DataFrame:
    """Look up a value for each bid in a table."""
    table = streams.side_input
    found = streams.bid.join(table, _col("auction") % SIDE_ROWS == table["key"])
    return found.select("auction", "bidder", "price", "dateTime", "value")


def q14(streams: Streams) -> DataFrame:
    """Convert, classify and filter bids, and count a letter of their text."""
    converted = streams.bid.selectExpr(
        "auction",
        "bidder",
        f"{DOLLARS_TO_EUROS} AS price",
        "CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'"
        " WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'"
        " ELSE 'otherTime' END AS bidTimeType",
        "dateTime",
        "extra",
        "CAST(length(extra) - length(replace(extra, 'c', '')) AS LONG) AS c_counts",
    )
    return converted.where("price > 1000000 AND price < 50000000")


def q17(streams: Streams) -> DataFrame:
    """Keep count of the bids and prices of each auction and day."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    return streams.bid.groupBy("auction", F.expr("date_format(dateTime, 'yyyy-MM-dd')").alias("day")).agg(
        F.count("*").alias("total_bids"),
        *(F.expr(f"count_if({rank})").alias(f"rank{at}_bids") for at, rank in enumerate(RANKS, 1)),
        F.min("price").alias("min_price"),
        F.max("price").alias("max_price"),
        F.expr("CAST(avg(price) AS LONG)").alias("avg_price"),
        F.sum("price").alias("sum_price"),
    )


def q18(streams: Streams) -> DataFrame:
    """Keep the last bid of each bidder on each auction; of bids of one millisecond the highest."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    last = F.max(F.struct("dateTime", "price", "channel", "url", "extra")).alias("last")
    bids = streams.bid.groupBy("bidder", "auction").agg(last)
    return bids.select(
        "auction", "bidder", "last.price", "last.channel", "last.url", "last.dateTime", "last.extra"
    )


def q20(streams: Streams) -> DataFrame:
    """Add the auction to each bid in category 10."""
    auctions = streams.auction.where("category = 10").select(
        "id",
        "itemName",
        "description",
        "initialBid",
        "reserve",
        _col("dateTime").alias("opened"),
        "expires",
        "seller",
        "category",
        _col("extra").alias("auction_extra"),
    )
    return streams.bid.join(auctions, _col("auction") == _col("id")).drop("id")


def q21(streams: Streams) -> DataFrame:
    """Add the id of the channel, from its name or from the address of the bid."""
    found = streams.bid.selectExpr(
        "auction",
        "bidder",
        "price",
        "channel",
        "CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'"
        " WHEN 'baidu' THEN '3' ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')"
        " END AS channel_id",
    )
    return found.where("channel_id IS NOT NULL")


def q22(streams: Streams) -> DataFrame:
    """Split the address of each bid into its directories."""
    parts = [f"split_part(url, '/', {at + 3}) AS dir{at}" for at in (1, 2, 3)]
    return streams.bid.selectExpr("auction", "bidder", "price", "channel", *parts)


def q23(streams: Streams) -> DataFrame:
    """Add to each bid its bidder, and every auction that the bidder sells."""
    bids = streams.bid.select("bidder", "price", "channel", "url", _col("extra").alias("bid_extra"))
    people = streams.person.select(
        _col("id").alias("person_id"),
        "name",
        "emailAddress",
        "creditCard",
        "city",
        "state",
        _col("extra").alias("person_extra"),
    )
    auctions = streams.auction.select(
        "itemName",
        "description",
        "initialBid",
        "reserve",
        _col("dateTime").alias("auction_dateTime"),
        "expires",
        "seller",
        "category",
        _col("extra").alias("auction_extra"),
    )
    known = bids.join(people, _col("bidder") == _col("person_id"))
    return known.join(auctions, _col("bidder") == _col("seller"))


def _col(name: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    return F.col(name)


def _bounds(window: str = "window") -> list[Column]:
    return [_col(f"{window}.start").alias("starttime"), _col(f"{window}.end").alias("endtime")]


PLAIN: Final[Mapping[str, Callable[[Streams], DataFrame]]] = {
    query.__name__: query
    for query in (q0, q1, q2, q3, q5, q7, q8, q10, q11, q13, q14, q17, q18, q20, q21, q22, q23)
}
