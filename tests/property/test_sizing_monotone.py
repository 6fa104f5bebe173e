"""More load never recommends fewer partitions, whatever else a query is like."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import BatchProgress, OperatorProgress, TaskTimes
from holdfast.observe.sizing import sizing

MORNING = 1_772_697_600_000


@st.composite
def histories(draw: st.DrawFn) -> list[BatchProgress]:
    # Small numbers lie where one partition more or less decides, large ones where bounds do.
    scale = draw(st.sampled_from([1, 1, 100]))
    partitions = draw(st.integers(1, 20 * scale))
    interval_ms = draw(st.none() | st.integers(1, 6_000 * scale))
    cores = draw(st.none() | st.integers(1, 20 * scale))
    measured = draw(st.booleans())
    made = []
    for number in range(draw(st.integers(1, 12 if scale > 1 else 2))):
        jobs_ms = draw(st.integers(0, 2_000 * scale))
        run_ms = draw(st.integers(0, 100_000 * scale))
        tasks = TaskTimes(jobs_ms, run_ms, draw(st.integers(0, min(jobs_ms, run_ms))))
        size = draw(st.integers(0, 10**10 * scale))
        operator = OperatorProgress(
            "dedupe", 10, 5, 0, 0, 1_000, 0, partitions, {"rocksdbSstFileSize": size} if size else {}
        )
        made.append(
            BatchProgress(
                "visits",
                number,
                MORNING + number,
                draw(st.integers(1, 200_000 * scale**2)),
                jobs_ms + draw(st.integers(0, 1_000 * scale)),
                None,
                (operator,),
                phases_ms={"addBatch": jobs_ms},
                interval_ms=interval_ms,
                cores=cores,
                tasks=tasks if measured else None,
            )
        )
    return made


def more(batch: BatchProgress, times: float) -> BatchProgress:
    """The same batch with so many times the rows, the state and the work."""

    def of(number: int) -> int:
        return int(number * times)

    operators = tuple(
        replace(each, updated=of(each.updated), store={name: of(value) for name, value in each.store.items()})
        for each in batch.operators
    )
    tasks = batch.tasks and TaskTimes(
        of(batch.tasks.jobs_ms), of(batch.tasks.run_ms), of(batch.tasks.longest_ms)
    )
    # The driver's own part grows too, whichever way the numbers are rounded.
    driver_ms = batch.duration_ms - batch.phases_ms["addBatch"]
    return replace(
        batch,
        input_rows=of(batch.input_rows),
        duration_ms=of(batch.phases_ms["addBatch"]) + of(driver_ms),
        phases_ms={"addBatch": of(batch.phases_ms["addBatch"])},
        operators=operators,
        tasks=tasks,
    )


@given(histories(), st.floats(1, 2) | st.floats(1, 100), st.none() | st.integers(1, 600_000))
def test_more_load_never_recommends_fewer_partitions(
    history: list[BatchProgress], times: float, limit_ms: int | None
) -> None:
    before = sizing(history, MORNING + 1_000, limit_ms)
    after = sizing([more(batch, times) for batch in history], MORNING + 1_000, limit_ms)
    assert before.recommended_partitions is not None
    assert after.recommended_partitions is not None
    assert after.recommended_partitions >= before.recommended_partitions


@given(histories(), st.integers(1, 10**6), st.none() | st.integers(1, 600_000))
def test_more_rows_alone_never_recommend_fewer_partitions(
    history: list[BatchProgress], rows: int, limit_ms: int | None
) -> None:
    before = sizing(history, MORNING + 1_000, limit_ms)
    fuller = [replace(batch, input_rows=batch.input_rows + rows) for batch in history]
    after = sizing(fuller, MORNING + 1_000, limit_ms)
    assert (before.recommended_partitions or 0) <= (after.recommended_partitions or 0)
