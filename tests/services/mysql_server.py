"""A real MariaDB server for the tests: private directory, loopback, free port, ended by its pid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from absent_service import absent_service

from holdfast.errors import NotFound
from holdfast_bench.tables.mariadb import MariaDB

# Commits do not outlive a kill of the server.
_QUICK = "--innodb-flush-log-at-trx-commit=0"


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MariaDB]:
    """One server for the whole session."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(MariaDB.running(_QUICK))
        except NotFound as error:
            absent_service(str(error))
        yield server
