"""No name that people depend on changes by accident."""

from __future__ import annotations

import json

import pytest
from public_surface import WRITTEN, render, surface


@pytest.mark.slow
def test_every_public_name_is_the_one_that_was_promised() -> None:
    """A change that is meant: `python tests/support/public_surface.py`, and a line in the changelog."""
    assert json.loads(render(surface())) == json.loads(WRITTEN.read_text(encoding="utf-8"))
