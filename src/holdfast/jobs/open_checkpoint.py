"""`hf.checkpoint`: one checkpoint and what there is to ask of it, for notebooks and scripts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast import checkpoints
from holdfast.at_rest.state_api import StateRows, StatesAtRest
from holdfast.at_rest.state_api import state as states_of
from holdfast.external.view import open_checkpoint
from holdfast.jobs.health import Health
from holdfast.jobs.health import health as health_of
from holdfast.notebook import page, sparkline

if TYPE_CHECKING:
    from holdfast.checkpoints.checkpoint import CheckpointReport, CommittedBatch
    from holdfast.checkpoints.verification.file_checks import Verification

_SHOWN = 100


def checkpoint(
    address: str | os.PathLike[str], *, home: str | os.PathLike[str] | None = None
) -> OpenCheckpoint:
    """Open a checkpoint for reading, in a notebook or a script.

    Changes nothing, starts no Spark, and works while the query runs.

    Args:
        address: The checkpoint: a path or a URI.
        home: The state home; by default the one in effect here.

    Raises:
        Invalid: The address is not valid.
        NotFound: The checkpoint does not exist.
        Unavailable: The storage does not answer.
        Unsupported: The library for this kind of storage is not installed.

    Example:
        visits = hf.checkpoint("checkpoints/visits")
        assert visits.read().batch_id == 11
        assert visits.health().ok
    """
    opened = OpenCheckpoint(open_checkpoint(address).uri, home)
    opened.read()
    return opened


class OpenCheckpoint:
    """A checkpoint that is open for reading.

    A notebook shows its health, and the duration and new bytes of its newest batches as charts.

    Args:
        uri: The checkpoint.
        home: The state home; by default the one in effect here.

    Example:
        visits = hf.checkpoint("checkpoints/visits")
        assert [batch.batch_id for batch in visits.history(last=2)] == [10, 11]
        rows = visits.state("aggregate").to_arrow()
        assert rows.num_rows == 10
    """

    def __init__(self, uri: str, home: str | os.PathLike[str] | None = None) -> None:
        self.uri = uri
        self._home = home

    def __repr__(self) -> str:
        return f"hf.checkpoint({self.uri!r})"

    def read(self) -> CheckpointReport:
        """Return the query, sources, operators and sizes at the newest committed batch."""
        return checkpoints.read(self.uri)

    def health(self) -> Health:
        """Return damage, newest batch, restart, findings and the next command."""
        return health_of(self.uri, home=self._home)

    def verify(self) -> Verification:
        """Check every file for damage, as `hf.checkpoints.verify` does."""
        return checkpoints.verify(self.uri, home=self._home)

    def history(self, last: int | None = None) -> tuple[CommittedBatch, ...]:
        """Return the committed batches that are still kept, oldest first.

        Args:
            last: The number of newest batches; all by default.
        """
        return checkpoints.history(self.uri, last)

    def states(self, batch: int | None = None) -> StatesAtRest:
        """Return all states at one batch, as `hf.state` does.

        Args:
            batch: The batch; the newest by default.
        """
        return states_of(self.uri, batch)

    def state(self, state: str, *, operator: str | int | None = None, batch: int | None = None) -> StateRows:
        """Return the rows of one state: `.to_pandas()`, `.to_arrow()`, `.to_polars()`.

        Args:
            state: The name of the state.
            operator: The operator, where the name of the state occurs in several.
            batch: The batch; the newest by default.
        """
        return self.states(batch).state(state, operator=operator)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        batches = self.history(_SHOWN)
        durations = [batch.duration_ms / 1000 for batch in batches if batch.duration_ms is not None]
        lines = [
            (sparkline(durations, "seconds of a batch"), "Duration of batches"),
            (
                sparkline([batch.new_bytes for batch in batches], "new bytes of a batch"),
                "New bytes of batches",
            ),
        ]
        drawn = "".join(f"<div>{line} {label}</div>" for line, label in lines if line)
        return page(self.uri, self.health()._repr_html_(), drawn)
