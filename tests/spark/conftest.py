"""What holds for each test on the shared session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def settings_stay(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test leaves the settings of the shared session as they were: the tests after it use them too."""
    if "spark" not in request.fixturenames:
        yield
        return
    conf = request.getfixturevalue("spark").conf._jconf
    before = conf.getAllAsJava()
    yield
    after = conf.getAllAsJava()
    assert after.equals(before), f"settings of the session changed: {dict(before)} became {dict(after)}"
