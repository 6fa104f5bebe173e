"""The page of claims agrees with the tests, and with what CI leaves to `make proof`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from grid import is_proof_only, proof_only

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "proof" / "claims.md"
_ROW = re.compile(
    r"^\| (?P<promise>[^|]*) \| `(?P<test>tests/[^`]+::[^`]+)` \| (?P<ci>[^|]+) \|$", re.MULTILINE
)
_TARGET = re.compile(r"needs `make (services-[a-z0-9-]+)`")


class Claim(NamedTuple):
    """A test that a row names, and what the row says of CI."""

    test: str
    ci: str

    @property
    def source(self) -> str:
        return (ROOT / self.test.partition("::")[0]).read_text(encoding="utf-8")

    @property
    def function(self) -> str:
        return self.test.partition("::")[2].partition("[")[0]


CLAIMS = [Claim(row["test"], row["ci"].strip()) for row in _ROW.finditer(PAGE.read_text(encoding="utf-8"))]


def expected(claim: Claim) -> str:
    """The word for how much of a test is in CI, by `proof.txt` and by the grids of the test itself."""
    if is_proof_only(claim.test):
        return "no"
    for line in proof_only():
        test, _, case = line.partition("[")
        function = re.escape(test).replace(r"\*", ".*")
        named = (
            "*" not in test.partition("::")[0]
            or case in claim.source.lower()
            or "StateDatabase" in claim.source
        )
        if case and named and re.fullmatch(function, claim.test):
            return "part"
    decorators = claim.source.partition(f"def {claim.function}(")[0].rpartition("\n\n\n")[2]
    return "part" if "WHOLE" in decorators else "yes"


def test_every_row_has_a_test() -> None:
    rows = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| .*(`tests/)", line)
    ]
    assert len(rows) == len(CLAIMS) > 100
    promises = [row for row in _ROW.finditer(PAGE.read_text(encoding="utf-8")) if row["promise"].strip()]
    assert len(promises) > 60


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.test.removeprefix("tests/"))
def test_a_claim_names_a_test_and_says_whether_ci_runs_it(claim: Claim) -> None:
    assert re.search(rf"^(async )?def {claim.function}\(", claim.source, re.MULTILINE), claim.test
    words = {"yes", "part", "no"}
    said = claim.ci.partition(",")[0]
    assert said in words
    targets = set(_TARGET.findall(claim.ci))
    if targets:
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        [in_ci] = re.findall(r"^services: ([^#\n]*)", makefile, re.MULTILINE)
        assert targets.isdisjoint(in_ci.split()), "CI has this server"
        assert said != "yes"
        assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    else:
        assert said == expected(claim), claim.test
    assert ("make proof" in claim.ci) == (said != "yes" and not targets)
