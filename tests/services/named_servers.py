"""Names servers of tests in the environment, as an operator does: Holdfast connects to no others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def named(variable: str, port: int) -> Iterator[None]:
    """Add a server on this machine to those that a variable lists.

    It is listed under two names: a single address would replace the one in a checkpoint.
    """
    own = [f"127.0.0.1:{port}", f"localhost:{port}"]
    os.environ[variable] = " ".join([*os.environ.get(variable, "").split(), *own])
    try:
        yield
    finally:
        os.environ[variable] = " ".join(one for one in os.environ[variable].split() if one not in own)
