"""Run the batches again that were lost with a damaged checkpoint: the same ones, with the same input."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.checkpoints.copy.replay_input import batch_files
from holdfast.checkpoints.logs.logs import Logs
from holdfast.config.job.trigger import OneBatch
from holdfast.storage import open_storage

if TYPE_CHECKING:
    from holdfast.stream.sinks.query_sink import Sink


def repeat(sink: Sink, checkpoint: str, damaged: str, term: int | None = None) -> Iterator[int]:
    """Run each batch that a damaged checkpoint has planned and its successor has not, one by one.

    A sink that keeps a ledger, or Spark's own record of batches, has most of them and passes them by; another
    one writes their rows a second time.

    Cost: a start of the query for each batch, which loads its state anew.

    Args:
        sink: The sink, which tells how to finish a batch that it has.
        checkpoint: The checkpoint that goes on.
        damaged: The damaged one, whose log of offsets and logs of sources are read.
        term: The token of the leader's term, where there are several supervisors.

    Returns:
        The batches, each when it is committed. They end before the first whose input is not known any more.

    Raises:
        QueryFailed: The query failed.
        Corrupt: A log that says what a batch has read is damaged.
    """
    original, own = open_storage(damaged), open_storage(checkpoint)
    offered = frozenset(Logs(original).offered)
    newest = Logs(own).newest
    if newest is None:
        return
    for batch_id in itertools.takewhile(offered.__contains__, itertools.count(newest + 1)):
        for path, data in batch_files(original, own, batch_id):
            if own.size(path) is None:  # a killed try's is the same
                own.write(path, data)
        _run(sink, checkpoint, term)
        yield batch_id


def _run(sink: Sink, checkpoint: str, term: int | None) -> None:
    from holdfast.engine.queries.watch import await_end, failure_text, was_skipped
    from holdfast.stream.trials import QueryFailed

    query = sink.start(checkpoint=checkpoint, trigger=OneBatch(), term=term, repeats=True)
    await_end(query)
    text = failure_text(query)
    if text is None or (was_skipped(text) and sink.finish_batch(checkpoint)):
        return
    raise QueryFailed(text)
