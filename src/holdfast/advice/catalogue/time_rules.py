"""Rules of watermarks."""

from __future__ import annotations

from typing import Final

from holdfast.advice.findings import Evidence, Rule, Severity

_SOURCE: Final = (Evidence.SOURCE,)
_PLANNED: Final = (Evidence.SOURCE, Evidence.PLAN)
_ALL: Final = (Evidence.SOURCE, Evidence.PLAN, Evidence.FACTS)

TIME_RULES: Final = (
    Rule(
        "HF201",
        "watermark-not-kept",
        Severity.ERROR,
        _SOURCE,
        "A call of withWatermark or dropDuplicates whose frame is not kept.",
        "A frame does not change: the call gives a new one. What is built on the old one has no watermark.",
        "assign what the call gives, and go on with that",
        'events.withWatermark("ts", "10 minutes")\nevents.select("ts").writeStream.format("noop")',
        'timed = events.withWatermark("ts", "10 minutes")\ntimed.select("ts").writeStream.format("noop")',
    ),
    Rule(
        "HF202",
        "window-over-other-column",
        Severity.ERROR,
        _PLANNED,
        "A window over a column that is not the one of the watermark.",
        "Spark drops windows by the column that the watermark is declared on. Another one, be it a copy or"
        " the same time parsed again, ends nothing.",
        "make the column first, declare the watermark on it, and put the window over the same column",
        'events.withWatermark("ts", "1 hour").groupBy(F.window("arrived_at", "5 minutes")).count()',
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "5 minutes")).count()',
    ),
    Rule(
        "HF203",
        "watermark-behind-aggregate",
        Severity.ERROR,
        _SOURCE,
        "A watermark that is declared behind the aggregate that needs it.",
        "It bounds only what comes after it. The aggregate before it keeps its state for ever.",
        "declare it before groupBy",
        'counts = events.groupBy(F.window("ts", "5 minutes")).count().withWatermark("window", "10 minutes")',
        'events.withWatermark("ts", "10 minutes").groupBy(F.window("ts", "5 minutes")).count()',
    ),
    Rule(
        "HF204",
        "long-watermark",
        Severity.WARNING,
        _PLANNED,
        "A watermark that waits longer than a day, before an operator with state.",
        "The state is that of all the time that it waits, and in output mode append no result comes before.",
        "wait as long as rows really are late (hf.late_rows counts them), and handle the few later"
        " ones apart",
        'events.withWatermark("ts", "30 days").groupBy(F.window("ts", "1 hour")).count()',
        'events.withWatermark("ts", "2 hours").groupBy(F.window("ts", "1 hour")).count()',
    ),
    Rule(
        "HF205",
        "watermark-declared-twice",
        Severity.ERROR,
        _SOURCE,
        "A second watermark on a stream that has one, with no stateful operator between them.",
        "Spark 4 refuses to start such a query, and in Spark 3 it is easy to take the wrong one for"
        " the one that counts.",
        "keep one of them",
        'events.withWatermark("ts", "1 hour").withWatermark("seen_at", "1'
        ' hour").groupBy(F.window("ts", "1 hour")).count()',
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "1 hour")).count()',
    ),
    Rule(
        "HF206",
        "several-watermarks",
        Severity.NOTE,
        _PLANNED,
        "An operator behind two streams or more that each have a watermark.",
        "Spark goes by the slowest one: a silent stream holds back all others, and their state grows."
        " A restart"
        " begins with the one watermark that was saved, so rows may be late that were not.",
        "see that each stream always has rows, such as heartbeats; watch the watermark's lag",
        'orders.withWatermark("ordered_at", "1 hour").join(payments.withWatermark("paid_at", "1 hour"),\n'
        '    F.expr("order_id = paid_order and paid_at between ordered_at and ordered_at + interval 1'
        ' hour"))',
        'shops = spark.read.table("shops")\norders.withWatermark("ordered_at", "1 hour").join(shops, "shop")',
    ),
    Rule(
        "HF207",
        "watermark-of-the-fastest",
        Severity.WARNING,
        _ALL,
        "`spark.sql.streaming.multipleWatermarkPolicy` is max.",
        "The fastest stream decides: rows of all slower ones are dropped as late, without an error.",
        "leave it at min, and give a silent stream heartbeats",
        'spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "max")',
        'spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "min")',
    ),
    Rule(
        "HF208",
        "watermark-left-behind",
        Severity.ERROR,
        _PLANNED,
        "A window over the watermark's column as it was before the watermark, or behind a cast or another"
        " function.",
        "Spark marks the column that withWatermark gives. A column of the frame before it (`events.ts`),"
        " a cast"
        " and a rounded time have no mark, so that no window ever ends.",
        "cast first, then declare the watermark, and name the column by its name",
        'timed = events.withWatermark("ts", "10 minutes")\n'
        'timed.groupBy(F.window(events.ts, "5 minutes")).count()',
        'timed = events.withWatermark("ts", "10 minutes")\ntimed.groupBy(F.window("ts", "5'
        ' minutes")).count()',
    ),
)
