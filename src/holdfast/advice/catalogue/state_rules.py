"""Rules of state that has no end, or is larger than it need be."""

from __future__ import annotations

from typing import Final

from holdfast.advice.findings import Evidence, Rule, Severity

_SOURCE: Final = (Evidence.SOURCE,)
_PLANNED: Final = (Evidence.SOURCE, Evidence.PLAN)

STATE_RULES: Final = (
    Rule(
        "HF101",
        "window-without-watermark",
        Severity.ERROR,
        _PLANNED,
        "An aggregate over windows of a stream that has no watermark.",
        "Spark drops the state of a window when the watermark has passed its end. Without one every window"
        " since the start stays, and output mode append is refused.",
        'declare `.withWatermark("ts", "10 minutes")` on the column of the window, before groupBy',
        'events.groupBy(F.window("ts", "5 minutes")).count()',
        'events.withWatermark("ts", "10 minutes").groupBy(F.window("ts", "5 minutes")).count()',
    ),
    Rule(
        "HF102",
        "keys-without-end",
        Severity.WARNING,
        _PLANNED,
        "An aggregate of a stream whose keys have neither a window nor the column of the watermark.",
        "One row of state for each key stays for ever, whatever watermark there is. That is right for a"
        " few countries, and wrong for customers, sessions or devices.",
        "put a window of the event time among the keys; for a running total with an end take"
        " `hf.running`, or `hf.keyed` with a time to live",
        'events.groupBy("customer").count()',
        'events.withWatermark("ts", "10 minutes").groupBy("customer", F.window("ts", "1 day")).count()',
    ),
    Rule(
        "HF103",
        "dedupe-without-watermark",
        Severity.ERROR,
        _PLANNED,
        "dropDuplicates of a stream that has no watermark.",
        "Every key that was ever seen is kept, so that the state grows with the stream. Spark refuses"
        " dropDuplicatesWithinWatermark without one.",
        'declare a watermark, and write `.dropDuplicatesWithinWatermark(["id"])`',
        'once = events.dropDuplicates(["event_id"])',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicatesWithinWatermark(["event_id"])',
    ),
    Rule(
        "HF104",
        "dedupe-key-without-event-time",
        Severity.ERROR,
        _PLANNED,
        "dropDuplicates by columns without the one that the watermark is on.",
        "The watermark drops keys by their event time. A key that has none stays for ever, and the"
        " watermark before it does nothing.",
        'write `.dropDuplicatesWithinWatermark(["id"])`, which keeps a key until the watermark has passed it',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicates(["event_id"])',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicatesWithinWatermark(["event_id"])',
    ),
    Rule(
        "HF105",
        "dedupe-by-event-time",
        Severity.NOTE,
        _PLANNED,
        "dropDuplicates by an id and the column of the watermark.",
        "Two rows with one id and times that differ by a millisecond are two rows. A producer that sends"
        " again often sets the time again.",
        'where the time of a repeat may differ, write `.dropDuplicatesWithinWatermark(["id"])`',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicates(["event_id", "ts"])',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicatesWithinWatermark(["event_id"])',
    ),
    Rule(
        "HF106",
        "join-without-watermark",
        Severity.ERROR,
        _PLANNED,
        "A join of two streams of which one or both have no watermark.",
        "Rows wait in state for a partner. Without a watermark on both sides Spark cannot know that none"
        " will come, and keeps every row of at least one side for ever.",
        "declare a watermark on both sides, and bound the times in the condition; `hf.join_within`"
        " asks for both",
        'orders.join(payments, "order_id")',
        'hf.join_within(orders, payments, by="order_id", times=("ts", "ts"), bound="1 hour",'
        ' watermark="1 hour")',
    ),
    Rule(
        "HF107",
        "join-without-time-bound",
        Severity.ERROR,
        _PLANNED,
        "A join of two streams with watermarks whose condition does not bound the event times.",
        "A watermark alone drops nothing from a join: only a condition such as `paid_at <= ordered_at +"
        " interval 1 hour` tells how long a row can still find a partner.",
        "compare the event times of both sides in the condition, or join by a window of them",
        'orders.withWatermark("ordered_at", "1 hour").join('
        'payments.withWatermark("paid_at", "1 hour"), "order_id")',
        'orders.withWatermark("ordered_at", "1 hour").alias("o").join('
        'payments.withWatermark("paid_at", "1 hour").alias("p"),\n'
        '    F.expr("o.order_id = p.order_id and paid_at between ordered_at'
        ' and ordered_at + interval 1 hour"))',
    ),
    Rule(
        "HF108",
        "complete-mode-over-keys",
        Severity.WARNING,
        _PLANNED,
        "Output mode complete on an aggregate that has keys.",
        "In this mode Spark ignores the watermark and drops no state, and each batch writes the whole"
        " result.",
        'write outputMode("update") into a sink that replaces by key, or "append" with windows',
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "1 hour"), "customer").count()'
        '.writeStream.outputMode("complete")',
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "1 hour"), "customer").count()'
        '.writeStream.outputMode("append")',
    ),
    Rule(
        "HF109",
        "collected-in-state",
        Severity.WARNING,
        _PLANNED,
        "collect_list, collect_set, array_agg or listagg in an aggregate of a stream.",
        "All values of a group are one value of state, which is read and written as a whole in each batch"
        " that touches the key. A hot key takes minutes, then the memory of its task.",
        "keep what the answer needs: a count, a sum, the greatest, `approx_count_distinct`; or write the rows"
        " and collect them where they are read",
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "1 hour"), "customer")'
        '.agg(F.collect_list("item"))',
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "1 hour"), "customer")'
        '.agg(F.approx_count_distinct("item"))',
    ),
    Rule(
        "HF110",
        "salt-without-second-aggregate",
        Severity.ERROR,
        _SOURCE,
        "An aggregate that groups by a number of chance, with no aggregate behind it.",
        "The parts of a key are never added up, so that each row of the result has a part of the answer. A"
        " batch that runs again draws other numbers, and counts rows twice.",
        "leave the salt out: Spark combines before the shuffle, so that a hot key sends one row from each"
        " task; see the guide on hot keys for what that does not help",
        'events.withWatermark("ts", "1 hour").withColumn("salt", (F.rand() * 8).cast("int"))'
        '.groupBy(F.window("ts", "1 hour"), "customer", "salt").count().writeStream.outputMode("append")',
        'events.withWatermark("ts", "1 hour").groupBy(F.window("ts", "1 hour"), "customer").count()'
        '.writeStream.outputMode("append")',
    ),
    Rule(
        "HF111",
        "dedupe-by-whole-row",
        Severity.WARNING,
        (Evidence.PLAN,),
        "dropDuplicates without columns, or distinct, of a stream with four columns or more.",
        "The whole row is the key, so that each row is kept in full. A repeat that differs in anything,"
        " such as the time at which it was sent again, is no repeat.",
        'name the columns that tell rows apart: `.dropDuplicatesWithinWatermark(["id"])`',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicates()',
        'once = events.withWatermark("ts", "10 minutes").dropDuplicatesWithinWatermark(["event_id"])',
    ),
    Rule(
        "HF112",
        "refused-by-spark",
        Severity.ERROR,
        (Evidence.PLAN,),
        "A query that Spark would not start in its output mode.",
        "The driver starts, builds everything, and ends with an error; a supervisor cannot help that.",
        "write what the message asks for: mostly a watermark, or another output mode",
        'hf.sink(events.groupBy("customer").count()).delta("/tables/counts")',
        'hf.sink(events.withWatermark("ts", "1 hour").groupBy("customer", F.window("ts", "1 day")).count())'
        '.delta("/tables/counts")',
    ),
)
