"""An operator that keeps what comes, and tells what it has when it is asked."""

from __future__ import annotations

from typing import Any

import holdfast as hf

EVENTS = "n long, ts timestamp"
OUTPUT = "instance int, items array<long>, seen array<long>"


class Holds(hf.Operator):
    """Asked by a row for each instance, whose number is below zero."""

    items = hf.list("long")
    seen = hf.union_list("long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        if event.n < 0:
            yield ctx.key.instance, sorted(state.items), sorted(state.seen)
        else:
            state.items.append(event.n)
            state.seen.append(event.n)
