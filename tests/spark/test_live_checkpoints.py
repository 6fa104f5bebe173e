"""Reading checkpoints of queries that run: no false alarm while files come and go."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import checkpoints
from holdfast.checkpoints.copy.file_set import cut
from holdfast.checkpoints.record import RecordFile, record_path
from holdfast.checkpoints.recording import Recorder
from holdfast.errors import NotFound
from holdfast.storage.local import LocalStorage

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).resolve().parents[1] / "support" / "busy_query.py"
BATCHES = 6


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("busy")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "busy\n", (folder / "log").read_text()[-2000:]
            yield folder
        finally:
            process.communicate("", timeout=60)


KINDS = ("format2", "format1", "memory")


def test_running_queries_raise_no_false_alarm(busy: Path, tmp_path: Path) -> None:
    files = {kind: RecordFile(record_path(tmp_path, f"file://{busy / kind}")) for kind in KINDS}
    recorders = {kind: Recorder(LocalStorage(busy / kind), files[kind]) for kind in KINDS}
    first = {kind: checkpoints.read(busy / kind).batch_id or 0 for kind in KINDS}
    newest = dict(first)
    while any(newest[kind] < first[kind] + BATCHES for kind in KINDS):
        for kind in KINDS:
            noted = recorders[kind].look()
            assert (noted.behind, noted.batch_id is not None) == (False, True)
            found = checkpoints.verify(busy / kind, home=tmp_path)
            assert found.problems == (), found.problems
            assert found.recorded_batch is not None
            assert found.recorded_batch >= (noted.batch_id or 0)
            assert found.batch_id is not None
            newest[kind] = found.batch_id
            shown = checkpoints.read(busy / kind)
            assert [store.missing for store in shown.operators[0].stores] == [None, None]
    for kind in KINDS:
        # Something has been cleaned up meanwhile, or this would have shown nothing.
        assert checkpoints.read(busy / kind).committed[0] > 0
        assert checkpoints.history(busy / kind)[-1].new_bytes > 0
        # What was cleaned up is forgotten, so that the record stays as small as what is kept.
        record = files[kind].read()
        assert record is not None
        assert len(record.files) < 400


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_of_a_running_query_is_whole(busy: Path, kind: str, tmp_path: Path) -> None:
    source = LocalStorage(busy / kind)
    for attempt in range(50):
        target = LocalStorage(tmp_path / str(attempt))
        try:
            files = cut(source).files
            for file in files:
                target.copy(file.origin, file.path, origin=source)
        except NotFound:
            continue  # cleaned up since it was listed
        found = checkpoints.verify(tmp_path / str(attempt))
        assert found.problems == ()
        assert found.batch_id in found.restorable
        return
    pytest.fail("a running query was faster than fifty cuts")
