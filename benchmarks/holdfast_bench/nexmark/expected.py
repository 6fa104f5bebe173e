"""The expected results: each query as SQL over the files, in DuckDB, which knows nothing of streams.

Where a query emits a result when the watermark has passed its end, the SQL keeps what has ended by the
final watermark: four seconds before the newest event of the stream that is behind. `q12` depends on the
clock of the machine; what is compared is the number of bids of each bidder, over all windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast_bench.nexmark.events import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

_SETTINGS: Final = """
SET TimeZone = 'UTC';
CREATE MACRO watermark_of(newest) AS newest - INTERVAL 4 SECONDS;
"""

_WATERMARKS: Final = """
CREATE TABLE ended AS SELECT
    (SELECT watermark_of(max(dateTime)) FROM bid) AS bids,
    least((SELECT watermark_of(max(dateTime)) FROM bid),
        (SELECT watermark_of(max(dateTime)) FROM auction)) AS sales,
    least((SELECT watermark_of(max(dateTime)) FROM person),
        (SELECT watermark_of(max(dateTime)) FROM auction)) AS people;
CREATE MACRO begin_of(moment, seconds) AS
    time_bucket(to_seconds(seconds), moment, TIMESTAMPTZ '1970-01-01 00:00:00+00');
CREATE VIEW winner AS
    SELECT a.*, b.bidder, b.price, b.dateTime AS bid_dateTime, b.extra AS bid_extra
    FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
    WHERE a.expires <= (SELECT sales FROM ended)
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime, b.bidder) = 1;
"""

_COUNTS: Final = """
    count(*) AS total_bids,
    count(*) FILTER (price < 10000) AS rank1_bids,
    count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (price >= 1000000) AS rank3_bids
"""

_DISTINCT: Final = ",\n".join(
    f"""
    count(DISTINCT {column}) AS total_{column}s,
    count(DISTINCT {column}) FILTER (price < 10000) AS rank1_{column}s,
    count(DISTINCT {column}) FILTER (price >= 10000 AND price < 1000000) AS rank2_{column}s,
    count(DISTINCT {column}) FILTER (price >= 1000000) AS rank3_{column}s
    """
    for column in ("bidder", "auction")
)

SQL: Final[Mapping[str, str]] = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": "SELECT category, sum(price) // count(*) AS final FROM winner GROUP BY category",
    "q5": """
        WITH hop AS (
            SELECT auction, begin_of(dateTime, 2) - to_seconds(2 * step) AS starttime
            FROM bid, range(5) AS steps(step)
        ), counted AS (
            SELECT starttime, auction, count(*) AS num FROM hop GROUP BY ALL
        )
        SELECT starttime, starttime + INTERVAL 10 SECONDS AS endtime, auction, num FROM counted
        WHERE endtime <= (SELECT bids FROM ended)
        QUALIFY num = max(num) OVER (PARTITION BY starttime)
    """,
    "q6": """
        SELECT seller, sum(price) OVER last // count(*) OVER last AS avg_price FROM winner
        WINDOW last AS (PARTITION BY seller ORDER BY expires, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)
    """,
    "q7": """
        SELECT auction, bidder, price, dateTime, extra FROM bid
        WHERE begin_of(dateTime, 10) + INTERVAL 10 SECONDS <= (SELECT bids FROM ended)
        QUALIFY price = max(price) OVER (PARTITION BY begin_of(dateTime, 10))
    """,
    "q8": """
        SELECT DISTINCT p.id, p.name, begin_of(p.dateTime, 10) AS starttime
        FROM person p JOIN auction a
            ON p.id = a.seller AND begin_of(p.dateTime, 10) = begin_of(a.dateTime, 10)
        WHERE starttime + INTERVAL 10 SECONDS <= (SELECT people FROM ended)
    """,
    "q9": "SELECT * FROM winner",
    "q10": """
        SELECT auction, bidder, price, dateTime, extra, strftime(dateTime, '%Y-%m-%d') AS dt,
            strftime(dateTime, '%H:%M') AS hm
        FROM bid
    """,
    "q11": """
        WITH numbered AS (
            SELECT bidder, dateTime, sum(begins) OVER (PARTITION BY bidder ORDER BY dateTime) AS session
            FROM (
                SELECT bidder, dateTime, CAST(coalesce(dateTime - lag(dateTime) OVER (
                    PARTITION BY bidder ORDER BY dateTime) > INTERVAL 10 SECONDS, true) AS INT) AS begins
                FROM bid
            )
        )
        SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime,
            max(dateTime) + INTERVAL 10 SECONDS AS endtime
        FROM numbered GROUP BY bidder, session HAVING endtime <= (SELECT bids FROM ended)
    """,
    "q12": "SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder",
    "q13": """
        SELECT b.auction, b.bidder, b.price, b.dateTime, s.value
        FROM bid b JOIN side_input s ON b.auction % 10000 = s.key
    """,
    "q14": """
        SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price,
            CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour(dateTime) BETWEEN 7 AND 19 THEN 'otherTime' ELSE 'nightTime' END AS bidTimeType,
            dateTime, extra, length(regexp_replace(extra, '[^c]', '', 'g')) AS c_counts
        FROM bid WHERE 0.908 * bid.price > 1000000 AND 0.908 * bid.price < 50000000
    """,
    "q15": f"SELECT strftime(dateTime, '%Y-%m-%d') AS day, {_COUNTS}, {_DISTINCT} FROM bid GROUP BY day",
    "q16": f"""
        SELECT channel, strftime(dateTime, '%Y-%m-%d') AS day, max(strftime(dateTime, '%H:%M')) AS minute,
            {_COUNTS}, {_DISTINCT}
        FROM bid GROUP BY channel, day
    """,
    "q17": f"""
        SELECT auction, strftime(dateTime, '%Y-%m-%d') AS day, {_COUNTS}, min(price) AS min_price,
            max(price) AS max_price, sum(price) // count(*) AS avg_price, sum(price) AS sum_price
        FROM bid GROUP BY auction, day
    """,
    "q18": """
        SELECT auction, bidder, price, channel, url, dateTime, extra FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction
            ORDER BY dateTime DESC, price DESC, channel DESC, url DESC, extra DESC) = 1
    """,
    "q19": """
        SELECT auction, bidder, price, channel, url, dateTime, extra,
            row_number() OVER (
                PARTITION BY auction ORDER BY price DESC, dateTime, bidder, channel, url, extra
            ) AS rank_number
        FROM bid QUALIFY rank_number <= 10
    """,
    "q20": """
        SELECT b.*, a.itemName, a.description, a.initialBid, a.reserve, a.dateTime AS opened, a.expires,
            a.seller, a.category, a.extra AS auction_extra
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10
    """,
    "q21": """
        SELECT auction, bidder, price, channel, coalesce(
            nullif(list_position(['apple', 'google', 'facebook', 'baidu'], lower(channel)) - 1, -1)::VARCHAR,
            nullif(regexp_extract(url, 'channel_id=([0-9]+)', 1), '')) AS channel_id
        FROM bid WHERE channel_id IS NOT NULL
    """,
    "q22": """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1,
            split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
        FROM bid
    """,
    "q23": """
        SELECT b.bidder, b.price, b.channel, b.url, b.extra AS bid_extra, p.id AS person_id, p.name,
            p.emailAddress, p.creditCard, p.city, p.state, p.extra AS person_extra, a.itemName, a.description,
            a.initialBid, a.reserve, a.dateTime AS auction_dateTime, a.expires, a.seller, a.category,
            a.extra AS auction_extra
        FROM bid b JOIN person p ON p.id = b.bidder JOIN auction a ON a.seller = b.bidder
    """,
}


def opened(folder: Path) -> duckdb.DuckDBPyConnection:
    """Open a database with a view of each stream in a folder."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(_SETTINGS)
    for name in SCHEMAS:
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{folder}/{name}/*.parquet'")
    connection.execute(_WATERMARKS)
    return connection


def differences(
    connection: duckdb.DuckDBPyConnection, name: str, result: Any, keys: Sequence[str] = ()
) -> dict[str, list[Any]]:
    """Compare the rows that a query has emitted with the expected ones.

    Args:
        connection: The database of `opened`.
        name: The query.
        result: A relation or Arrow table with the emitted rows, and `batch`, the number of the batch of each.
        keys: The key of a table that is kept up to date: the last row of each key counts.

    Returns:
        Up to five missing and five surplus rows, and the number of expected ones if it is zero; empty if
        the result is right.
    """
    connection.register("emitted", result)
    columns = [row[0] for row in connection.execute(f"DESCRIBE ({SQL[name]})").fetchall()]
    rows = f"SELECT {', '.join(columns)} FROM emitted"
    if keys:
        rows += f" QUALIFY batch = max(batch) OVER (PARTITION BY {', '.join(keys)})"
    if name == "q12":
        rows = "SELECT bidder, sum(bid_count) AS bid_count FROM emitted GROUP BY bidder"
    pairs = {"missing": (SQL[name], rows), "surplus": (rows, SQL[name])}
    found: dict[str, list[Any]] = {
        which: connection.execute(f"({one}) EXCEPT ALL ({other}) LIMIT 5").fetchall()
        for which, (one, other) in pairs.items()
    }
    if not connection.execute(f"{SQL[name]} LIMIT 1").fetchall():
        found["expected"] = ["no rows"]
    return {which: rows for which, rows in found.items() if rows}
