"""What a test does where its server is not installed."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def absent_service(reason: str) -> NoReturn:
    """Skip the test; in CI, where `make services` has to have brought the server, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
