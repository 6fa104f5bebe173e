"""A supervisor while another one leads its job: it waits, is elected, and does not lead where it cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from holdfast import layout
from holdfast.errors import Conflict, HoldfastError, Unavailable
from holdfast.jobs.candidacy import Candidacy, LeaderRecord, QueryPlace
from holdfast.jobs.events import Say
from holdfast.jobs.rollback import under_way
from holdfast.ownership.checkpoint_claim import CheckpointClaim
from holdfast.ownership.checkpoint_lock import Owner
from holdfast.ownership.election import CannotLead
from holdfast.ownership.process_identity import host_name
from holdfast.storage import open_storage

# What may be different on another machine, or later on this one.
_PASSES: Final = (Conflict, Unavailable)


def stand_by(candidacy: Candidacy, wait: Callable[[float], bool], say: Say) -> bool:
    """Wait until this supervisor leads; False if it was told to end.

    Args:
        candidacy: Its candidacy.
        wait: Waits so many seconds; False if the supervisor was told to end.
        say: Tells what happens.

    Raises:
        Conflict: The job is led by way of elections at another place.
    """
    leader, told = candidacy.watch(), False
    who = "another supervisor" if leader is None else leader
    say("standby", f"standing by, {who} leads", leader=who, elections=candidacy.address)
    while wait(candidacy.next_try_s()):
        try:
            if candidacy.stand():
                return True
        except Unavailable as error:  # noqa: PERF203 - the servers may come back
            if not told:
                say("elections", f"{error.fact}: {error.found}")
            told = True
    return False


def take_over(claim: CheckpointClaim, candidacy: Candidacy, say: Say, goes_on: Callable[[], bool]) -> bool:
    """Make the checkpoint of the job that this supervisor leads its own; False if it was told to end first.

    Raises:
        LeadershipLost: It leads no longer.
        CannotLead: This machine does not see what the former leader's queries have written.
        Conflict: Another job has the checkpoint, and this supervisor has just been started.
    """
    record = candidacy.record
    claim = replace(claim, election=candidacy.election_id, term=candidacy.token or 0)

    def waiting(owner: Owner) -> None:
        say("waiting", claim.describe(owner), pid=owner.pid, machine=host_name(owner.machine))

    def patient() -> bool:
        candidacy.require()
        return goes_on()

    driver = None if record is None else record.driver
    if not claim.take_over(driver, waiting, patient, refuse_others=not candidacy.has_stood_by):
        return False
    if candidacy.has_stood_by:
        require_places(record, claim.checkpoint)
    return True


def require_places(record: LeaderRecord | None, checkpoint: str) -> None:
    """Make sure that this machine sees the checkpoints that the former leader's queries have written.

    A disk that is not mounted looks like a job that has never run, and the job would begin from scratch.

    Raises:
        CannotLead: It does not.
    """
    if record is None or not record.ran or under_way(checkpoint):
        return
    if record.checkpoint != checkpoint:
        raise CannotLead(
            "the supervisors of this job do not name the same checkpoint",
            where=checkpoint,
            found=f"{checkpoint} here, {record.checkpoint} at {record.holder}",
        )
    for place in record.queries.values():
        if not _is_within(place.checkpoint, checkpoint):
            raise CannotLead(
                "the record of the former leader names a checkpoint that is not the job's",
                where=checkpoint,
                found=f"{place.checkpoint}, by {record.holder}",
            )
        try:
            size = open_storage(place.checkpoint).size(layout.METADATA)
        except HoldfastError as error:
            raise CannotLead(
                error.fact, where=place.checkpoint, found=f"{error.fact}: {error.found}"
            ) from error
        if size is None:
            raise CannotLead(
                "the checkpoint of the job's former leader is not here",
                where=place.checkpoint,
                found=f"no checkpoint in {place.checkpoint}, which {record.holder} has used: is it mounted?",
            )


def checkpoints_of(
    record: LeaderRecord | None, known: Mapping[str, str], checkpoint: str
) -> Mapping[str, str]:
    """Return the checkpoints of a job's queries, by name.

    What a state home knows may be from before another supervisor led the job, so the leader's record goes
    before it. Of the record, only checkpoints within the job's own are used: whoever may write it names no
    others.

    Args:
        record: What the former leader has recorded.
        known: What the state home knows.
        checkpoint: The job's checkpoint.
    """
    places: Mapping[str, QueryPlace] = {} if record is None else record.queries
    own = {name: place.checkpoint for name, place in places.items()}
    return {name: place for name, place in own.items() if _is_within(place, checkpoint)} or known


def _is_within(place: str, checkpoint: str) -> bool:
    """A query's checkpoint is the job's, or a directory in it."""
    name = place.removeprefix(f"{checkpoint}/")
    return place == checkpoint or (name not in (place, "", ".", "..") and "/" not in name)


def require_final(refusal: HoldfastError, candidacy: Candidacy, *, begun: bool) -> None:
    """Raise the refusal if it ends the supervisor. A standby does not give up for what may pass.

    Args:
        refusal: Why its driver could not run the job.
        candidacy: Its candidacy.
        begun: Whether the driver had the checkpoint by then, so that the refusal is the job's.

    Raises:
        CannotLead: It stands by again.
    """
    if candidacy.has_stood_by and not begun and isinstance(refusal, _PASSES):
        why = f"{refusal.fact}: {refusal.found}" if refusal.found else refusal.fact
        raise CannotLead(refusal.fact, where=refusal.where, found=why) from refusal
