"""Whether the long form of tests is run: every kind with every provider, and every kill.

`make proof` runs it, with `HOLDFAST_GRID=all`, which takes hours. Otherwise each of these tests runs in a
short form, or not at all.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

WHOLE: Final = os.environ.get("HOLDFAST_GRID") == "all"

PROOF_ONLY: Final = Path(__file__).parents[1] / "proof.txt"


def is_proof_only(test_id: str) -> bool:
    """True if only the long form runs a test."""
    return _PROOF_ONLY.match(test_id) is not None


def proof_only() -> list[str]:
    """Return how the ids of these tests begin; `*` stands for anything."""
    lines = PROOF_ONLY.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


_PROOF_ONLY: Final = re.compile("|".join(re.escape(line).replace(r"\*", ".*") for line in proof_only()))
