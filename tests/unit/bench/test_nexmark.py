"""Nexmark's generator against its published rules, and its processors, without Spark, against DuckDB."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from holdfast.errors import Invalid
from holdfast.testing import Harness
from holdfast_bench.nexmark import processors as p
from holdfast_bench.nexmark.events import SCHEMAS, STREAMS, House, Timeline, write, write_csv
from holdfast_bench.nexmark.expected import SQL, differences, opened
from holdfast_bench.nexmark.holdfast_queries import HOLDFAST, PYSPARK, QUERIES
from holdfast_bench.nexmark.nexmark_bench import FLINK, Nexmark, Sizes, nexmark
from holdfast_bench.nexmark.spark_side import Run

BATCHES, ROWS = 3, 800
DELAY = dt.timedelta(seconds=4)
# Over midnight, and slow, so that windows, sessions and auctions end.
TIMELINE = Timeline(dt.datetime(2026, 3, 5, 23, 59, 20, tzinfo=dt.timezone.utc), rate=40)

REPORTED = """
    SELECT channel, strftime(dateTime, '%Y-%m-%d') AS day, kind, CASE kind WHEN 'bidder' THEN bidder ELSE
    auction END AS id,
        epoch_ms(dateTime) // 60000 AS minute, CAST(price < 10000 AS BIGINT) AS bids1,
        CAST(price >= 10000 AND price < 1000000 AS BIGINT) AS bids2, CAST(price >= 1000000 AS BIGINT) AS bids3
    FROM bid, (VALUES ('bidder'), ('auction')) AS kinds(kind)
"""
WINDOWED = "SELECT begin_of(dateTime, 10) AS starttime, auction, bidder, price, dateTime, extra FROM bid"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("nexmark") / "events"
    write(place, rows=ROWS, batches=BATCHES, seed=7, timeline=TIMELINE)
    return place


@pytest.fixture(scope="module")
def database(folder: Path) -> Iterable[duckdb.DuckDBPyConnection]:
    with opened(folder) as connection:
        yield connection


def batches(
    folder: Path, database: duckdb.DuckDBPyConnection, sql: Mapping[str, str]
) -> Iterable[tuple[dict[str, list[Any]], dt.datetime]]:
    """Yield the rows of each batch by stream, and the watermark after it."""
    newest: dict[str, dt.datetime] = {}
    for number in range(BATCHES):
        rows = {}
        for stream, text in sql.items():
            files = f"(SELECT * FROM '{folder}/{stream}/{number:05}.parquet') AS {stream}"
            rows[stream] = (
                database.sql(text.replace(f"FROM {stream}", f"FROM {files}")).to_arrow_table().to_pylist()
            )
            ((newest[stream],),) = database.execute(f"SELECT max(dateTime) FROM {files}").fetchall()
        yield rows, min(newest.values()) - DELAY


class Emitted:
    """The rows that a query has emitted, each with the number of its batch."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, batch: int, rows: Sequence[dict[str, Any]]) -> None:
        self.rows += [{"batch": batch, **row} for row in rows]

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows)


def winners(
    folder: Path, database: duckdb.DuckDBPyConnection, processor: p.WinningBids
) -> Iterable[list[Any]]:
    """Yield the auctions that are won, batch by batch."""
    harness = Harness(
        processor,
        by="id",
        events={"auctions": SCHEMAS["auction"], "bids": SCHEMAS["bid"].replace("auction long", "id long")},
        output=processor.output,
        time="dateTime",
    )
    sql = {"auction": "SELECT * FROM auction", "bid": "SELECT * RENAME (auction AS id) FROM bid"}
    for rows, watermark in batches(folder, database, sql):
        yield harness.send_all({"auctions": rows["auction"], "bids": rows["bid"]})
        yield harness.watermark(watermark)
    still_open = database.execute(
        "SELECT id FROM auction WHERE expires > (SELECT sales FROM ended)"
    ).fetchall()
    # The others are the bids that have come since the watermark, on auctions of the past or the future.
    assert len(set(harness.keys()) - set(still_open)) < 30


def simple(
    harness: Harness, folder: Path, database: duckdb.DuckDBPyConnection, sql: str, *, timed: bool = False
) -> pa.Table:
    """Run a processor of bids over all batches."""
    emitted = Emitted()
    for number, (rows, watermark) in enumerate(batches(folder, database, {"bid": sql})):
        emitted.add(number, harness.send(*rows["bid"]))
        if timed:
            emitted.add(number, harness.watermark(watermark))
    return emitted.table()


def test_equal_seeds_give_equal_events() -> None:
    first, second, other = (House(seed).batch(100, 200) for seed in (1, 1, 2))
    assert first == second
    assert first["bid"] != other["bid"]
    assert {name: len(table) for name, table in first.items()} == {"person": 4, "auction": 12, "bid": 184}


def test_events_follow_the_published_rules(tmp_path: Path) -> None:
    write(tmp_path / "events", rows=20_000, batches=2)
    with opened(tmp_path / "events") as database:

        def one(sql: str) -> Any:
            return database.execute(sql).fetchall()[0][0]

        counts = [one(f"SELECT count(*) FROM {name}") for name in STREAMS]
        assert counts == [800, 2400, 36_800]
        for table, column in (("person", "id"), ("auction", "id")):
            assert one(f"SELECT count(DISTINCT {column}) = 1 + max({column}) - min({column}) FROM {table}")
        # A half of all bids, a hundredth of the others by chance.
        assert 0.49 < one("SELECT avg((auction % 100 = 0)::INT) FROM bid") < 0.53
        assert 0.74 < one("SELECT avg((bidder % 100 = 1)::INT) FROM bid") < 0.78
        assert 0.72 < one("SELECT avg((seller % 100 = 0)::INT) FROM auction") < 0.79
        assert (
            0.48
            < one("SELECT avg((channel IN ('Google', 'Apple', 'Baidu', 'Facebook'))::INT) FROM bid")
            < 0.52
        )
        assert (
            0.88
            < one("SELECT avg((url LIKE '%&channel_id=%')::INT) FROM bid WHERE channel LIKE 'channel-%'")
            < 0.92
        )
        assert one("SELECT min(price) >= 100 AND max(price) <= 100000000 FROM bid")
        # The average lifetime is that of 1,667 events.
        assert 150 < one("SELECT avg(epoch_ms(expires) - epoch_ms(dateTime)) FROM auction") < 185
        assert 95 < one("SELECT avg(32 + length(extra)) FROM bid") < 105
        assert one("SELECT max(epoch_ms(dateTime)) - min(epoch_ms(dateTime)) FROM bid") == 3999
        assert one("SELECT max(auction - id) FROM bid POSITIONAL JOIN auction") is not None


def test_the_text_has_the_same_events(
    folder: Path, tmp_path: Path, database: duckdb.DuckDBPyConnection
) -> None:
    write_csv(folder, tmp_path, range(1, 3), 2)
    text = f"SELECT column0, column5 FROM read_csv('{tmp_path}/bid/*.csv', header=false)"
    files = [f"{folder}/bid/{number:05}.parquet" for number in (1, 2)]
    rows = f"SELECT auction, dateTime FROM read_parquet({files})"
    ((count,),) = database.execute(f"SELECT count(*) FROM ({text})").fetchall()
    assert count == ROWS * 2 * 46 // 50
    assert database.execute(f"({text}) EXCEPT ALL ({rows})").fetchall() == []


def test_every_query_has_an_expected_result(database: duckdb.DuckDBPyConnection) -> None:
    assert list(SQL) == [f"q{number}" for number in range(24)]
    empty = [name for name, sql in SQL.items() if not database.execute(f"{sql} LIMIT 1").fetchall()]
    assert not empty


def test_a_wrong_result_is_found(database: duckdb.DuckDBPyConnection) -> None:
    right = database.sql(f"SELECT 0 AS batch, * FROM ({SQL['q17']})").to_arrow_table()
    assert differences(database, "q17", right, ["auction", "day"]) == {}
    assert set(differences(database, "q17", right.slice(1), ["auction", "day"])) == {"missing"}
    assert set(differences(database, "q17", pa.concat_tables([right, right.slice(0, 1)]))) == {"surplus"}


def test_winning_bids(folder: Path, database: duckdb.DuckDBPyConnection) -> None:
    emitted = Emitted()
    for rows in winners(folder, database, p.WinningBids()):
        emitted.add(0, rows)
    assert differences(database, "q9", emitted.table()) == {}


def test_averages_of_winning_prices(folder: Path, database: duckdb.DuckDBPyConnection) -> None:
    won = p.WinningPrices.output
    categories = Harness(p.CategoryAverages(), by="category", events=won, output=p.CategoryAverages.output)
    sellers = Harness(p.SellerAverages(), by="seller", events=won, output=p.SellerAverages.output)
    q4, q6 = Emitted(), Emitted()
    for number, rows in enumerate(winners(folder, database, p.WinningPrices())):
        q4.add(number, categories.send(*rows))
        q6.add(number, sellers.send(*rows))
    assert differences(database, "q4", q4.table(), ["category"]) == {}
    assert differences(database, "q6", q6.table()) == {}


def test_highest_bids(folder: Path, database: duckdb.DuckDBPyConnection) -> None:
    events = f"starttime timestamp, {p.HighestBids.output}"
    harness = Harness(
        p.HighestBids(), by="starttime", events=events, output=p.HighestBids.output, time="dateTime"
    )
    assert differences(database, "q7", simple(harness, folder, database, WINDOWED, timed=True)) == {}


def sliding(rows: Mapping[int, Iterable[tuple[int, float]]]) -> list[tuple[float, int, int]]:
    """Send the bids, (auction, seconds), before each watermark; return what is found."""
    counts = Harness(
        p.SlidingCounts(),
        by="auction",
        events="auction long, dateTime timestamp",
        output=p.SlidingCounts.output,
        time="dateTime",
    )
    most = Harness(p.MostBids(), by="starttime", events=p.MostBids.output, output=p.MostBids.output)
    found = []
    for watermark, bids in rows.items():
        counts.send(*({"auction": auction, "dateTime": moment(at)} for auction, at in bids))
        found += most.send(*counts.watermark(moment(watermark)))
    assert counts.keys() == []
    return sorted((row["starttime"].timestamp(), row["auction"], row["num"]) for row in found)


def moment(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.timezone.utc)


def test_sliding_windows_by_hand() -> None:
    # Auction 1 has a bid in seconds 100 and 103, auction 2 in second 103; the watermark comes in two steps.
    expected = [(92, 1, 1), (94, 1, 2), (96, 1, 2), (98, 1, 2), (100, 1, 2), (102, 1, 1), (102, 2, 1)]
    assert sliding({90: [(1, 100), (1, 103), (2, 103)], 103: [], 200: []}) == expected
    # The earlier bid arrives later, but before a window of it is over; a bid at 89 is in no open window.
    assert sliding({91: [(1, 103), (2, 103)], 101: [(1, 100)], 105: [(1, 89)], 300: []}) == expected


def test_most_bids_of_sliding_windows(folder: Path, database: duckdb.DuckDBPyConnection) -> None:
    counts = Harness(
        p.SlidingCounts(),
        by="auction",
        events=SCHEMAS["bid"],
        output=p.SlidingCounts.output,
        time="dateTime",
    )
    most = Harness(p.MostBids(), by="starttime", events=p.MostBids.output, output=p.MostBids.output)
    emitted = Emitted()
    for number, (rows, watermark) in enumerate(batches(folder, database, {"bid": "SELECT * FROM bid"})):
        counts.send(*rows["bid"])
        found = most.send(*counts.watermark(watermark))
        ended = [{**row, "endtime": row["starttime"] + dt.timedelta(seconds=10)} for row in found]
        emitted.add(number, ended)
    columns = ["batch", "starttime", "endtime", "auction", "num"]
    assert differences(database, "q5", emitted.table().select(columns)) == {}


def test_windows_of_processing_time(folder: Path, database: duckdb.DuckDBPyConnection) -> None:
    harness = Harness(
        p.ProcessingWindows(), by="bidder", events="bidder long", output=p.ProcessingWindows.output, now=0
    )
    rows = simple(harness, folder, database, "SELECT bidder FROM bid").to_pylist()
    assert rows == []
    rows = [{"batch": 0, **row} for row in harness.at(10_000)]
    rows += [{"batch": 1, **row} for row in harness.send({"bidder": 1})]
    assert {(row["starttime"].timestamp(), row["endtime"].timestamp()) for row in rows} == {(0, 10)}
    assert differences(database, "q12", pa.Table.from_pylist(rows)) == {}
    assert [row["bid_count"] for row in harness.at(20_000)] == [1]


@pytest.mark.parametrize(("query", "group"), [("q15", ["day"]), ("q16", ["channel", "day"])])
def test_reports_with_distinct_counts(
    folder: Path, database: duckdb.DuckDBPyConnection, query: str, group: list[str]
) -> None:
    first = p.FirstSeen(group)
    columns = ", ".join(f"{name} string" for name in [*group, "kind"])
    events = f"{columns}, id long, minute long, bids1 long, bids2 long, bids3 long"
    seen = Harness(first, by=[*group, "kind", "id"], events=events, output=first.output)
    report = Harness(p.Report(), by=group, events=first.output, output=first.output)
    emitted = Emitted()
    for number, (rows, _) in enumerate(batches(folder, database, {"bid": REPORTED})):
        chosen = [
            {name: row[name] for name in row if name != "channel" or "channel" in group}
            for row in rows["bid"]
        ]
        emitted.add(number, report.send(*seen.send(*chosen)))
    for row in emitted.rows:
        row["minute"] = f"{row['minute'] // 60 % 24:02}:{row['minute'] % 60:02}"
    assert differences(database, query, emitted.table(), group) == {}


@pytest.mark.parametrize(
    ("query", "processor", "by"),
    [("q18", p.LastBids, ["bidder", "auction"]), ("q19", p.TopBids, ["auction"])],
)
def test_last_and_highest_bids_of_keys(
    folder: Path, database: duckdb.DuckDBPyConnection, query: str, processor: type[Any], by: list[str]
) -> None:
    harness = Harness(processor(), by=by, events=SCHEMAS["bid"], output=processor.output)
    emitted = simple(harness, folder, database, "SELECT * FROM bid")
    keys = by if query == "q18" else [*by, "rank_number"]
    assert differences(database, query, emitted, keys) == {}


def test_bids_with_their_auction(folder: Path, database: duckdb.DuckDBPyConnection) -> None:
    auctions = SCHEMAS["auction"].replace("id long", "auction long", 1).replace("dateTime", "opened")
    harness = Harness(
        p.ExpandedBids(),
        by="auction",
        events={"auctions": auctions.replace("extra", "auction_extra"), "bids": SCHEMAS["bid"]},
        output=p.ExpandedBids.output,
    )
    renamed = "SELECT * RENAME (id AS auction, dateTime AS opened, extra AS auction_extra) FROM auction"
    emitted = Emitted()
    for rows, _ in batches(folder, database, {"auction": renamed, "bid": "SELECT * FROM bid"}):
        emitted.add(0, harness.send_all({"bids": rows["bid"]}))
        emitted.add(0, harness.send_all({"auctions": rows["auction"]}))
    assert differences(database, "q20", emitted.table()) == {}


def test_plain_pyspark_can_express_seventeen() -> None:
    assert list(QUERIES) == list(SQL)
    able = [query for query in QUERIES.values() if query.plain is not None]
    assert len(able) == 17
    assert {query.name for query in able if query.mode(PYSPARK) == "update"} == {"q17", "q18"}
    assert {query.name for query in QUERIES.values() if query.mode(HOLDFAST) == "update"} == {"q17"}


def test_an_unknown_query_or_side_is_refused() -> None:
    with pytest.raises(Invalid, match="found q24, expected q0, q1"):
        nexmark(Sizes(), runs=1, queries=["q24"])
    with pytest.raises(Invalid, match="found storm, expected holdfast, pyspark, flink"):
        nexmark(Sizes(), runs=1, sides=["storm"])


def test_holdfast_is_compared_with_each_side_by_rounds() -> None:
    found = Nexmark(Sizes())
    for side, seconds in ((HOLDFAST, (1.0, 2.0)), (PYSPARK, (2.0, 4.0)), (FLINK, (4.0,))):
        found.runs["q7", side] = [Run(1000, each, 2 * each) for each in seconds]
    assert [(result.comparison.name, result.value) for result in found.results] == [
        ("q7: holdfast / pyspark", 2)
    ]
    figures = found.as_dict()["queries"]["q7"][HOLDFAST]
    assert (figures["events_per_s"], figures["events_per_s_per_core"], figures["core_s_per_million"]) == (
        750,
        375,
        3000,
    )
