"""A running job with far too many partitions gets fewer by itself, and its totals stay exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_job import PATIENCE_S, until
from small_session import small_session
from totals_shop import OLD, Shop, shop_in

import holdfast as hf
from holdfast.observe.sizing import BATCHES

pytestmark = [pytest.mark.fault, pytest.mark.spark]

SCALES = OLD.replace('trigger="100 ms"', 'autoscale=hf.autoscale(1, 4, after="1s")')


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    yield from shop_in(tmp_path, monkeypatch)


def test_a_job_with_too_many_partitions_gets_fewer(shop: Shop) -> None:
    for _ in range(BATCHES + 5):
        shop.feed()
    (shop.folder / "scales.py").write_text(SCALES)
    conf = {**small_session("1g"), "spark.sql.shuffle.partitions": "16"}
    hf.jobs.start("scales.py", conf=conf, master="local[2]")

    # A decision needs one second of the same recommendation beside its fifty batches.
    def scaled() -> bool:
        batches = hf.jobs.status("totals").details.batches
        if batches and batches[-1].batch_id >= shop.files - 1:
            shop.feed()
        return bool(batches) and batches[-1].operators[0].partitions == 1

    # Fifty batches of sixteen tasks take minutes on a busy machine.
    until(scaled, "the batches have one partition", 10 * PATIENCE_S)
    (made,) = hf.jobs.status("totals").autoscale
    assert (made.query, made.before, made.partitions, made.done) == ("totals", 16, 1, True)
    shop.check()
    hf.jobs.stop("totals")
    assert hf.checkpoints.verify("checkpoint").ok
