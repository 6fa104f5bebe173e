"""What the page of a standalone master says, and what is made of failed tasks: texts as Spark writes them."""

from __future__ import annotations

from holdfast.engine.cluster import ClusterWorker, state_in
from holdfast.engine.session.doctor import failed_task

GIB = 1 << 30
DOCUMENT = {
    "workers": [
        {"host": "a", "cores": 8, "coresused": 3, "memory": 2048, "state": "ALIVE"},
        {"host": "b", "cores": 4, "coresused": 0, "memory": 1024, "state": "ALIVE"},
        {"host": "c", "cores": 64, "coresused": 0, "memory": 1024, "state": "DEAD"},
    ],
    "activeapps": [{"id": "app-1", "cores": 3}, {"id": "app-2", "cores": 0}],
    "status": "ALIVE",
}


def test_dead_workers_do_not_count_and_each_session_has_its_own_cores() -> None:
    state = state_in(DOCUMENT, "app-1")
    assert state.workers == (ClusterWorker("a", 8, 3, 2 * GIB), ClusterWorker("b", 4, 0, GIB))
    assert (state.cores, state.granted) == (12, 3)
    assert state_in(DOCUMENT, "app-2").granted == 0
    assert state_in(DOCUMENT, "app-3").granted is None


def test_a_python_of_another_version_is_told_with_both() -> None:
    check = failed_task(
        "Job aborted ... [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in "
        "driver: 3.11, PySpark cannot run with different minor versions."
    )
    assert not check.ok
    assert check.found == "Python 3.10; the driver has 3.11"
    assert "spark.pyspark.python" in str(check.hint)


def test_a_python_that_is_not_there_is_told() -> None:
    check = failed_task('java.io.IOException: Cannot run program "/opt/py/bin/python": error=2, No such file')
    assert check.found == "/opt/py/bin/python is missing there"
