"""Whether the files of state hold keys of their own partition: a sample of each file, without a record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from holdfast import layout
from holdfast.checkpoints.logs.logs import Logs, readable
from holdfast.checkpoints.state.families import Families
from holdfast.checkpoints.state.key_partition import PartitionCheck
from holdfast.checkpoints.state.states import OperatorStates, StateCodec, StateName
from holdfast.checkpoints.verification.file_checks import ContentCheck
from holdfast.checkpoints.verification.findings import Problem
from holdfast.formats.files.snapshot import SnapshotMetadata
from holdfast.formats.logs.offset_log import PROVIDER, OffsetLog
from holdfast.layout import Kind, StoreFile, StoreId
from holdfast.storage.port import Storage

_EXCHANGED: Final = (
    "put back the right file from a copy, or go back to a batch that is whole;"
    " do not start the query on this one"
)

# For so few keys numpy is not loaded, which would take longer than to hash them.
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class _Sample:
    """The partitions that the sampled keys of one state in one file belong to.

    Attributes:
        path: The file.
        partition: The partition of its folder.
        belonging: The partition that each key belongs to.
    """

    path: str
    partition: int
    belonging: tuple[int, ...]

    @property
    def is_right(self) -> bool:
        return set(self.belonging) == {self.partition}

    @property
    def is_mixed(self) -> bool:
        return len(set(self.belonging)) > 1


def check_placement(
    storage: Storage, logs: Logs, operators: Mapping[int, OperatorStates], check: ContentCheck
) -> Iterator[Problem]:
    """Compare a sample of the keys of each file with the partition that the file is in.

    Only files of batches that ran in as many partitions as the newest one are compared. A state whose keys
    are everywhere in the wrong partition, without pattern, is passed over: then its placement is not what is
    assumed here.

    Args:
        storage: The checkpoint.
        logs: Its logs.
        operators: Its operators at the newest batch, by number.
        check: What has read the files.
    """
    newest = None if logs.newest is None else readable(partial(logs.offsets, logs.newest))
    if newest is None:
        return
    samples: dict[StateName, list[_Sample]] = {}
    for codec, sample in _samples(storage, logs, newest, operators, check):
        samples.setdefault(codec.name, []).append(sample)
    for found in samples.values():
        if any(sample.is_mixed for sample in found) and not any(
            sample.is_right and len(sample.belonging) > 1 for sample in found
        ):
            continue
        for sample in found:
            if not sample.is_right:
                yield Problem(sample.path, _words(sample), _EXCHANGED)


def _samples(
    storage: Storage,
    logs: Logs,
    newest: OffsetLog,
    operators: Mapping[int, OperatorStates],
    check: ContentCheck,
) -> Iterator[tuple[StateCodec, _Sample]]:
    partitions = PartitionCheck(operators.values(), storage.uri)
    content = check.found
    families: dict[StoreId, Families] = {}
    for path, place in check.tree.places():
        if not isinstance(place, StoreFile) or not _is_alike(logs, newest, place):
            continue
        operator = operators.get(place.store.operator_id)
        if operator is None or place.store.partition >= operator.partitions:
            continue
        if place.store.name not in operator.store_names or path in content.problems:
            continue
        keys = content.keys.get(path, ())
        snapshot = content.snapshots.get(path)
        if place.kind is Kind.ZIP and snapshot is not None:
            keys = _keys_of_snapshot(check, place, snapshot)
        if not keys:
            continue
        if place.store not in families:
            families[place.store] = _families(operator, place.store, content.snapshots)
        by_state: dict[str, list[bytes]] = {}
        for stored in keys:
            family, key = families[place.store].split(stored)
            if family is not None:
                by_state.setdefault(family, []).append(key)
        for family, own in by_state.items():
            codec = operator.codec_of(place.store.name, family)
            belonging = [
                place
                for start in range(0, len(own), _AT_ONCE)
                for place in partitions.belonging(codec, own[start : start + _AT_ONCE])
            ]
            if belonging:
                yield codec, _Sample(path, place.store.partition, tuple(belonging))


def _is_alike(logs: Logs, newest: OffsetLog, place: StoreFile) -> bool:
    """Return whether the batch of a file ran in the same number of partitions, with the same provider."""
    offsets = readable(partial(logs.offsets, place.version - 1))
    return (
        offsets is not None
        and offsets.partitions == newest.partitions
        and offsets.confs.get(PROVIDER) == newest.confs.get(PROVIDER)
    )


def _keys_of_snapshot(check: ContentCheck, place: StoreFile, snapshot: SnapshotMetadata) -> tuple[bytes, ...]:
    return tuple(
        key
        for shared in snapshot.shared
        for key in check.sample_data_file(
            layout.SharedFile(place.store, shared.folder, shared.name), shared.size_bytes
        )
    )


def _families(
    operator: OperatorStates, store: StoreId, snapshots: Mapping[str, SnapshotMetadata]
) -> Families:
    """The column families of a store: the newest snapshot has those of all before."""
    own = [
        (place.version, path)
        for path in snapshots
        if isinstance(place := layout.parse(path), StoreFile) and place.store == store
    ]
    newest = snapshots[max(own)[1]] if own else None
    return Families.of(operator, store.name, newest)


def _words(sample: _Sample) -> str:
    wrong = [place for place in sample.belonging if place != sample.partition]
    return (
        f"{len(wrong)} of {len(sample.belonging)} sampled keys belong to partition"
        f" {', '.join(map(str, sorted(set(wrong))))} by Spark's hash, and not to partition {sample.partition}"
    )
