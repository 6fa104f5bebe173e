"""A real MariaDB server for the tests: private directory, loopback, free port, ended by its pid."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from required import require

from holdfast_bench.tables.mariadb import MariaDB

# Commits do not outlive a kill of the server.
_QUICK = "--innodb-flush-log-at-trx-commit=0"


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MariaDB]:
    """One server for the whole session."""
    require("mariadb")
    with MariaDB.running(_QUICK) as server:
        yield server
