"""Fixtures for the tests of jobs: `pytest_plugins = ["holdfast.pytest_plugin"]` in a `conftest.py`.

The package has no entry point for it: pytest loads it only for a `conftest.py` with this line.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.checkpoints import verify

if TYPE_CHECKING:
    from holdfast.testing import Harness

GOLDEN = "holdfast_golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting of pytest that names the directory of golden checkpoints."""
    parser.addini(
        GOLDEN, "Directory of golden checkpoints, relative to the root of pytest.", default="golden"
    )


@pytest.fixture
def hf_harness() -> Iterator[Callable[..., Harness]]:
    """Make harnesses. At the end of the test each one restarts from its state, which must be readable."""
    from holdfast.testing import Harness

    made: list[Harness] = []

    def make(*args: Any, **options: Any) -> Harness:
        made.append(Harness(*args, **options))
        return made[-1]

    yield make
    for harness in made:
        harness.restart()


@pytest.fixture
def hf_golden(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Path]:
    """Copy a golden checkpoint by its name, after a check that it is whole; the test may change the copy."""
    folder = request.config.rootpath / str(request.config.getini(GOLDEN))

    def copy(name: str) -> Path:
        target = Path(shutil.copytree(folder / name, tmp_path / name, symlinks=True))
        report = verify(target)
        if not report.ok:
            pytest.fail(f"the golden checkpoint {folder / name} is damaged\n{report}")
        return target

    return copy
