"""The jars of Holdfast's state stores and of their clients, for sessions of tests."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast.engine.session.state_jar import JARS_KEY, state_jar

CLIENTS: Final = Path(__file__).parents[2] / ".services" / "state-clients"


def state_jars() -> dict[str, str]:
    """A setting with those that are here: `make services` has fetched the clients."""
    return {JARS_KEY: ",".join(map(str, [state_jar(), *sorted(CLIENTS.glob("*/*.jar"))]))}
