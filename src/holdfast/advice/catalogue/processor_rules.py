"""Rules of processors: what they keep, and for how long."""

from __future__ import annotations

from typing import Final

from holdfast.advice.findings import Evidence, Rule, Severity

_SOURCE: Final = (Evidence.SOURCE,)
_PLANNED: Final = (Evidence.SOURCE, Evidence.PLAN)
_CLASS: Final = (
    "from pyspark.sql.streaming import StatefulProcessor\n\n\n"
    "class Visits(StatefulProcessor):\n"
    "    def init(self, handle):\n"
)
_COUNT: Final = (
    "    def handleInputRows(self, key, rows, timerValues):\n"
    "        count = (self.count.get() or (0,))[0] + sum(1 for _ in rows)\n"
    "        self.count.update((count,))\n"
    "        yield Row(customer=key[0], count=count)\n"
)
_KEYED: Final = "import holdfast as hf\n\n\nclass Visits(hf.Keyed):\n"

PROCESSOR_RULES: Final = (
    Rule(
        "HF501",
        "old-stateful-function",
        Severity.WARNING,
        _PLANNED,
        "applyInPandasWithState.",
        "It has one state for each key, one timeout and no time to live, hands rows over key by key, and its"
        " state cannot be evolved. Spark 4 has transformWithState in its place.",
        "write a StatefulProcessor with transformWithState, or hf.keyed, which is several times as fast",
        'events.groupBy("customer").applyInPandasWithState(count, "n long", "n long", "append",'
        ' "ProcessingTimeTimeout")',
        'hf.keyed(events, by="customer").process(Visits(), output="customer string, n long", name="visits")',
    ),
    Rule(
        "HF502",
        "stateful-function-without-timeout",
        Severity.WARNING,
        _PLANNED,
        "applyInPandasWithState with NoTimeout.",
        "A key whose events have ended is never called again, so that nobody can remove its state.",
        "give a timeout, set it in the function, and call state.remove() when state.hasTimedOut",
        'events.groupBy("customer").applyInPandasWithState(count, "n long", "n long", "append", "NoTimeout")',
        'events.groupBy("customer").applyInPandasWithState(count, "n long", "n long", "append",'
        ' "ProcessingTimeTimeout")',
    ),
    Rule(
        "HF503",
        "state-without-ttl",
        Severity.WARNING,
        _SOURCE,
        "A StatefulProcessor with a state that has no time to live, no timer, and is never cleared.",
        "One value for each key that was ever seen stays for ever.",
        "give the state a time to live in ms as the last argument, or register a timer and clear it there",
        f'{_CLASS}        self.count = handle.getValueState("count", "n long")\n\n{_COUNT}',
        f'{_CLASS}        self.count = handle.getValueState("count", "n long", 86_400_000)\n\n{_COUNT}',
    ),
    Rule(
        "HF504",
        "keyed-state-without-ttl",
        Severity.WARNING,
        _SOURCE,
        "A state of hf.Keyed or hf.KeyedTable without a ttl, in a class that removes nothing and sets"
        " no timer.",
        "One value for each key that was ever seen stays for ever.",
        'give it a time to live: hf.value("long", default=0, ttl="24h")',
        f'{_KEYED}    visits = hf.value("long", default=0)\n\n'
        "    def on_event(self, event, state, ctx):\n        state.visits += 1\n",
        f'{_KEYED}    visits = hf.value("long", default=0, ttl="24h")\n\n'
        "    def on_event(self, event, state, ctx):\n        state.visits += 1\n",
    ),
    Rule(
        "HF505",
        "rows-in-list-state",
        Severity.WARNING,
        _SOURCE,
        "Whole rows, or columns with whole payloads, in list state.",
        "State is stored, checkpointed and restored for as long as it lives, here with columns that"
        " no answer needs.",
        "keep what the answer needs: a count, a sum, the last value, or the one column that is read",
        f'{_KEYED}    seen = hf.list("struct<id: string, body: string>", ttl="1 hour")\n\n'
        "    def on_event(self, event, state, ctx):\n        state.seen.append(event)\n",
        f'{_KEYED}    seen = hf.list("string", ttl="1 hour")\n\n'
        "    def on_event(self, event, state, ctx):\n        state.seen.append(event.id)\n",
    ),
    Rule(
        "HF506",
        "number-as-text",
        Severity.WARNING,
        _SOURCE,
        "A number that is kept in a state of type string.",
        "Text takes several times the bytes of a long, is parsed in each batch, and sorts 10 before 9.",
        'declare the state as "long", "double" or "decimal(12,2)"',
        f'{_KEYED}    total = hf.value("string", default="0", ttl="24h")\n\n'
        "    def on_event(self, event, state, ctx):\n        state.total = str(int(state.total) + event.n)\n",
        f'{_KEYED}    total = hf.value("long", default=0, ttl="24h")\n\n'
        "    def on_event(self, event, state, ctx):\n        state.total += event.n\n",
    ),
    Rule(
        "HF507",
        "processor-without-state",
        Severity.WARNING,
        _SOURCE,
        "A processor class that declares no state and sets no timer.",
        "Rows are shuffled by key and each partition has a store, for what a projection does without either.",
        "write select, withColumn, or mapInArrow; flatMap by explode",
        f"{_KEYED}    def on_event(self, event, state, ctx):\n"
        '        yield {"customer": event.customer, "cents": event.amount * 100}\n',
        'events.select("customer", F.col("amount") * 100)',
    ),
)
