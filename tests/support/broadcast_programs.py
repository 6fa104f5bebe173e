"""A processor over events and rules, and a model of both in plain Python."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from keyed_runs import Checkpoints, offset_logs

import holdfast as hf

EVENTS = "who string, n long, ts timestamp"
RULES = "rule string, least long, version long, off boolean, ts timestamp"
OUTPUT = "who string, rule string, least long, seen long"
Event = dict[str, Any]


class Alerts(hf.Keyed):
    """Each rule that an event meets, with how many events its key has had."""

    seen = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        state.seen += 1
        for name, rule in sorted(ctx.broadcast.items()):
            if event.n >= rule.least:
                yield event.who, name, rule.least, state.seen


class Model:
    """What `Alerts` must answer, by the rules."""

    def __init__(self) -> None:
        self.rules: dict[str, Event] = {}
        self.seen: dict[str | None, int] = {}

    def batch(self, events: list[Event], rules: list[Event]) -> list[tuple[Any, ...]]:
        """Run a batch: all its rules by their versions, then its events."""
        for rule in sorted(rules, key=lambda each: int(each["version"])):
            known = self.rules.get(rule["rule"])
            if known is None or known["version"] < rule["version"]:
                self.rules[rule["rule"]] = rule
        rows = []
        for event in events:
            who = event["who"]
            self.seen[who] = self.seen.get(who, 0) + 1
            rows += [
                (who, name, rule["least"], self.seen[who])
                for name, rule in self.rules.items()
                if not rule["off"] and event["n"] >= rule["least"]
            ]
        return rows


def events_and_rules(seed: int, batches: int, size: int, start: int) -> list[tuple[list[Event], list[Event]]]:
    """Random files of events and of rules, the latter in no order of their versions; some are empty."""
    chance = random.Random(seed)
    names = ["ann", "bob", "cyd", "dan", None]
    made = []
    for number in range(batches):
        ts = start + number * 1000
        events = [
            {"who": chance.choice(names), "n": chance.randrange(20), "ts": ts}
            for _ in range(chance.randrange(size))
        ]
        rules = [
            {
                "rule": chance.choice("abcdef"),
                "least": chance.randrange(20),
                "version": chance.randrange(4 * batches),
                "off": chance.random() < 0.2,
                "ts": ts,
            }
            for _ in range(chance.randrange(5))
        ]
        made.append((events, rules))
    return made


def read_in(checkpoints: Checkpoints) -> list[tuple[int, int]]:
    """Per batch, from Spark's offset log, how many files of events and of rules are read by its end."""
    found = []
    for path in offset_logs(checkpoints):
        sources = path.read_text(encoding="utf-8").splitlines()[2:]
        events, rules = (0 if each == "-" else json.loads(each)["logOffset"] + 1 for each in sources)
        found.append((events, rules))
    return found


def expected(
    checkpoints: Checkpoints, files: list[tuple[list[Event], list[Event]]]
) -> dict[int, Counter[tuple[Any, ...]]]:
    """What the model answers to the batches that Spark ran, by number; without those that have no rows."""
    model, before, rows = Model(), (0, 0), {}
    for number, after in enumerate(read_in(checkpoints)):
        events = [row for file, _ in files[before[0] : after[0]] for row in file]
        rules = [row for _, file in files[before[1] : after[1]] for row in file]
        rows[number] = Counter(model.batch(events, rules))
        before = after
    return {number: each for number, each in rows.items() if each}
