"""One query as Flink's SQL, by PyFlink, with two parallel instances.

It runs in an environment without Holdfast. State is on the heap, with a checkpoint every second;
mini-batches and the other optimisations are those of the published benchmark. Flink's wheel reads no
Parquet, so the events come as CSV: `q0` shows what reading costs. Each job runs twice in one JVM: over a
few batches to warm up, and over the others, timed.

Flink cannot say `q6`, and its files cannot be looked up in, as `q13` does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment, TableDescriptor

INSTANCES: Final = 2
SETTINGS: Final = {
    "execution.checkpointing.interval": "1s",
    "table.local-time-zone": "UTC",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
}

_COLUMNS: Final = {
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,"
    " `dateTime` TIMESTAMP(3), extra STRING",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,"
    " `dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING,"
    " `dateTime` TIMESTAMP(3), extra STRING",
}
_WINDOW: Final = "TUMBLE(TABLE {}, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)"
_WON: Final = (
    "auction AS a JOIN bid AS b ON a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires"
)
_HOPS: Final = (
    "SELECT auction, count(*) AS num, window_start, window_end FROM TABLE("
    "HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
    " GROUP BY auction, window_start, window_end"
)
_DAY: Final = "DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')"
_RANKS: Final = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")


def _by_rank(what: str) -> str:
    return ", ".join([what, *(f"{what} FILTER (WHERE {rank})" for rank in _RANKS)])


_COUNTS: Final = ", ".join(
    _by_rank(what) for what in ("count(*)", "count(DISTINCT bidder)", "count(DISTINCT auction)")
)

SQL: Final[Mapping[str, str]] = {
    "q0": "SELECT auction, bidder, price, `dateTime`, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price, `dateTime`, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": "SELECT p.name, p.city, p.state, a.id FROM auction AS a JOIN person AS p ON a.seller = p.id"
    " WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    "q4": "SELECT category, avg(final) FROM ("
    f"SELECT max(b.price) AS final, a.category FROM {_WON} GROUP BY a.id, a.category) GROUP BY category",
    "q5": f"SELECT c.auction, c.num FROM ({_HOPS}) AS c JOIN (SELECT max(num) AS num, window_start,"
    f" window_end FROM ({_HOPS}) GROUP BY window_start, window_end) AS m"
    " ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num >= m.num",
    "q7": "SELECT b.auction, b.price, b.bidder, b.`dateTime`, b.extra FROM bid AS b JOIN ("
    f"SELECT max(price) AS price, window_end FROM TABLE({_WINDOW.format('bid')})"
    " GROUP BY window_start, window_end) AS m ON b.price = m.price"
    " WHERE b.`dateTime` BETWEEN m.window_end - INTERVAL '10' SECOND AND m.window_end",
    "q8": "SELECT p.id, p.name, p.window_start FROM (SELECT id, name, window_start, window_end FROM TABLE("
    f"{_WINDOW.format('person')}) GROUP BY id, name, window_start, window_end) AS p JOIN (SELECT seller,"
    f" window_start, window_end FROM TABLE({_WINDOW.format('auction')}) GROUP BY seller, window_start,"
    " window_end) AS a ON p.id = a.seller AND p.window_start = a.window_start"
    " AND p.window_end = a.window_end",
    "q9": "SELECT * FROM (SELECT a.*, b.bidder, b.price, b.`dateTime` AS bid_dateTime, b.extra AS bid_extra,"
    " ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.`dateTime` ASC) AS place"
    f" FROM {_WON}) WHERE place <= 1",
    "q10": f"SELECT auction, bidder, price, `dateTime`, extra, {_DAY} AS dt,"
    " DATE_FORMAT(`dateTime`, 'HH:mm') AS hm FROM bid",
    "q11": "SELECT bidder, count(*), window_start, window_end FROM TABLE(SESSION(TABLE bid"
    " PARTITION BY bidder, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))"
    " GROUP BY bidder, window_start, window_end",
    "q12": "SELECT bidder, count(*), window_start, window_end FROM TABLE("
    "TUMBLE(TABLE arriving, DESCRIPTOR(arrived), INTERVAL '10' SECOND))"
    " GROUP BY bidder, window_start, window_end",
    "q14": "SELECT auction, bidder, 0.908 * price, CASE WHEN HOUR(`dateTime`) BETWEEN 8 AND 18 THEN 'dayTime'"
    " WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime' ELSE 'otherTime' END, `dateTime`,"
    " extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) FROM bid"
    " WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000",
    "q15": f"SELECT {_DAY}, {_COUNTS} FROM bid GROUP BY {_DAY}",
    "q16": f"SELECT channel, {_DAY}, max(DATE_FORMAT(`dateTime`, 'HH:mm')), {_COUNTS} FROM bid"
    f" GROUP BY channel, {_DAY}",
    "q17": f"SELECT auction, {_DAY}, {_by_rank('count(*)')}, min(price), max(price), avg(price), sum(price)"
    f" FROM bid GROUP BY auction, {_DAY}",
    "q18": "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime`"
    " DESC) AS place FROM bid) WHERE place <= 1",
    "q19": "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place"
    " FROM bid) WHERE place <= 10",
    "q20": "SELECT b.*, a.itemName, a.description, a.initialBid, a.reserve, a.`dateTime`, a.expires,"
    " a.seller, a.category, a.extra FROM bid AS b JOIN auction AS a ON b.auction = a.id"
    " WHERE a.category = 10",
    "q21": "SELECT auction, bidder, price, channel, CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google'"
    " THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'"
    " ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END FROM bid"
    " WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL"
    " OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')",
    "q22": "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3), SPLIT_INDEX(url, '/', 4),"
    " SPLIT_INDEX(url, '/', 5) FROM bid",
    "q23": "SELECT b.*, p.*, a.* FROM bid AS b JOIN person AS p ON p.id = b.bidder"
    " JOIN auction AS a ON a.seller = b.bidder",
}


def run(query: str, events: Path, folder: Path) -> float:
    """Run a query to the end of its events and return the seconds of its job, without the start of Flink."""
    settings = Configuration()
    for key, value in SETTINGS.items():
        settings.set_string(key, value)
    settings.set_string("execution.checkpointing.dir", (folder / "checkpoints").as_uri())
    environment = StreamExecutionEnvironment.get_execution_environment(settings)
    environment.set_parallelism(INSTANCES)
    tables = StreamTableEnvironment.create(environment)
    for key, value in SETTINGS.items():
        tables.get_config().set(key, value)
    for name, columns in _COLUMNS.items():
        tables.execute_sql(
            f"CREATE TEMPORARY TABLE {name} ({columns}, WATERMARK FOR `dateTime` AS `dateTime` -"
            " INTERVAL '4' SECOND) WITH ('connector' = 'filesystem', 'format' = 'csv',"
            f" 'path' = '{(events / name).as_uri()}')"
        )
    tables.execute_sql("CREATE TEMPORARY VIEW arriving AS SELECT *, PROCTIME() AS arrived FROM bid")
    rows = tables.sql_query(SQL[query])
    target = TableDescriptor.for_connector("blackhole")
    if query == "q10":
        target = TableDescriptor.for_connector("filesystem").option("path", (folder / "bids").as_uri())
        target = target.format("csv").partitioned_by("dt", "hm")
    job = rows.execute_insert(target.build()).get_job_client()
    return float(job.get_job_execution_result().result().get_net_runtime()) / 1000


def _processor() -> float:
    """Return the processor seconds of this process and of the JVM that it has started."""
    total = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        if os.getpid() in (int(path.parent.name), int(fields[1])):
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def main() -> None:
    """Read a task from standard input, run it, and print the figures as the last line."""
    task = json.load(sys.stdin)
    folder, events = Path(task["folder"]), Path(task["events"])
    run(task["query"], events / "warm", folder / "warm")
    before = _processor()
    seconds = run(task["query"], events / "counted", folder / "counted")
    figures = {"events": task["counted"], "seconds": seconds, "processor": _processor() - before}
    sys.stdout.write("\n" + json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
