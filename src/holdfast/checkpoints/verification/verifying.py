"""Detection of damage in a checkpoint before a restart uses it."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import ProgressCallback, Tree, codec_of
from holdfast.checkpoints.copy import restorable_batches
from holdfast.checkpoints.keyed import operators_elsewhere
from holdfast.checkpoints.logs import Logs, readable
from holdfast.checkpoints.problems import no_checkpoint
from holdfast.checkpoints.record import Record
from holdfast.checkpoints.state.states import OperatorStates, operator_states
from holdfast.checkpoints.stores import DamagedFiles
from holdfast.checkpoints.verification.file_checks import (
    PARSERS,
    ContentCheck,
    Problem,
    Remark,
    Verification,
    check_record,
)
from holdfast.checkpoints.verification.log_checks import check_logs, check_origin, check_sources
from holdfast.checkpoints.verification.state_checks import StateCheck, check_placement, find_left_files
from holdfast.external.view import is_external
from holdfast.formats.logs.batch_logs import PROVIDER
from holdfast.formats.providers import known_provider
from holdfast.json_shapes import JsonShape
from holdfast.layout import Place, StoreFile
from holdfast.storage.port import Storage

_LOG: Final = logging.getLogger("holdfast.checkpoints")
_BLOBS_ELSEWHERE: Final = "the blobs of operator {} are in {} and were not checked"
_CHECKED: Final = (StoreFile, layout.OwnFile, *PARSERS)


def verify(
    storage: Storage,
    tell: ProgressCallback | None = None,
    known: Container[str] = (),
    *,
    unpack: bool = True,
    record: Record | None = None,
    placed: Container[str] | None = None,
) -> Verification:
    """Check every file that Spark wrote, and that the files are consistent with each other.

    The query may be running. Spark then deletes files that it no longer needs and writes uncommitted files,
    so every suspicious file is checked a second time after a new listing; only findings of both checks are
    problems. Files of an uncommitted batch are ignored, because the batch will run again. Without a record,
    the check cannot detect changes after which every file matches its checksum: under state-checkpoint format
    1, two files exchanged with their checksums, or an older file put back.

    Cost: reads every file once, and decompresses change files.

    Args:
        storage: The checkpoint.
        tell: The progress callback, called with files done, total files, and the current step.
        known: Files whose content an earlier verification found undamaged. They are read only if other files
            are compared with them.
        unpack: Whether to decompress change files even if they have a valid checksum. A million changes take
            two seconds.
        record: The integrity record of committed batches; it must be read before this call, so that the files
            in it existed.
        placed: Files whose keys an earlier verification has sampled; those of `known` by default.

    Raises:
        NotFound: The checkpoint does not exist.
        Unavailable: The storage does not answer.
        Unsupported: No damage was found, but the state's provider is not supported.
    """
    _LOG.debug("verifying %s", storage.uri)
    placed = known if placed is None else placed
    look = partial(_look, storage, known=known, unpack=unpack, record=record, placed=placed)
    outcome, foreign = look(None, tell)
    if not outcome.ok:
        suspects = frozenset(problem.file for problem in outcome.problems)
        second, foreign = look(suspects, None)
        outcome = replace(
            outcome,
            batch_id=second.batch_id,
            problems=tuple(problem for problem in second.problems if problem.file in suspects),
            # The second check opens no snapshots of a store without findings, although an old one may be
            # damaged.
            restorable=tuple(batch for batch in second.restorable if batch in outcome.restorable),
            damage=second.damage,
            stateful=second.stateful,
        )
    if outcome.ok and foreign is not None:
        known_provider({PROVIDER: foreign}, storage.uri)
    _LOG.info("verified %s: %d problems", storage.uri, len(outcome.problems))
    return outcome


@dataclass(frozen=True, slots=True)
class UnreadFiles(JsonShape):
    """The files whose content was not read.

    Attributes:
        files: The number of these files.
        size_bytes: The size of these files in bytes.
    """

    files: int
    size_bytes: int


def unread_paths(sizes: Mapping[str, int], most_bytes: int, most_files: int | None) -> dict[str, int]:
    """Return the largest files, with their sizes, which a check within these limits does not read."""
    unread: dict[str, int] = {}
    total = 0
    for number, (path, size) in enumerate(sorted(sizes.items(), key=lambda item: (item[1], item[0]))):
        total += size
        if total > most_bytes or (most_files is not None and number >= most_files):
            unread[path] = size
    return unread


def verify_within(
    storage: Storage, record: Record | None, *, most_bytes: int, most_files: int | None
) -> tuple[Verification, UnreadFiles]:
    """Check for damage as `verify` does, but check only presence, size and end of large files.

    Args:
        storage: The checkpoint.
        record: The integrity record, if there is one.
        most_bytes: The maximum number of bytes of state files to read.
        most_files: The maximum number of state files to read; None for no limit.

    Raises:
        NotFound, Unavailable, Unsupported: As for `verify`.
    """
    tree = Tree(storage)
    sizes = {
        path: tree.size(path) or 0
        for path, place in tree.places()
        if isinstance(place, (StoreFile, layout.SharedSstFile))
    }
    unread = unread_paths(sizes, most_bytes, most_files)
    verification = verify(storage, known=unread, unpack=False, record=record)
    return verification, UnreadFiles(len(unread), sum(unread.values()))


def _look(
    storage: Storage,
    only: frozenset[str] | None,
    tell: ProgressCallback | None,
    *,
    known: Container[str],
    unpack: bool,
    record: Record | None,
    placed: Container[str],
) -> tuple[Verification, str | None]:
    """Check all files, or only the given ones, once; return the provider if its files are not supported."""
    logs = Logs(storage)
    tree = Tree(storage)
    if not logs.offered and not logs.committed and not tree.has(layout.METADATA):
        raise no_checkpoint(storage)
    newest = logs.newest
    codec = codec_of(None if newest is None else readable(lambda: logs.offsets(newest)))
    operators = _operators(storage, newest)
    values = {operator_id: operator.values for operator_id, operator in operators.items()}
    check = ContentCheck(storage, tree, codec, known, unpack, record, placed, values)
    files = [(path, place) for path, place in tree.places() if _counts(place, newest, path, only)]
    if is_external(storage) and newest is not None:
        # A database has only one set of rows, which replaces those of older versions.
        files = [
            (path, place)
            for path, place in files
            if not isinstance(place, StoreFile) or place.version == newest + 1
        ]
    for done, (path, place) in enumerate(files):
        if tell is not None:
            tell(done, len(files), "reading files")
        check.check(path, place)
    content = check.found
    from_record = [] if record is None else list(check_record(record, tree, logs, content.snapshots))
    for finding in from_record:
        if isinstance(finding, Problem) and finding.file not in content.problems:
            content.problems[finding.file] = finding
            content.misleading.add(finding.file)
    for problem in check_placement(storage, logs, operators, check):
        if problem.file not in content.problems:
            content.problems[problem.file] = problem
            content.misleading.add(problem.file)
    state = StateCheck(check, logs)
    state.run()
    found = [
        *check_logs(tree, logs),
        *check_origin(storage, logs),
        *check_sources(storage, tree, logs),
        *state.found,
        *from_record,
        *(() if newest is None or is_external(storage) else find_left_files(storage, tree, codec, newest)),
    ]
    problems = dict(content.problems)
    for finding in found:
        if isinstance(finding, Problem):
            problems.setdefault(finding.file, finding)
    unreadable = frozenset((content.problems.keys() - content.misleading) | state.broken)
    damage = DamagedFiles(unreadable, frozenset(problems.keys() - unreadable))
    outcome = Verification(
        uri=storage.uri,
        batch_id=newest,
        problems=tuple(problems[file] for file in sorted(problems)),
        remarks=(
            *content.remarks,
            *(finding for finding in found if isinstance(finding, Remark)),
            *(
                Remark(layout.STATE, _BLOBS_ELSEWHERE.format(name, product))
                for name, product in operators_elsewhere(storage).items()
            ),
        ),
        restorable=restorable_batches(storage, tree, logs, record, damage),
        files=content.files,
        size_bytes=content.size_bytes,
        recorded_batch=None if record is None else record.batch_id,
        compared=content.compared,
        stateful=state.stateful,
        damage=damage,
    )
    return outcome, state.foreign


def _operators(storage: Storage, newest: int | None) -> dict[int, OperatorStates]:
    """Return the operators whose keys can be checked for their partition; empty for state in a database."""
    if newest is None or is_external(storage):
        return {}
    found = readable(lambda: operator_states(storage, newest)) or []
    return {operator.operator_id: operator for operator in found if operator.partitions > 1}


def _counts(place: Place, newest: int | None, path: str, only: frozenset[str] | None) -> bool:
    """Return whether to check a file, which is not the case for a file of an uncommitted batch."""
    if not isinstance(place, _CHECKED):
        return False
    if isinstance(place, StoreFile) and (newest is None or place.version > newest + 1):
        return False
    sums = (layout.HadoopChecksumFile(path).render(), layout.SparkChecksumFile(path).render())
    spark_sums = layout.HadoopChecksumFile(sums[1]).render()
    if only is None or not only.isdisjoint((path, *sums, spark_sums)):
        return True
    # A data file is compared with the snapshots that need it, a lineage with those of its neighbours, and the
    # partition of keys with that of the keys in the operator's other files.
    if not isinstance(place, StoreFile):
        return False
    operator = f"{layout.STATE}/{place.store.operator_id}/"
    return any(file.startswith(operator) for file in only)
