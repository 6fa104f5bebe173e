"""The processor of the skew measurements; Spark's workers import it from here."""

from __future__ import annotations

from typing import Any

import holdfast as hf

OUTPUT = "user long, n long, total long"


class Spend(hf.Keyed):
    """How often a user came, and what he spent."""

    n = hf.value("long", default=0)
    total = hf.reducing("long", hf.add)

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:  # noqa: ARG002 - a handler's arguments
        """Take an event in."""
        state.n += 1
        state.total.add(event.amount)

    def merge(self, state: Any, part: Any) -> None:
        """Bring a part in."""
        state.n += part.n
        state.total.merge(part.total)

    def on_end(self, state: Any, ctx: Any) -> Any:
        """Tell how things stand."""
        yield ctx.key.user, state.n, state.total.get()
