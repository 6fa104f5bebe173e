"""The jars of Holdfast's state stores and of their clients, for sessions of tests."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast.engine.session.jars import JARS_KEY, LISTENER, LISTENERS_KEY, state_jar

CLIENTS: Final = Path(__file__).parents[2] / ".services" / "state-clients"


def state_jars() -> dict[str, str]:
    """Settings with those that are here: `make services` has fetched the clients."""
    jars = [state_jar(), *sorted(CLIENTS.glob("*/*.jar"))]
    return {JARS_KEY: ",".join(map(str, jars)), LISTENERS_KEY: LISTENER}
