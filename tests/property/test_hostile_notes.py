"""Every reader of what Holdfast's own processes write gives a value or an error of ours. Seeded.

Locks, leases, notes, messages and records are read by other processes than wrote them, perhaps of a different
version, and after a crash in the middle of a write. The readers of Spark's files are in `test_hostile_files`.
"""

from __future__ import annotations

import pytest
from hostile import require_answered
from note_formats import FORMATS


@pytest.mark.parametrize("name", FORMATS)
def test_a_note_is_read_or_refused(name: str) -> None:
    format_ = FORMATS[name]()
    assert format_.files
    require_answered(format_)
