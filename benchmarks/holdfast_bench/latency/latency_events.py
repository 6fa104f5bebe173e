"""The events of the latency benchmark: the user and the amount of an event follow from its number."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast_bench.latency.kafka_node import HOME

_PRODUCER: Final = Path(__file__).with_name("SteadyProducer.java")
_JAVA: Final = ("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def expected_totals(keys: int, number: int) -> dict[int, tuple[int, float]]:
    """Return the count and the sum of each user after so many events."""
    totals: dict[int, tuple[int, float]] = {}
    for each in range(number):
        user, amount = each % keys, (each * 7919 % 400 + 1) / 4
        n, total = totals.get(user, (0, 0.0))
        totals[user] = n + 1, total + amount
    return totals


def producer(address: str, topic: str, *, keys: int, first: int, count: int, rate: int = 0) -> Sequence[str]:
    """Return the command that sends events.

    Args:
        address: The broker.
        topic: The topic, which is created if it is missing.
        keys: The number of users.
        first: The number of the first event.
        count: The number of events.
        rate: Events a second; 0 for as fast as possible.
    """
    numbers = [str(each) for each in (keys, first, count, rate)]
    # The client of Spark's connector, so that both ends of the query's topics have the same defaults.
    return [*_JAVA, "-cp", f"{HOME}/spark/*", str(_PRODUCER), address, topic, *numbers]


def send(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a producer in its own process, which ends with this one."""
    return subprocess.Popen(  # noqa: S603 - our own command
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
