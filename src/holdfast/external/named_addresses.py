"""The database addresses that the user has named; Holdfast connects to no other databases.

A checkpoint and a savepoint contain the address of the database with their state. Anyone who can write them
could insert any host, which would then receive the user's password, or at least a connection. An address read
from a file is therefore compared with the addresses that the user has named: in the environment, on the
command line, or in the code of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

_NAMED: Final[set[str]] = set()
_SOURCES: Final[dict[str, Callable[[], Iterable[str]]]] = {}


def name_database(address: str) -> None:
    """Record an address that the user has given in this process, such as `redis://redis.example:6379/0`."""
    _NAMED.add(address)


def name_databases_of(home: str, read: Callable[[], Iterable[str]]) -> None:
    """Register a function that returns more addresses named by the user.

    Args:
        home: The state home in which the addresses are stored.
        read: Returns the addresses; called for each comparison.
    """
    _SOURCES[home] = read


def named_databases() -> set[str]:
    """Return the addresses that the user has named, except those in the environment."""
    return _NAMED.union(*(read() for read in _SOURCES.values()))


def addresses_in(environ: Mapping[str, str], variable: str) -> list[str]:
    """Return the addresses in an environment variable, which are separated by spaces."""
    return environ.get(variable, "").split()


def sole_address(environ: Mapping[str, str], variable: str) -> str | None:
    """Return the address in an environment variable, which replaces that of a file, if there is only one."""
    addresses = addresses_in(environ, variable)
    return addresses[0] if len(addresses) == 1 else None
