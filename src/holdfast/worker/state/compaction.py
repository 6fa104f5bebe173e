"""When a key group gets a new base in place of its log.

Folding a group writes all of its rows, so it must be rare; a long log is read whole after a restart, so it
must not be too rare. A batch folds few groups, so that no batch pays for many.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.worker.state.store import Meta

# The log of a group is folded when it is this many times its base, and at least so many bytes or changes.
FOLD_RATIO = 2.0
FOLD_BYTES = 32 << 10
FOLD_CHANGES = 256
# In one batch, new bases have at most this many bytes, or as many as the batch's changes, and at least one.
FOLD_BUDGET = 1 << 20
# Groups with blobs of a former form go before all others, so that a former form is gone after a while.
_OLDER = 1000.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """An open group of a batch.

    Attributes:
        group: Its number.
        meta: What the store says of it.
        changed_bytes: What the batch changed, about.
        must: Whether it is to be folded in any case.
    """

    group: int
    meta: Meta
    changed_bytes: int
    must: bool


def chosen(candidates: Iterable[Candidate], form: bytes, turn: int | None) -> set[int]:
    """The groups that get a new base now, within the budget: of a former form, or with a long log.

    Args:
        candidates: The open groups that have state.
        form: The fingerprint of today's form.
        turn: A group that is folded for its expired values if it has a log, or None where nothing expires.
    """
    ripe: list[tuple[float, int, int]] = []
    groups: set[int] = set()
    total = 0
    for candidate in candidates:
        meta = candidate.meta
        if candidate.must or (candidate.group == turn and meta.log_count):
            groups.add(candidate.group)
            continue
        total += candidate.changed_bytes
        # The groups grow alike; a share of their own keeps them from being ripe all at once.
        limit = max(FOLD_BYTES, FOLD_RATIO * meta.base_bytes) * (0.75 + 0.5 * (candidate.group * 0.618 % 1))
        older = meta.mixed or meta.form != form
        if older or meta.log_bytes > limit or meta.log_count >= FOLD_CHANGES:
            score = meta.log_bytes / limit + meta.log_count / FOLD_CHANGES
            ripe.append((score + _OLDER * older, candidate.group, meta.base_bytes))
    budget = max(FOLD_BUDGET, total)
    for _, group, size in sorted(ripe, reverse=True):
        if budget <= 0:
            break
        groups.add(group)
        budget -= size
    return groups
