"""The database addresses that the user has named; Holdfast connects to no others.

A checkpoint and a savepoint name the database of their state. Anyone who can write them could name any host,
which would then get the user's password, or at least a connection. An address that was read from a file is
therefore compared with the addresses that the user has named: in the environment, on the command line, or in
the code of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

_NAMED: Final[set[str]] = set()
_SOURCES: Final[dict[str, Callable[[], Iterable[str]]]] = {}


def name_database(address: str) -> None:
    """Record an address that the operator has given in this process, such as `redis://redis.example:6379/0`."""
    _NAMED.add(address)


def name_databases_of(home: str, read: Callable[[], Iterable[str]]) -> None:
    """Register a source of further addresses that the user has named.

    Args:
        home: The state home that stores the addresses.
        read: Returns the addresses; called when an address is compared with them.
    """
    _SOURCES[home] = read


def named_databases() -> set[str]:
    """Return the addresses that the operator has named, except for those in the environment."""
    return _NAMED.union(*(read() for read in _SOURCES.values()))


def addresses_in(environ: Mapping[str, str], variable: str) -> list[str]:
    """Return the addresses that an environment variable lists, with spaces between them."""
    return environ.get(variable, "").split()


def sole_address(environ: Mapping[str, str], variable: str) -> str | None:
    """Return the only address in an environment variable, which replaces that of a file; None for several."""
    addresses = addresses_in(environ, variable)
    return addresses[0] if len(addresses) == 1 else None
