"""The check that the checkpoints of a job are whole, before a restart builds on them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast import layout
from holdfast.checkpoints.record import find_record
from holdfast.checkpoints.verification.file_checks import Problem, Verification
from holdfast.checkpoints.verification.verifying import verify
from holdfast.config.checks import place_word
from holdfast.config.spark_defaults import EXTERNAL_PROVIDERS
from holdfast.errors import Corrupt, HoldfastError, NotFound
from holdfast.storage import open_storage


class _OutOfTime(Exception):
    """Raised when the time limit for a check is over."""


@dataclass(frozen=True, slots=True)
class CheckpointDamage:
    """A checkpoint that a restart must not build on.

    Attributes:
        query: The query.
        checkpoint: The address of its checkpoint.
        problem: The first problem found.
        newest: The newest committed batch.
        whole: The newest earlier batch with undamaged files only, if any.
    """

    query: str
    checkpoint: str
    problem: Problem
    newest: int
    whole: int | None

    def error(self, target: str) -> Corrupt:
        """Return the error that asks for a decision."""
        ways = f"`holdfast run {target} --on-damage savepoint` resumes from the newest savepoint"
        if self.whole is not None:
            ways += f", `--on-damage batch` from batch {self.whole}"
        return Corrupt(
            f"the checkpoint of query {self.query!r} is damaged, so the query was not restarted",
            code="HF-E6033",
            where=f"{self.checkpoint}/{self.problem.file}",
            found=self.problem.what,
            hint=f"list all damage with `holdfast checkpoint verify {place_word(self.checkpoint)}`; {ways}",
        )


def look(
    checkpoints: Mapping[str, str], home: Path, limit_ms: int
) -> tuple[list[CheckpointDamage], list[str]]:
    """Check whether a restart can use checkpoints that are not in use at the moment.

    Damage that affects only older batches does not block a restart, but is reported.

    Cost: every file is read, up to the time limit.

    Args:
        checkpoints: Addresses, by query.
        home: The state home, for its integrity records.
        limit_ms: The time limit.

    Returns:
        The damaged checkpoints, and further messages, a line each.
    """
    deadline = time.monotonic() + limit_ms / 1000
    damage: list[CheckpointDamage] = []
    notes: list[str] = []
    for query, address in checkpoints.items():
        try:
            verification = _verified(address, home, deadline)
        except _OutOfTime:
            notes.append(f"query {query}: the check of its checkpoint was not finished within the time limit")
            continue
        except NotFound:
            continue  # it has not come to its first batch
        except HoldfastError as error:
            if error.found in EXTERNAL_PROVIDERS:
                continue  # its logs are whole; Spark's tasks look at a store in a database when they begin
            notes.append(f"query {query}: its checkpoint could not be checked: {error.fact}")
            continue
        blocks = _blocking(verification)
        if blocks is not None and verification.batch_id is not None:
            older = [batch_id for batch_id in verification.restorable if batch_id < verification.batch_id]
            damage.append(
                CheckpointDamage(query, address, blocks, verification.batch_id, max(older, default=None))
            )
        elif verification.problems:
            first = verification.problems[0]
            notes.append(f"query {query}: {first.file} is damaged; only older batches need it")
    return damage, notes


def _verified(address: str, home: Path, deadline: float) -> Verification:
    def tell(_done: int, _total: int, _note: str) -> None:
        if time.monotonic() > deadline:
            raise _OutOfTime

    storage = open_storage(address)
    record, _ = find_record(home, storage)
    return verify(storage, tell, unpack=False, record=record)


def _blocking(verification: Verification) -> Problem | None:
    """Return the first problem that affects a restart from the newest batch."""
    if verification.batch_id is None:
        return None
    if verification.batch_id not in verification.restorable and verification.problems:
        return verification.problems[0]
    batches = (layout.StoreFile, layout.LogFile)
    return next(
        (
            problem
            for problem in verification.problems
            if not isinstance(layout.parse_covered(problem.file), batches)
        ),
        None,
    )
