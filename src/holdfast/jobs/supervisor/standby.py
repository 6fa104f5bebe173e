"""A standby supervisor: it waits, is elected, and refuses to lead where it cannot."""

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
from holdfast.storage.successors import parse_successor

# What may be different on another machine, or later on this one.
_PASSES: Final = (Conflict, Unavailable)


def stand_by(candidacy: Candidacy, wait: Callable[[float], bool], say: Say) -> bool:
    """Wait until this supervisor leads; False if it was asked to end.

    Args:
        candidacy: The supervisor's candidacy.
        wait: Waits a number of seconds; False if the supervisor was asked to end.
        say: Reports events.

    Raises:
        Conflict: The job is led through a different election address.
    """
    leader, told = candidacy.watch(), False
    who = "a different supervisor" if leader is None else leader
    say("standby", f"standing by; {who} leads", leader=who, elections=candidacy.address)
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
    """Take over the checkpoint of the job that this supervisor leads; return False if a stop comes first.

    Raises:
        LeadershipLost: This supervisor is no longer the leader.
        CannotLead: The checkpoints of the former leader's queries are not accessible on this machine.
        Conflict: A different job holds the checkpoint, and this supervisor was not a standby before.
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
    """Check that this machine sees the checkpoints of the former leader's queries.

    Otherwise a disk that is not mounted would let the job start from scratch.

    Raises:
        CannotLead: It does not see them.
    """
    if record is None or not record.ran or under_way(checkpoint):
        return
    if record.checkpoint != checkpoint:
        raise CannotLead(
            "the supervisors of this job have different checkpoints",
            where=checkpoint,
            found=f"{checkpoint} here, {record.checkpoint} at {record.holder}",
        )
    for place in record.queries.values():
        if not _is_within(place.checkpoint, checkpoint):
            raise CannotLead(
                "the former leader's record names a checkpoint outside the job's",
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
                "the checkpoint of the job's former leader is missing on this machine",
                where=place.checkpoint,
                found=f"no checkpoint in {place.checkpoint}, used by {record.holder}; is it mounted?",
            )


def checkpoints_of(
    record: LeaderRecord | None, known: Mapping[str, str], checkpoint: str
) -> Mapping[str, str]:
    """Return the checkpoints of a job's queries, by name.

    The leader's record takes precedence over the state home, which may be older. Of the record only
    checkpoints within the job's own are used, since the record may be forged.

    Args:
        record: The former leader's record.
        known: The checkpoints known to the state home.
        checkpoint: The job's checkpoint.
    """
    places: Mapping[str, QueryPlace] = {} if record is None else record.queries
    # What replaced a checkpoint is looked up, and not taken from the record.
    own = {name: parse_successor(place.checkpoint)[0] for name, place in places.items()}
    return {name: place for name, place in own.items() if _is_within(place, checkpoint)} or known


def _is_within(place: str, checkpoint: str) -> bool:
    """Return True if a query's checkpoint is the job's or a directory in it, or may be its successor."""
    place, _ = parse_successor(place)
    name = place.removeprefix(f"{checkpoint}/")
    return place == checkpoint or (name not in (place, "", ".", "..") and "/" not in name)


def require_final(refusal: HoldfastError, candidacy: Candidacy, *, begun: bool) -> None:
    """Raise the refusal if it ends the supervisor; a standby survives temporary refusals.

    Args:
        refusal: The reason why its driver could not run the job.
        candidacy: The supervisor's candidacy.
        begun: True if the driver already had the checkpoint, so that the refusal concerns the job.

    Raises:
        CannotLead: The supervisor stands by again.
    """
    if candidacy.has_stood_by and not begun and isinstance(refusal, _PASSES):
        why = f"{refusal.fact}: {refusal.found}" if refusal.found else refusal.fact
        raise CannotLead(refusal.fact, where=refusal.where, found=why) from refusal
