"""The faults of the past can be put back: each change has its place in today's code."""

from __future__ import annotations

import pytest
from executed_lines import ROOT
from past_faults import FAULTS, Fault, as_mutant


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_fault_has_its_place(fault: Fault) -> None:
    mutant = as_mutant(fault)
    text = (ROOT / "src" / "holdfast" / mutant.path).read_bytes()
    compile(text[: mutant.start] + mutant.after.encode() + text[mutant.end :], mutant.path, "exec")
    assert not fault.test or (ROOT / fault.test.partition("::")[0]).is_file()


def test_there_are_ten() -> None:
    assert len(FAULTS) == 10
