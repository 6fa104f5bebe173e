"""What the job `clustered` imports, and its tasks too: they get this file where they have none of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import holdfast as hf


class Tally(hf.Keyed):
    """How many orders an account has, and their sum: a row a batch."""

    orders = hf.value("long", default=0)
    amount = hf.value("long", default=0)

    def on_key(self, key: Any, events: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        """Count them."""
        for event in events:
            state.orders += 1
            state.amount += event.amount
        yield {"account": ctx.key.account, "orders": state.orders, "amount": state.amount}
