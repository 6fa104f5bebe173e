"""Blobs of keyed state that a stranger has written are read or refused. Seeded."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hostile import Format, require_answered

from golden import KEYED, golden
from holdfast.checkpoints.keyed import KeyGroup, parts_of, stored_groups
from holdfast.checkpoints.state.states import operator_states
from holdfast.errors import Corrupt
from holdfast.worker.state import layout as forms

WHERE = "state/0"


def groups() -> list[KeyGroup]:
    storage = golden(KEYED[0])
    (operator,) = operator_states(storage)
    return [group for group in stored_groups(storage, operator) if group.base or group.log]


def test_a_strangers_blobs_are_read_or_refused() -> None:
    for group in groups()[:2]:
        blobs = [*group.base, *group.log]
        assert parts_of(group, WHERE)

        def blob(data: bytes, group: KeyGroup = group) -> None:
            for part in parts_of(replace(group, base=(data,), log=()), WHERE):
                for run in part.tables.values():
                    run.batch.to_pylist()

        def noted(data: bytes, group: KeyGroup = group) -> None:
            parts_of(replace(group, forms=data), WHERE)

        def record(data: bytes, group: KeyGroup = group) -> None:
            replace(group, meta=data).record(WHERE)

        assert group.meta is not None
        require_answered(Format(f"blob {group.group}", blob, blobs))
        require_answered(Format(f"forms {group.group}", noted, [group.forms]))
        require_answered(Format(f"record {group.group}", record, [group.meta]))


def test_a_packed_batch_is_refused() -> None:
    """Arrow would make a gigabyte of what fits into a page."""
    group = groups()[0]
    (form,) = group.read_forms(WHERE).values()
    blob = (*group.base, *group.log)[0]
    (name, batch), *_ = forms.decode(form, blob).items()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages = [reader.read_next_message(), reader.read_next_message()]
    packed = messages[1].serialize()
    index = list(form.tables).index(name)
    hostile = (
        forms._BLOB.pack(form.fingerprint, 1) + forms._PART.pack(index, packed.size) + packed.to_pybytes()
    )
    assert forms.decode(form, hostile)[name].equals(batch)
    with pytest.raises(Corrupt, match="cannot be read") as error:
        parts_of(replace(group, base=(hostile,), log=()), WHERE)
    assert "compressed batch of rows" in str(error.value.found)
