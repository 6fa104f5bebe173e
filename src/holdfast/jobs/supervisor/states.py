"""The states of a job while one supervisor has it, and which state may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.errors import Internal
from holdfast.model import JobState

_ENDS: Final = frozenset({JobState.FINISHED, JobState.FAILED})

TRANSITIONS: Final[Mapping[JobState, frozenset[JobState]]] = {
    # The supervisor has taken the job; no driver has started its queries yet.
    JobState.CREATED: _ENDS | {JobState.RUNNING, JobState.RESTARTING, JobState.CANCELLING},
    # All queries of a driver have started. A driver that ends between two batches may be followed by another.
    JobState.RUNNING: _ENDS | {JobState.RUNNING, JobState.RESTARTING, JobState.CANCELLING},
    # A driver has ended: the next one is waited for, here or under another supervisor.
    JobState.RESTARTING: _ENDS
    | {JobState.RUNNING, JobState.RESTARTING, JobState.CANCELLING, JobState.CANCELED},
    # Somebody has canceled the job: no driver starts its queries any more.
    JobState.CANCELLING: _ENDS | {JobState.RESTARTING, JobState.CANCELLING, JobState.CANCELED},
    # The supervisor ends.
    JobState.FINISHED: frozenset(),
    JobState.CANCELED: frozenset(),
    JobState.FAILED: frozenset(),
}


def next_state(state: JobState, following: JobState) -> JobState:
    """The state that follows, if it may.

    Raises:
        Internal: It may not.
    """
    allowed = TRANSITIONS[state]
    if following not in allowed:
        expected = ", ".join(sorted(other.value for other in allowed)) or "no other state"
        raise Internal(f"a job that is {state.value} cannot be {following.value}", expected=expected)
    return following
