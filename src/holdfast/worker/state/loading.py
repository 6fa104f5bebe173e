"""Read a key group from the store: its blobs, brought into today's form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.errors import Corrupt
from holdfast.worker.interface import Moment
from holdfast.worker.state.blob_schema import BlobSchema, decode, fingerprint_of, form_from_json
from holdfast.worker.state.operator_layout import Layout
from holdfast.worker.state.store import Store
from holdfast.worker.state.upgrade import Upgrade


@dataclass(slots=True)
class Loaded:
    """What a group's blobs hold.

    Attributes:
        batches: The rows of each table, in the order in which they were written.
        older: The former forms that its blobs are in.
        timed: Whether reading it later would give something else, so that it must be written now.
    """

    batches: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    older: dict[str, Any] = field(default_factory=dict)
    timed: bool = False


class Loader:
    """Reads groups of one operator.

    Args:
        layout: What fixes its state.
        store: Where the groups are.
    """

    def __init__(self, layout: Layout, store: Store) -> None:
        self._operator = layout.operator
        self._form = layout.form
        self._store = store
        self._upgrade = Upgrade(layout)

    def load(self, group: int, moment: Moment) -> Loaded:
        """All rows of a group in today's form.

        Raises:
            Corrupt: A blob cannot be read.
            Invalid: Rows of an older form cannot be read as today's.
        """
        stored = self._store.load(group)
        today = self._form.fingerprint
        forms: dict[bytes, BlobSchema] = {today: self._form}
        loaded = Loaded()
        for blob in (*stored.base, *stored.log):
            mark = fingerprint_of(blob)
            if mark not in forms:
                loaded.older = json.loads(stored.forms or b"{}")
                forms |= self._older_forms(loaded.older, mark)
                loaded.timed |= self._upgrade.timed(forms[mark])
            for name, batch in decode(forms[mark], blob).items():
                brought: tuple[str, pa.RecordBatch] | None
                if mark == today:
                    brought = (name, self._upgrade.renew(name, batch, moment))
                    loaded.timed |= brought[1] is not batch
                else:
                    brought = self._upgrade.bring(forms[mark], name, batch, moment)
                if brought is not None:
                    loaded.batches.setdefault(brought[0], []).append(brought[1])
        return loaded

    def older(self, group: int) -> dict[str, Any]:
        """The forms that a group describes, as plain values."""
        known: dict[str, Any] = json.loads(self._store.load(group).forms or b"{}")
        return known

    def _older_forms(self, known: Mapping[str, Any], mark: bytes) -> dict[bytes, BlobSchema]:
        if mark.hex() not in known:
            raise Corrupt(
                "keyed state is in a form that its group does not describe",
                where=f"operator {self._operator}",
                found=mark.hex(),
                expected=", ".join(known) or self._form.fingerprint.hex(),
                hint="restore a savepoint, or a batch that `holdfast checkpoint verify` calls whole",
            )
        return {bytes.fromhex(text): form_from_json(fields) for text, fields in known.items()}
