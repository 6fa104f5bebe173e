from __future__ import annotations

import pytest

from holdfast.errors import Internal
from holdfast.jobs.supervisor.supervised_job import TRANSITIONS, next_state
from holdfast.model import JobState


def test_every_state_has_its_transitions() -> None:
    assert set(TRANSITIONS) == set(JobState)


@pytest.mark.parametrize("state", JobState)
def test_a_job_ends_in_a_terminal_state_and_nowhere_else(state: JobState) -> None:
    assert state.terminal == (not TRANSITIONS[state])
    assert JobState.CREATED not in TRANSITIONS[state]
    reached = {state}
    while not reached >= (further := {other for known in reached for other in TRANSITIONS[known]}):
        reached |= further
    assert any(other.terminal for other in reached)


@pytest.mark.parametrize(
    "states",
    [
        "CREATED RUNNING FINISHED",
        "CREATED RESTARTING RESTARTING FAILED",
        "CREATED RUNNING RESTARTING RUNNING CANCELLING CANCELED",
        "CREATED RUNNING RUNNING CANCELLING CANCELLING CANCELED",
        "CREATED RUNNING RESTARTING CANCELLING CANCELED",
        "CREATED FAILED",
    ],
)
def test_a_life_of_a_job(states: str) -> None:
    first, *others = [JobState(name) for name in states.split()]
    for state in others:
        first = next_state(first, state)


@pytest.mark.parametrize(
    ("state", "following"),
    [
        (JobState.FINISHED, JobState.RUNNING),
        (JobState.FAILED, JobState.RESTARTING),
        (JobState.CANCELED, JobState.CANCELED),
        (JobState.CANCELLING, JobState.RUNNING),
        (JobState.RUNNING, JobState.CANCELED),
        (JobState.RUNNING, JobState.CREATED),
    ],
)
def test_other_transitions_are_refused(state: JobState, following: JobState) -> None:
    with pytest.raises(Internal, match=f"cannot change from {state.value} to {following.value}"):
        next_state(state, following)
