"""The list of tests that only the long form runs names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from grid import dealt, proof_only
from proof_parts import files_of, parts_of, patterns
from proof_parts import test_files as all_files

ROOT = Path(__file__).parents[2]


def test_every_line_begins_the_id_of_a_test() -> None:
    for line in proof_only():
        path, _, name = line.partition("::")
        files = [*ROOT.glob(path.partition("[")[0].rstrip("*") + "*")]
        function = re.escape(name.partition("[")[0]).replace(r"\*", ".*")
        assert any(re.search(rf"^def {function}", file.read_text(), re.MULTILINE) for file in files), line


def test_no_line_is_there_twice() -> None:
    lines = proof_only()
    assert [line for line in lines if any(line != other and line.startswith(other) for other in lines)] == []
    assert len(lines) == len(set(lines))


def test_every_test_file_is_in_exactly_one_part() -> None:
    assert {file: parts_of(file) for file in all_files() if len(parts_of(file)) != 1} == {}


def test_every_part_has_files() -> None:
    numbers = [number for number, _ in patterns()]
    assert sorted(set(numbers)) == list(range(1, max(numbers) + 1))
    assert all(files_of(number) for number in numbers)
    assert {file for number in numbers for file in files_of(number)} == set(all_files())


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_each_worker_begins_with_slow_files_and_ends_with_unit_tests(workers: int) -> None:
    """Shares are cut as `xdist` cuts them; a file stays in one of them."""
    slow = [f"tests/fault/test_{file}.py::test_{number}" for file in "abcdefgh" for number in range(9)]
    quick = [f"tests/unit/test_{file}.py::test_{number}" for file in "uvwxyz" for number in range(50)]
    tests = [SimpleNamespace(nodeid=name, path=name.partition("::")[0]) for name in slow + quick]
    order = [test.nodeid for test in dealt(cast("list[pytest.Item]", tests), workers)]
    assert sorted(order) == sorted(slow + quick)
    shares = []
    for worker in range(workers):
        size = len(order) // (workers - worker)
        shares.append(order[:size])
        order = order[size:]
    assert [sorted(share, key=quick.__contains__) for share in shares] == shares
    files = [{name.partition("::")[0] for name in share if name in slow} for share in shares]
    assert max(map(len, files)) - min(map(len, files)) <= 1
    assert sum(map(len, files)) == 8
